// Reading and writing of .tiktoken files, and their merges; see tiktoken_file.h.
#include "tally/text/tiktoken_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <unordered_map>

#include "tally/base/error.h"
#include "tally/base/file.h"

namespace tally {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// RFC 4648, section 4, with its padding. False when the text is anything else; then `bytes` is unspecified.
bool from_base64(std::string_view text, std::string& bytes) {
  static const std::array<int8_t, 256> values = [] {
    std::array<int8_t, 256> v;
    v.fill(-1);
    for (size_t i = 0; i < kAlphabet.size(); ++i) v[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
    return v;
  }();
  bytes.clear();
  if (text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  text.remove_suffix(padding);
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const int8_t value = values[static_cast<unsigned char>(c)];
    if (value < 0) return false;
    held = (held << 6) | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(held >> bits);
    held &= (1u << bits) - 1;
  }
  return held == 0;  // the bits that padding leaves over
}

void append_base64(std::string_view bytes, std::string& out) {
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u; };
    const uint32_t three = (byte(0) << 16) | (byte(1) << 8) | byte(2);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kAlphabet[(three >> (18 - 6 * k)) & 63];
  }
}

struct Line {
  std::string bytes;
  int32_t rank;
  size_t number;  // from 1
};

Line parse_line(std::string_view text, size_t number, const std::string& name) {
  Line line{{}, 0, number};
  const size_t space = text.find(' ');
  if (space == std::string_view::npos)
    fail("{}:{}: expected a token in base64, one space and its rank, found {}", name, number, quote_token(text));
  const std::string_view token = text.substr(0, space), rank = text.substr(space + 1);
  if (!from_base64(token, line.bytes)) fail("{}:{}: {} is not base64", name, number, quote_token(token));
  if (line.bytes.empty()) fail("{}:{}: the token is empty", name, number);
  const auto [stop, status] = std::from_chars(rank.data(), rank.data() + rank.size(), line.rank);
  if (status != std::errc() || stop != rank.data() + rank.size() || line.rank < 0)
    fail("{}:{}: {} is not a rank", name, number, quote_token(rank));
  return line;
}

std::vector<Line> parse_lines(const std::string& text, const std::string& name) {
  std::vector<Line> lines;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (!line.empty()) lines.push_back(parse_line(line, number, name));
  }
  return lines;
}

// The tokens by their bytes.
using Ranks = std::unordered_map<std::string_view, int32_t>;
constexpr int32_t kNoRank = INT32_MAX;
constexpr size_t kScanBytes = 64;  // longer tokens use a heap

// Merges the bytes of one token; its parts are positions of a string.
class TokenMerger {
 public:
  TokenMerger(const Ranks& ranks, size_t longest) : ranks_(ranks), longest_(longest) {}

  // The two parts that the token arises from: the length of the left one, or 0 when it does not arise.
  size_t split(std::string_view token) { return token.size() <= kScanBytes ? by_scan(token) : by_heap(token); }

 private:
  int32_t rank_of(std::string_view token, size_t begin, size_t end) const {
    if (end > token.size() || end - begin > longest_ || end - begin < 2) return kNoRank;
    const auto found = ranks_.find(token.substr(begin, end - begin));
    return found == ranks_.end() ? kNoRank : found->second;
  }

  size_t by_scan(std::string_view token) const {
    std::array<uint8_t, kScanBytes + 1> starts;  // of the parts, and the end
    std::array<int32_t, kScanBytes> rank;        // of part i with the next
    size_t parts = token.size();
    for (size_t i = 0; i <= parts; ++i) starts[i] = static_cast<uint8_t>(i);
    const auto rate = [&](size_t i) { rank[i] = i + 1 < parts ? rank_of(token, starts[i], starts[i + 2]) : kNoRank; };
    for (size_t i = 0; i < parts; ++i) rate(i);
    while (parts > 2) {
      const size_t best = static_cast<size_t>(std::min_element(rank.begin(), rank.begin() + parts) - rank.begin());
      if (rank[best] == kNoRank) return 0;
      std::copy(starts.begin() + best + 2, starts.begin() + parts + 1, starts.begin() + best + 1);
      std::copy(rank.begin() + best + 1, rank.begin() + parts, rank.begin() + best);
      --parts;
      rate(best);
      if (best > 0) rate(best - 1);
    }
    return starts[1];
  }

  // next_[i] is where the part that starts at i ends; an entry is rank << 32 | start, stale when the rank has changed.
  size_t by_heap(std::string_view token) {
    const size_t n = token.size();
    if (n >= UINT32_MAX) fail("a token of {} bytes is longer than can be merged", n);
    next_.resize(n), previous_.resize(n), rank_.assign(n, kNoRank), heap_.clear();
    const auto rate = [&](size_t at) {
      rank_[at] = next_[at] >= n ? kNoRank : rank_of(token, at, next_[next_[at]]);
      if (rank_[at] == kNoRank) return;
      heap_.push_back((static_cast<uint64_t>(rank_[at]) << 32) | at);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    };
    for (size_t i = 0; i < n; ++i) next_[i] = static_cast<uint32_t>(i + 1), previous_[i] = static_cast<uint32_t>(i - 1);
    for (size_t i = 0; i < n; ++i) rate(i);
    size_t parts = n;
    while (parts > 2 && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t top = heap_.back();
      heap_.pop_back();
      const size_t at = static_cast<uint32_t>(top);
      if (rank_[at] != static_cast<int32_t>(top >> 32)) continue;
      const size_t gone = next_[at];
      next_[at] = next_[gone];
      rank_[gone] = kNoRank;
      if (next_[at] < n) previous_[next_[at]] = static_cast<uint32_t>(at);
      --parts;
      rate(at);
      if (at > 0) rate(previous_[at]);
    }
    return parts == 2 ? next_[0] : 0;
  }

  const Ranks& ranks_;
  size_t longest_;
  std::vector<uint32_t> next_, previous_;
  std::vector<int32_t> rank_;
  std::vector<uint64_t> heap_;
};

}  // namespace

namespace {

// Also every id from 200013 to 201087 as <|reserved_ID|>; 200018 has the name that o200k_base gives it.
std::vector<std::pair<std::string, int32_t>> harmony_specials() {
  std::vector<std::pair<std::string, int32_t>> specials = {
      {"<|startoftext|>", 199998}, {"<|endoftext|>", 199999},  {"<|return|>", 200002}, {"<|constrain|>", 200003},
      {"<|channel|>", 200005},     {"<|start|>", 200006},      {"<|end|>", 200007},    {"<|message|>", 200008},
      {"<|call|>", 200012},        {"<|endofprompt|>", 200018}};
  for (const int32_t id : {200000, 200001, 200004, 200009, 200010, 200011})
    specials.emplace_back(fmt::format("<|reserved_{}|>", id), id);
  for (int32_t id = 200013; id < 201088; ++id)
    if (id != 200018) specials.emplace_back(fmt::format("<|reserved_{}|>", id), id);
  return specials;
}

}  // namespace

const TiktokenEncoding* find_tiktoken_encoding(std::string_view name) {
  static const std::vector<TiktokenEncoding> all = {
      {"gpt2", "gpt2", 50256, {{"<|endoftext|>", 50256}}},
      {"r50k_base", "gpt2", 50256, {{"<|endoftext|>", 50256}}},
      {"p50k_base", "gpt2", 50280, {{"<|endoftext|>", 50256}}},
      {"p50k_edit",
       "gpt2",
       50280,
       {{"<|endoftext|>", 50256}, {"<|fim_prefix|>", 50281}, {"<|fim_middle|>", 50282}, {"<|fim_suffix|>", 50283}}},
      {"cl100k_base",
       "cl100k",
       100256,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", "o200k", 199998, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"o200k_harmony", "o200k", 199998, harmony_specials()},
  };
  for (const TiktokenEncoding& encoding : all)
    if (encoding.name == name) return &encoding;
  return nullptr;
}

std::string tiktoken_encoding_names() {
  return "gpt2, r50k_base, p50k_base, p50k_edit, cl100k_base, o200k_base, o200k_harmony";
}

TokenTable read_tiktoken(const fs::path& path, int32_t* count) {
  const std::string name = path.string();
  const std::vector<Line> lines = parse_lines(text_of_file(path), name);
  if (lines.empty()) fail("{}: the file has no tokens", name);
  std::vector<const Line*> by_rank;
  std::unordered_map<std::string_view, size_t> by_bytes;
  by_bytes.reserve(lines.size());
  for (const Line& line : lines) {
    const auto rank = static_cast<size_t>(line.rank);
    if (rank >= id_limit(lines.size()))
      fail("{}:{}: rank {} is too high for a file of {} tokens; ranks are ids, from 0 on with few gaps", name,
           line.number, line.rank, lines.size());
    if (rank >= by_rank.size()) by_rank.resize(rank + 1, nullptr);
    if (by_rank[rank] != nullptr)
      fail("{}:{}: rank {} stands in line {} already", name, line.number, line.rank, by_rank[rank]->number);
    const auto [other, is_new] = by_bytes.emplace(line.bytes, line.number);
    if (!is_new)
      fail("{}:{}: token {} stands in line {} already", name, line.number, quote_token(line.bytes), other->second);
    by_rank[rank] = &line;
  }
  TokenTable tokens;
  for (const Line* line : by_rank) tokens.push_back(line == nullptr ? std::string_view() : line->bytes);
  if (count != nullptr) *count = static_cast<int32_t>(lines.size());
  return tokens;
}

std::string tiktoken_text(const TokenTable& tokens) {
  std::string out;
  for (int32_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    append_base64(tokens[id], out);
    out += fmt::format(" {}\n", id);
  }
  return out;
}

DerivedMerges derive_merges(const TokenTable& tokens) {
  Ranks ranks;
  ranks.reserve(static_cast<size_t>(tokens.size()));
  size_t longest = 0;
  for (int32_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    ranks.emplace(tokens[id], id);
    longest = std::max(longest, tokens[id].size());
  }
  TokenMerger merger(ranks, longest);
  DerivedMerges derived;
  for (int32_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    if (token.size() < 2) continue;
    const size_t left = merger.split(token);
    const auto a = ranks.find(token.substr(0, left)), b = ranks.find(token.substr(left));
    if (left == 0 || a == ranks.end() || b == ranks.end())
      derived.underivable.push_back(id);
    else
      derived.merges.push_back({a->second, b->second, id});
  }
  return derived;
}

}  // namespace tally
