// A tokenizer from a .tiktoken file, and back; the format itself is in tiktoken_file.h.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "tally/text/tiktoken_file.h"
#include "tally/text/tokenizer_files.h"

namespace tally {
namespace {

constexpr int32_t kNextId = -1;

// "NAME" or "NAME=ID".
NamedId parse_special(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return {text, kNextId};
  int32_t id = 0;
  const char *begin = text.data() + equals + 1, *end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(begin, end, id);
  if (begin == end || stop != end || status != std::errc() || id < 0) return {text, kNextId};
  return {text.substr(0, equals), id};
}

void require_all_bytes(const TokenTable& tokens, const std::string& name) {
  std::vector<bool> has(256, false);
  for (int32_t id = 0; id < tokens.size(); ++id)
    if (tokens[id].size() == 1) has[static_cast<unsigned char>(tokens[id][0])] = true;
  const auto missing = std::find(has.begin(), has.end(), false);
  if (missing != has.end())
    fail("{}: byte 0x{:02x} has no token; a .tiktoken file has all 256", name, missing - has.begin());
}

// Where the special tokens belong: the table with them, and their ids.
TokenTable place_specials(const TokenTable& ranks, std::vector<NamedId>& specials, const std::string& name) {
  std::unordered_map<std::string_view, int32_t> held;
  for (int32_t id = 0; id < ranks.size(); ++id)
    if (!ranks[id].empty()) held.emplace(ranks[id], id);
  const size_t limit = id_limit(held.size() + specials.size());
  std::vector<std::string_view> at(static_cast<size_t>(ranks.size()));
  for (int32_t id = 0; id < ranks.size(); ++id) at[static_cast<size_t>(id)] = ranks[id];
  for (NamedId& special : specials) {
    if (special.id == kNextId) {
      const auto found = held.find(special.name);
      special.id = found != held.end() ? found->second : static_cast<int32_t>(at.size());
    }
    const auto id = static_cast<size_t>(special.id);
    if (id >= limit)
      fail("{}: special token {} has id {}; with {} tokens it must be below {}", name, quote_token(special.name), id,
           held.size(), limit);
    if (id >= at.size()) at.resize(id + 1);
    if (!at[id].empty() && at[id] != special.name)
      fail("{}: special token {} has id {}, which is {}", name, quote_token(special.name), id, quote_token(at[id]));
    at[id] = special.name;
  }
  TokenTable tokens;
  for (const std::string_view bytes : at) tokens.push_back(bytes);
  return tokens;
}

}  // namespace

Tokenizer read_tiktoken_tokenizer(const fs::path& file, const TokenizerFileOptions& options) {
  const std::string name = file.string();
  const bool by_name = options.pattern.empty();
  const TiktokenEncoding* encoding = find_tiktoken_encoding(by_name ? file.stem().string() : options.pattern);
  if (!by_name && encoding != nullptr && encoding->name == encoding->pattern)
    encoding = nullptr;  // the pattern is meant
  if (by_name && encoding == nullptr)
    fail(
        "{}: a .tiktoken file does not say how text is split, and the name is none of {}: give the pattern and the "
        "special tokens (--pattern cl100k --special '<|endoftext|>')",
        name, tiktoken_encoding_names());
  int32_t count = 0;
  const TokenTable ranks = read_tiktoken(file, &count);
  if (by_name && count != encoding->tokens)
    fail("{}: {} tokens, but {} has {}: the file is cut, or is another one; --pattern {} reads it all the same", name,
         count, encoding->name, encoding->tokens, encoding->pattern);
  require_all_bytes(ranks, name);
  TokenizerParts parts;
  parts.pattern = encoding != nullptr ? Pattern::named(encoding->pattern) : Pattern::named(options.pattern);
  std::vector<NamedId> specials;
  for (const std::string& text : options.specials) specials.push_back(parse_special(text));
  if (options.specials.empty() && encoding != nullptr)
    for (const auto& [token, id] : encoding->specials) specials.push_back({token, id});
  DerivedMerges derived = derive_merges(ranks);
  parts.rules.ignore_merges = !derived.underivable.empty();
  parts.tokens = place_specials(ranks, specials, name);
  parts.specials = special_set(specials, name);
  parts.merges = std::move(derived.merges);
  return naming(name, [&] { return Tokenizer(make_tokenizer(std::move(parts))); });
}

std::string tiktoken_tokenizer_text(const TokenizerImpl& impl) {
  if (!impl.bpe)
    fail("a .tiktoken file is written for bpe only; this is a {} tokenizer", tokenizer_kind_name(impl.kind));
  if (impl.nfc) fail("a .tiktoken file cannot say that text is normalised (NFC)");
  std::vector<bool> special(static_cast<size_t>(impl.tokens.size()), false);
  for (const int32_t id : impl.specials.ids()) special[static_cast<size_t>(id)] = true;
  TokenTable ranks;
  for (int32_t id = 0; id < impl.tokens.size(); ++id)
    ranks.push_back(special[static_cast<size_t>(id)] ? std::string_view() : impl.tokens[id]);
  require_all_bytes(ranks, "a .tiktoken file cannot be written");
  const DerivedMerges derived = derive_merges(ranks);
  if (!impl.bpe->rules().ignore_merges && !derived.underivable.empty())
    fail("a .tiktoken file cannot be written: no merges make token {} (id {}), so tiktoken alone would use it",
         quote_token(impl.tokens[derived.underivable[0]]), derived.underivable[0]);
  PairMap<int32_t> ours(impl.bpe->merges().size());
  int32_t last = -1;
  for (const BpeMerge& m : impl.bpe->merges()) {
    if (special[static_cast<size_t>(m.result)])
      fail("a .tiktoken file cannot be written: merges make the special token {}", quote_token(impl.tokens[m.result]));
    if (m.result < last)
      fail("a .tiktoken file cannot be written: its merges go by ids, and id {} is made after id {} here", m.result,
           last);
    last = m.result;
    ours.insert(pair_key(m.left, m.right), m.result);
  }
  // What other merges there are never comes to pass (tiktoken_file.h).
  for (const BpeMerge& m : derived.merges)
    if (ours.find(pair_key(m.left, m.right)) == nullptr)
      fail("a .tiktoken file cannot be written: tiktoken would merge {} and {}, which has no merge here",
           quote_token(impl.tokens[m.left]), quote_token(impl.tokens[m.right]));
  return tiktoken_text(ranks);
}

}  // namespace tally
