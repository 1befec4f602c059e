// What the encoder is derived from a vocabulary; see bpe.h.
#include <algorithm>

#include "tally/base/error.h"
#include "tally/text/bpe.h"

namespace tally {

BpeModel::BpeModel(const TokenTable& tokens, std::vector<BpeMerge> merges, std::span<const int32_t> specials,
                   BpeRules rules)
    : rules_(rules), merges_(std::move(merges)) {
  if (rules_.merge_by_id) rules_.ignore_merges = true;
  choose_bytes(tokens, specials);
  if (rules_.merge_by_id) merge_all_pairs(tokens, specials);
  table_ = MergeTable(merges_, rules_.merge_by_id);
  find_parts(tokens);
  index(tokens, specials);
}

void BpeModel::choose_bytes(const TokenTable& tokens, std::span<const int32_t> specials) {
  byte_ids_.fill(-1);
  for (const int32_t id : ordinary_first(tokens, specials)) {
    if (tokens[id].size() != 1) continue;
    int32_t& of_byte = byte_ids_[static_cast<unsigned char>(tokens[id][0])];
    if (of_byte < 0) of_byte = id;
  }
  all_bytes_ = std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
}

// Every way to cut a token into two tokens is a merge.
void BpeModel::merge_all_pairs(const TokenTable& tokens, std::span<const int32_t> specials) {
  TALLY_ASSERT(merges_.empty());
  std::vector<bool> special(static_cast<size_t>(tokens.size()), false);
  for (const int32_t id : specials) special[static_cast<size_t>(id)] = true;
  WordMap short_ids(static_cast<size_t>(tokens.size()));
  std::unordered_map<std::string_view, int32_t> long_ids;
  std::vector<ByteTrie::Entry> entries;
  for (int32_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    if (special[static_cast<size_t>(id)] || bytes.empty()) continue;
    const bool is_new =
        bytes.size() > kKeyBytes ? long_ids.emplace(bytes, id).second : short_ids.insert(PieceKey::of(bytes), id);
    if (is_new) entries.push_back({bytes, id});
  }
  const auto id_of = [&](std::string_view bytes) {
    if (bytes.size() <= kKeyBytes) return short_ids.find(PieceKey::of(bytes));
    const auto found = long_ids.find(bytes);
    return found == long_ids.end() ? -1 : found->second;
  };
  trie_ = ByteTrie(entries);
  for (const auto& [bytes, id] : entries) {
    for (size_t cut = bytes.size() - 1; cut > 0; --cut) {
      const ByteTrie::Match left = trie_.longest(bytes.data(), cut);
      if (left.token < 0) break;
      cut = left.length;
      if (const int32_t right = id_of(bytes.substr(cut)); right >= 0) merges_.push_back({left.token, right, id});
    }
  }
}

void BpeModel::set_parts(int32_t token, int32_t left, int32_t right, uint32_t rank) {
  const auto t = static_cast<size_t>(token), l = static_cast<size_t>(left), r = static_cast<size_t>(right);
  parts_[t] = {left, right, rank + 1, 0};
  made_[t] = rank + 1;
  odd_[t] = odd_[l] || odd_[r] || made_[l] >= rank + 1 || made_[r] >= rank + 1;  // kNever is greater
  any_odd_ = any_odd_ || odd_[t];
}

// The last merge of each token. Most tokens come from two that are known already and stand apart until that merge; the
// rest is merged from bytes.
void BpeModel::find_parts(const TokenTable& tokens) {
  const auto n = static_cast<size_t>(tokens.size());
  parts_.assign(n, {-1, -1, 0, 0});
  made_.assign(n, kNever);
  odd_.assign(n, false);
  for (const int32_t id : byte_ids_)
    if (id >= 0) made_[static_cast<size_t>(id)] = 0;
  for (size_t i = 0; i < merges_.size(); ++i) {
    const BpeMerge& m = merges_[i];
    const auto l = static_cast<size_t>(m.left), r = static_cast<size_t>(m.right);
    if (reachable(m.result) || !reachable(m.left) || !reachable(m.right) || odd_[l] || odd_[r]) continue;
    const MergeTable::Merged merged = table_.find(m.left, m.right);
    const auto made = [this](int32_t left, int32_t right) { return table_.find(left, right).rank + 1; };
    if (merged.token == m.result && apart_before(m.left, m.right, made))
      set_parts(m.result, m.left, m.right, merged.rank);
  }
  std::vector<int32_t> symbols;
  std::vector<bool> tried(n, false);
  for (const BpeMerge& m : merges_) {
    const std::string_view bytes = tokens[m.result];
    if (reachable(m.result) || tried[static_cast<size_t>(m.result)]) continue;
    tried[static_cast<size_t>(m.result)] = true;
    symbols.clear();
    for (const char c : bytes) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    if (bytes.empty() || std::find(symbols.begin(), symbols.end(), -1) != symbols.end()) continue;
    const MergeTable::Last last = table_.merge(symbols);
    if (symbols.size() == 1 && symbols[0] == m.result && last.left >= 0)
      set_parts(m.result, last.left, last.right, last.rank);
  }
}

void BpeModel::index(const TokenTable& tokens, std::span<const int32_t> specials) {
  const auto n = static_cast<size_t>(tokens.size());
  std::vector<ByteTrie::Entry> entries;
  words_ = WordMap(n);
  shorter_.assign(n, {-1, 0});
  for (int32_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    shorter_[static_cast<size_t>(id)].length = static_cast<uint32_t>(bytes.size());
    if (!reachable(id)) continue;
    entries.push_back({bytes, id});
    if (bytes.size() <= kKeyBytes) words_.insert(PieceKey::of(bytes), id);
  }
  trie_ = ByteTrie(entries);
  joined_ = PairSet(entries.size());
  for (const auto& [bytes, id] : entries)
    if (const Parts& parts = parts_[static_cast<size_t>(id)]; parts.made > 0) {
      joined_.insert(parts.left, parts.right, {parts.made, id});
      parts_[static_cast<size_t>(parts.left)].followers |= follower_bit(parts.right);
    }
  byte_pairs_.resize(size_t{1} << 16);
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const int32_t left = byte_ids_[static_cast<size_t>(a)], right = byte_ids_[static_cast<size_t>(b)];
      if (left >= 0 && right >= 0)
        byte_pairs_[byte_pair(static_cast<char>(a), static_cast<char>(b))] = joins(left, right);
    }
  for (const auto& [bytes, id] : entries)
    if (bytes.size() > 1) shorter_[static_cast<size_t>(id)].token = trie_.longest(bytes.data(), bytes.size() - 1).token;
  if (!rules_.ignore_merges) return;
  std::vector<bool> special(n, false);
  for (const int32_t id : specials) special[static_cast<size_t>(id)] = true;
  for (int32_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    if (reachable(id) || special[static_cast<size_t>(id)] || bytes.empty()) continue;
    if (bytes.size() <= kKeyBytes) {
      words_.insert(PieceKey::of(bytes), id);
    } else if (trie_.longest(bytes.data(), bytes.size()).length != bytes.size()) {
      long_words_.emplace(bytes, id);
    }
  }
}

}  // namespace tally
