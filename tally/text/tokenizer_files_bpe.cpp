// The parts of a byte-level BPE as files have them; see tokenizer_files.h.
#include <algorithm>
#include <unordered_map>

#include "tally/text/tokenizer_files.h"

namespace tally {

SpecialSet special_set(std::span<const NamedId> specials, const std::string& where) {
  std::vector<std::string> names;
  std::vector<int32_t> ids;
  for (const NamedId& s : specials) names.push_back(s.name), ids.push_back(s.id);
  std::vector<int32_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail("{}: two special tokens have id {}", where, *twice);
  return naming(where, [&] { return SpecialSet(std::move(names), std::move(ids)); });
}

TokenTable bpe_tokens(const std::vector<std::string>& keys, const SpecialSet& specials, const std::string& name) {
  TokenTable tokens;
  std::string bytes;
  for (size_t id = 0; id < keys.size(); ++id) {
    if (keys[id].empty() || specials.index_of(keys[id]) >= 0) {
      if (printable_to_bytes(keys[id], bytes) && bytes.size() == 1 && bytes != keys[id])
        fail("{}: the special token {} (id {}) is what the file writes for the byte 0x{:02x}; give it another text",
             name, quote_token(keys[id]), id, static_cast<unsigned char>(bytes[0]));
      tokens.push_back(keys[id]);
      continue;
    }
    if (!printable_to_bytes(keys[id], bytes))
      fail("{}: token {} (id {}) has a character that is not one of GPT-2's 256 byte characters, and is not special",
           name, quote_token(keys[id]), id);
    tokens.push_back(bytes);
  }
  return tokens;
}

std::vector<BpeMerge> bpe_merges(std::span<const MergeLine> lines, const TokenTable& tokens, const SpecialSet& specials,
                                 const std::function<std::string(size_t)>& name, const std::string& vocab) {
  std::unordered_map<std::string_view, int32_t> by_bytes;
  by_bytes.reserve(static_cast<size_t>(tokens.size()));
  for (const int32_t id : ordinary_first(tokens, specials.ids()))
    if (!tokens[id].empty()) by_bytes.emplace(tokens[id], id);
  PairMap<size_t> seen(lines.size());
  std::vector<BpeMerge> merges;
  merges.reserve(lines.size());
  for (const MergeLine& m : lines) {
    const auto id_of = [&](const std::string& bytes, const char* what) {
      const auto found = by_bytes.find(bytes);
      if (found == by_bytes.end()) {
        const std::string shown = bytes_to_printable(bytes);
        if (specials.index_of(shown) >= 0)
          fail("{}: {}{} is a special token, which no merge can use or make", name(m.line), what, quote_token(shown));
        fail("{}: {}{} is not in {}", name(m.line), what, quote_token(shown), vocab);
      }
      return found->second;
    };
    const int32_t left = id_of(m.left, ""), right = id_of(m.right, "");
    const size_t first = seen.insert(pair_key(left, right), m.line);
    if (first != m.line) fail("{}: the same merge stands in {} already", name(m.line), name(first));
    merges.push_back({left, right, id_of(m.left + m.right, "the merge's result ")});
  }
  return merges;
}

}  // namespace tally
