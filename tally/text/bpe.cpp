// Backtracking, and whether two tokens stand apart; see bpe.h.
#include "tally/text/bpe.h"

#include <algorithm>

#include "tally/base/error.h"

namespace tally {
namespace {

constexpr size_t kScratchKeepBytes = size_t{1} << 20;

// What is remembered of a pair of tokens: the pair and the answer, one bit.
uint64_t apart_question(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | (uint64_t{static_cast<uint32_t>(right)} << 1);
}
size_t apart_place(uint64_t question, const BpeScratch& scratch) {
  return (question * 0x9E3779B97F4A7C15u) >> (64 - scratch.bits);
}

}  // namespace

int32_t BpeModel::id_of_byte(char byte) const {
  const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
  if (id < 0)
    fail("byte 0x{:02x} has no token in this vocabulary; it must hold all bytes that the text has",
         static_cast<unsigned char>(byte));
  return id;
}

bool BpeModel::parts_apart(int32_t left, int32_t right) const {
  if (joins(left, right).made != 0) return false;
  return apart_before(left, right, [this](int32_t l, int32_t r) { return joins(l, r).made; });
}

bool BpeModel::merged_apart(int32_t left, int32_t right) const {
  std::vector<int32_t> symbols;
  const auto spell = [&](int32_t token) {  // the bytes of a token, by its parts
    std::vector<int32_t> open{token};
    while (!open.empty()) {
      const int32_t t = open.back();
      open.pop_back();
      const Parts& p = parts_[static_cast<size_t>(t)];
      if (p.made == 0) {
        symbols.push_back(t);
      } else {
        open.push_back(p.right), open.push_back(p.left);
      }
    }
  };
  spell(left), spell(right);
  table_.merge(symbols);
  return symbols.size() == 2 && symbols[0] == left && symbols[1] == right;
}

bool BpeModel::apart(int32_t left, int32_t right, BpeScratch& scratch) const {
  const uint64_t question = apart_question(left, right);
  uint64_t& known = scratch.apart[apart_place(question, scratch)];
  if ((known | 1) == (question | 1)) return (known & 1) != 0;
  const bool odd = any_odd_ && (odd_[static_cast<size_t>(left)] || odd_[static_cast<size_t>(right)]);
  const bool answer = odd ? merged_apart(left, right) : parts_apart(left, right);
  known = question | static_cast<uint64_t>(answer);
  return answer;
}

// `ids` holds piece.size() places, `dead` one bit for each place in the piece and its end, all zero.
size_t BpeModel::backtrack(std::string_view piece, int32_t* ids, uint64_t* dead, BpeScratch& scratch) const {
  if (scratch.bits == 0) scratch.make_room();
  const auto is_dead = [dead](size_t at) { return (dead[at / 64] >> (at % 64) & 1) != 0; };
  size_t at = 0, n = 0;
  while (at < piece.size()) {
    const ByteTrie::Match match = trie_.longest(piece.data() + at, piece.size() - at);
    int32_t token = match.token;
    size_t length = match.length;
    while (is_dead(at + length) || (n > 0 && !apart(ids[n - 1], token, scratch))) {
      token = shorter_[static_cast<size_t>(token)].token;
      while (token < 0) {
        TALLY_ASSERT(n > 0);
        dead[at / 64] |= uint64_t{1} << (at % 64);
        const Shorter& before = shorter_[static_cast<size_t>(ids[--n])];
        at -= before.length;
        token = before.token;
      }
      length = shorter_[static_cast<size_t>(token)].length;
    }
    ids[n++] = token;
    at += length;
  }
  return n;
}

// Pair by pair: for a short piece that is no word this looks up less than backtracking does, and what is asked for
// most, pairs of bytes and of common tokens, is in the processor's cache. joined_ has all pairs that come to stand side
// by side and merge: their bytes alone would be merged alike, so it is the last merge of the token they make.
size_t BpeModel::merge_short(std::string_view piece, int32_t* ids) const {
  std::array<PairSet::Found, kKeyBytes> pairs;  // of each token and the next
  const size_t bytes = piece.size();
  for (size_t i = 0; i < bytes; ++i) ids[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < bytes; ++i) pairs[i] = byte_pairs_[byte_pair(piece[i], piece[i + 1])];
  size_t n = bytes;
  while (n > 1) {
    size_t at = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].made - 1 < pairs[at].made - 1) at = i;  // none is 0 and comes last
    if (pairs[at].made == 0) break;
    ids[at] = pairs[at].token;
    --n;
    for (size_t i = at + 1; i < n; ++i) ids[i] = ids[i + 1], pairs[i - 1] = pairs[i];
    if (at > 0) pairs[at - 1] = joins(ids[at - 1], ids[at]);
    if (at + 1 < n) pairs[at] = joins(ids[at], ids[at + 1]);
  }
  return n;
}

std::span<const int32_t> BpeModel::encode_anew(std::string_view piece, std::array<int32_t, 64>& small,
                                               BpeScratch& scratch) const {
  if (!all_bytes_)
    for (const char c : piece) id_of_byte(c);
  if (!long_words_.empty() && piece.size() > kKeyBytes) {
    if (const auto found = long_words_.find(std::string(piece)); found != long_words_.end()) {
      small[0] = found->second;
      return {small.data(), 1};
    }
  }
  if (piece.size() <= kKeyBytes) return {small.data(), merge_short(piece, small.data())};
  if (piece.size() < small.size()) {
    uint64_t dead = 0;
    return {small.data(), backtrack(piece, small.data(), &dead, scratch)};
  }
  scratch.ids.resize(piece.size());
  scratch.dead.assign(piece.size() / 64 + 1, 0);
  return {scratch.ids.data(), backtrack(piece, scratch.ids.data(), scratch.dead.data(), scratch)};
}

void BpeModel::encode_piece(std::string_view piece, std::vector<int32_t>& out, BpeScratch& scratch) const {
  if (piece.size() <= kKeyBytes) {
    const PieceKey key = PieceKey::of(piece);
    if (const int32_t token = words_.find(key); token >= 0) return out.push_back(token);
  }
  std::array<int32_t, 64> small;
  const std::span<const int32_t> ids = encode_anew(piece, small, scratch);
  out.insert(out.end(), ids.begin(), ids.end());
}

void BpeModel::encode_piece(std::string_view piece, std::vector<int32_t>& out, const BpeDropout& dropout) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  for (const char c : piece) symbols.push_back(id_of_byte(c));
  table_.merge(symbols, &dropout);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

uint64_t BpeScratch::long_hash(std::string_view piece) {
  if (piece.size() <= kKeyBytes) return PieceKey::of(piece).hash() >> 20;
  PieceKey head = PieceKey::read(piece.data(), kKeyBytes), tail = PieceKey::of(piece.substr(piece.size() - kKeyBytes));
  head.high ^= piece.size() << 48;
  return (head.hash() ^ tail.hash() * 3) >> 20;
}

void BpeScratch::make_room() {
  bits = std::min(bits == 0 ? kLeastBits : bits + 2, most_bits);
  misses = 0;
  const size_t places = size_t{1} << bits;
  HugeVector<CachedPiece> pieces(places);
  for (const CachedPiece& p : cache)
    if (p.key != PieceKey{}) pieces[p.key.unmarked().hash() & (places - 1)] = p;
  cache = std::move(pieces);
  HugeVector<LongPiece> long_pieces(places / 4);
  for (const LongPiece& p : long_cache)
    if (p.length > 0) long_pieces[long_hash({p.bytes.data(), p.length}) & (places / 4 - 1)] = p;
  long_cache = std::move(long_pieces);
  HugeVector<uint64_t> pairs(places, ~uint64_t{0});
  for (const uint64_t known : apart)
    if (known != ~uint64_t{0}) pairs[apart_place(known & ~uint64_t{1}, *this)] = known;
  apart = std::move(pairs);
}

std::unique_ptr<BpeScratch> BpeScratchPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<BpeScratch>(most_bits_);
  std::unique_ptr<BpeScratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

void BpeScratchPool::give(std::unique_ptr<BpeScratch> scratch) {
  if (scratch->bytes() > kScratchKeepBytes) {
    std::vector<int32_t>().swap(scratch->ids);
    std::vector<uint64_t>().swap(scratch->dead);
  }
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

}  // namespace tally
