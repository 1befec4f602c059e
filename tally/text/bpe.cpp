// Merging by scan, by heap, and the two look-ups before them; see bpe.h.
#include "tally/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include "tally/base/error.h"
#include "tally/text/pattern.h"

namespace tally {
namespace {

constexpr size_t kScanBytes = 96;     // longer pieces use the heap
constexpr size_t kRankBytes = 4096;   // and from here on lists by rank
constexpr size_t kCacheSlots = 8192;  // power of two; 48 bytes each
constexpr size_t kScratchKeepBytes = 1 << 20;
constexpr uint32_t kEnd = ~uint32_t{0};  // no symbol

uint64_t load8(const char* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}
uint64_t load4(const char* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// Overlapping loads: with the length they determine every byte.
inline PieceKey key_of(std::string_view piece) {
  const char* p = piece.data();
  const size_t n = piece.size();
  if (n >= 8) return {load8(p), load8(p + n - 8)};
  if (n >= 4) return {load4(p) | (load4(p + n - 4) << 32), 0};
  const auto byte = [p](size_t i) { return uint64_t{static_cast<unsigned char>(p[i])}; };
  return {byte(0) | (byte(n / 2) << 8) | (byte(n - 1) << 16), 0};
}

inline uint64_t hash_of(const PieceKey& key, size_t length) {
  const auto product = static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15u) *
                       (key.high ^ (uint64_t{length} << 56) ^ 0xD6E8FEB86659FD93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// True when no merge has an operand that a later merge makes.
bool made_in_order(const std::vector<BpeMerge>& merges, int32_t tokens) {
  std::vector<bool> used(static_cast<size_t>(tokens), false);
  for (const BpeMerge& m : merges) {
    if (used[static_cast<size_t>(m.result)]) return false;
    used[static_cast<size_t>(m.left)] = used[static_cast<size_t>(m.right)] = true;
  }
  return true;
}

}  // namespace

BpeModel::BpeModel(const TokenTable& tokens, std::vector<BpeMerge> merges, std::span<const int32_t> specials)
    : merges_(std::move(merges)), ranks_(merges_.size()) {
  if (merges_.size() >= kNoRank) fail("{} merges are more than ranks can count", merges_.size());
  byte_ids_.fill(-1);
  for (const int32_t id : ordinary_first(tokens, specials)) {
    if (tokens[id].size() != 1) continue;
    int32_t& of_byte = byte_ids_[static_cast<unsigned char>(tokens[id][0])];
    if (of_byte < 0) of_byte = id;
  }
  byte_pairs_.assign(256 * 256, {kNoRank, -1});
  const auto byte_of = [&](int32_t id) {  // -1 when the token is not what a byte becomes
    const int byte = tokens[id].size() == 1 ? static_cast<unsigned char>(tokens[id][0]) : -1;
    return byte >= 0 && byte_ids_[static_cast<size_t>(byte)] == id ? byte : -1;
  };
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const BpeMerge& m = merges_[rank];
    const Merged merged{static_cast<uint32_t>(rank), m.result};
    ranks_.insert(pair_key(m.left, m.right), merged);
    const int left = byte_of(m.left), right = byte_of(m.right);
    if (left >= 0 && right >= 0) byte_pairs_[static_cast<size_t>(left * 256 + right)] = merged;
  }
  in_order_ = made_in_order(merges_, tokens.size());
  index_words(tokens);
}

// Only tokens that the merges do make from their bytes may be found without merging.
void BpeModel::index_words(const TokenTable& tokens) {
  words_.resize(std::bit_ceil(std::max<size_t>(16, static_cast<size_t>(tokens.size()) * 2)));
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    const auto known = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
    if (bytes.empty() || bytes.size() > kKeyBytes || !std::all_of(bytes.begin(), bytes.end(), known)) continue;
    ids.clear();
    merge_by_scan(bytes, ids);
    if (ids.size() != 1 || ids[0] != id) continue;
    const PieceKey key = key_of(bytes);
    size_t i = hash_of(key, bytes.size()) & (words_.size() - 1);
    while (words_[i].length != 0) i = (i + 1) & (words_.size() - 1);
    words_[i] = {key, static_cast<uint32_t>(bytes.size()), id};
  }
}

const BpeModel::Word* BpeModel::find_word(const PieceKey& key, size_t length, uint64_t hash) const {
  const size_t mask = words_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Word& w = words_[i];
    if (w.key == key && w.length == length) return &w;
    if (w.length == 0) return nullptr;
  }
}

BpeModel::Merged BpeModel::merge_of(int32_t left, int32_t right) const {
  const Merged* found = ranks_.find(pair_key(left, right));
  return found == nullptr ? Merged{kNoRank, -1} : *found;
}

BpeModel::Merged BpeModel::merge_of_bytes(char left, char right) const {
  return byte_pairs_[size_t{static_cast<unsigned char>(left)} * 256 + static_cast<unsigned char>(right)];
}

int32_t BpeModel::id_of_byte(char byte) const {
  const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
  if (id < 0)
    fail("byte 0x{:02x} has no token in this vocabulary; it must hold all bytes that the text has",
         static_cast<unsigned char>(byte));
  return id;
}

void BpeModel::merge_by_scan(std::string_view piece, std::vector<int32_t>& out) const {
  TALLY_ASSERT(piece.size() <= kScanBytes);
  size_t n = piece.size();
  int32_t ids[kScanBytes];
  Merged with_next[kScanBytes];  // of symbols i and i + 1
  for (size_t i = 0; i < n; ++i) ids[i] = id_of_byte(piece[i]);
  for (size_t i = 0; i + 1 < n; ++i) with_next[i] = merge_of_bytes(piece[i], piece[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (with_next[i].rank < with_next[best].rank) best = i;
    if (with_next[best].rank == kNoRank) break;
    ids[best] = with_next[best].id;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    if (best + 2 < n) std::copy(with_next + best + 2, with_next + n - 1, with_next + best + 1);
    --n;
    if (best + 1 < n) with_next[best] = merge_of(ids[best], ids[best + 1]);
    if (best > 0) with_next[best - 1] = merge_of(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids, ids + n);
}

// A symbol that was merged into its left neighbour, or that has no merge with its right one, has rank kNoRank.
void BpeModel::link_symbols(std::string_view piece, BpeScratch& s) const {
  const size_t n = piece.size();
  if (n >= kEnd) fail("a piece of text without a break has {} bytes; at most {} can be encoded", n, kEnd - 1);
  s.ids.resize(n), s.next.resize(n), s.previous.resize(n), s.rank.assign(n, kNoRank);
  for (size_t i = 0; i < n; ++i) {
    s.ids[i] = id_of_byte(piece[i]);
    s.next[i] = i + 1 < n ? static_cast<uint32_t>(i + 1) : kEnd;
    s.previous[i] = i > 0 ? static_cast<uint32_t>(i - 1) : kEnd;
    if (i + 1 < n) s.rank[i] = merge_of_bytes(piece[i], piece[i + 1]).rank;
  }
}

// Merges the symbol at `at` with its next one; returns the symbol before, or kEnd.
uint32_t BpeModel::merge_at(uint32_t at, uint32_t rank, BpeScratch& s) const {
  const uint32_t gone = s.next[at], after = s.next[gone];
  s.ids[at] = merges_[rank].result;
  s.next[at] = after;
  s.rank[gone] = kNoRank;
  if (after != kEnd) s.previous[after] = at;
  return s.previous[at];
}

uint32_t BpeModel::rate(uint32_t at, BpeScratch& s) const {
  return s.rank[at] = s.next[at] == kEnd ? kNoRank : merge_of(s.ids[at], s.ids[s.next[at]]).rank;
}

// A heap entry is rank << 32 | position; it is stale when the symbol there has another rank by now.
void BpeModel::merge_by_heap(std::string_view piece, BpeScratch& s) const {
  const auto entry = [&s](uint32_t at) { return (uint64_t{s.rank[at]} << 32) | at; };
  s.heap.clear();
  for (uint32_t i = 0; i < piece.size(); ++i)
    if (s.rank[i] != kNoRank) s.heap.push_back(entry(i));
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  const auto push = [&](uint32_t at) {
    if (rate(at, s) == kNoRank) return;
    s.heap.push_back(entry(at));
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto at = static_cast<uint32_t>(top), rank = static_cast<uint32_t>(top >> 32);
    if (s.rank[at] != rank) continue;
    const uint32_t before = merge_at(at, rank, s);
    push(at);
    if (before != kEnd) push(before);
  }
}

// With merges in order a merge only gives pairs of higher rank, so all of one rank are merged in one go, from left to
// right. Only for two equal symbols does that order matter: other pairs cannot overlap.
void BpeModel::merge_by_rank(std::string_view piece, BpeScratch& s) const {
  s.positions.resize(merges_.size());
  const auto push = [&s](uint32_t at) {
    const uint32_t rank = s.rank[at];
    if (rank == kNoRank) return;
    if (s.positions[rank].empty()) {
      s.ranks.push_back(rank);
      std::push_heap(s.ranks.begin(), s.ranks.end(), std::greater<>());
    }
    s.positions[rank].push_back(at);
  };
  for (uint32_t i = 0; i < piece.size(); ++i) push(i);
  while (!s.ranks.empty()) {
    std::pop_heap(s.ranks.begin(), s.ranks.end(), std::greater<>());
    const uint32_t rank = s.ranks.back();
    s.ranks.pop_back();
    std::vector<uint32_t> positions;
    positions.swap(s.positions[rank]);
    if (merges_[rank].left == merges_[rank].right) std::sort(positions.begin(), positions.end());
    for (const uint32_t at : positions) {
      if (s.rank[at] != rank) continue;
      const uint32_t before = merge_at(at, rank, s);
      rate(at, s), push(at);
      if (before != kEnd) rate(before, s), push(before);
    }
  }
}

void BpeModel::encode_uncached(std::string_view piece, std::vector<int32_t>& out, BpeScratch& s) const {
  if (piece.size() <= kScanBytes) return merge_by_scan(piece, out);
  link_symbols(piece, s);
  if (in_order_ && piece.size() >= kRankBytes) {
    merge_by_rank(piece, s);
  } else {
    merge_by_heap(piece, s);
  }
  for (uint32_t at = 0; at != kEnd; at = s.next[at]) out.push_back(s.ids[at]);
}

void BpeModel::encode_piece(std::string_view piece, std::vector<int32_t>& out, BpeScratch& scratch) const {
  if (piece.size() > kKeyBytes) return encode_uncached(piece, out, scratch);
  const PieceKey key = key_of(piece);
  const uint64_t hash = hash_of(key, piece.size());
  if (const Word* word = find_word(key, piece.size(), hash)) {
    out.push_back(word->id);
    return;
  }
  if (scratch.cache.empty()) scratch.cache.resize(kCacheSlots);
  BpeScratch::CachedPiece& cached = scratch.cache[(hash >> 32) & (kCacheSlots - 1)];
  if (cached.key == key && cached.length == piece.size()) {
    out.insert(out.end(), cached.ids.begin(), cached.ids.begin() + cached.count);
    return;
  }
  const size_t before = out.size();
  merge_by_scan(piece, out);
  const size_t count = out.size() - before;
  if (count > cached.ids.size()) return;
  cached.key = key;
  cached.length = static_cast<uint16_t>(piece.size()), cached.count = static_cast<uint16_t>(count);
  std::copy(out.begin() + static_cast<ptrdiff_t>(before), out.end(), cached.ids.begin());
}

void BpeModel::encode_text(std::string_view text, std::vector<int32_t>& out, BpeScratch& scratch) const {
  for_each_piece(Pattern(), text, [&](std::string_view piece) { encode_piece(piece, out, scratch); });
}

size_t BpeScratch::bytes() const {
  return ids.capacity() * 16 + heap.capacity() * 8 + positions.capacity() * sizeof(positions[0]) + ranks.capacity() * 4;
}

std::unique_ptr<BpeScratch> BpeScratchPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<BpeScratch>();
  std::unique_ptr<BpeScratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

void BpeScratchPool::give(std::unique_ptr<BpeScratch> scratch) {
  if (scratch->bytes() > kScratchKeepBytes) {
    BpeScratch fresh;
    fresh.cache.swap(scratch->cache);
    *scratch = std::move(fresh);
  }
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

}  // namespace tally
