// Merging by scan, by heap, and the two look-ups before them; see bpe.h.
#include "tally/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include "tally/base/error.h"
#include "tally/text/pretokenize.h"

namespace tally {
namespace {

constexpr size_t kScanBytes = 96;     // longer pieces use the heap
constexpr size_t kCacheSlots = 8192;  // power of two; 56 bytes each
constexpr size_t kScratchKeepBytes = 1 << 20;

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
PieceKey key_of(std::string_view piece) {
  const char* p = piece.data();
  const size_t n = piece.size();
  const auto length = static_cast<uint32_t>(n);
  if (n >= 8) return {load8(p), load8(p + n - 8), length};
  if (n >= 4) return {load4(p) | (load4(p + n - 4) << 32), 0, length};
  const auto byte = [p](size_t i) { return uint64_t{static_cast<unsigned char>(p[i])}; };
  return {byte(0) | (byte(n / 2) << 8) | (byte(n - 1) << 16), 0, length};
}

uint64_t hash_of(const PieceKey& key) {
  const auto product = static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15u) *
                       (key.high ^ (uint64_t{key.length} << 56) ^ 0xD6E8FEB86659FD93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

BpeModel::BpeModel(const TokenTable& tokens, std::vector<BpeMerge> merges)
    : merges_(std::move(merges)), ranks_(merges_.size()) {
  if (merges_.size() >= kNoRank) fail("{} merges are more than ranks can count", merges_.size());
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < tokens.size(); ++id)
    if (tokens[id].size() == 1) byte_ids_[static_cast<unsigned char>(tokens[id][0])] = id;
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const BpeMerge& m = merges_[rank];
    ranks_.insert(pair_key(m.left, m.right), {static_cast<uint32_t>(rank), m.result});
  }
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
    size_t i = hash_of(key) & (words_.size() - 1);
    while (words_[i].key.length != 0) i = (i + 1) & (words_.size() - 1);
    words_[i] = {key, id};
  }
}

const BpeModel::Word* BpeModel::find_word(const PieceKey& key) const {
  const size_t mask = words_.size() - 1;
  for (size_t i = hash_of(key) & mask;; i = (i + 1) & mask) {
    if (words_[i].key == key) return &words_[i];
    if (words_[i].key.length == 0) return nullptr;
  }
}

BpeModel::Merged BpeModel::merge_of(int32_t left, int32_t right) const {
  const Merged* found = ranks_.find(pair_key(left, right));
  return found == nullptr ? Merged{kNoRank, -1} : *found;
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
  for (size_t i = 0; i + 1 < n; ++i) with_next[i] = merge_of(ids[i], ids[i + 1]);
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

// A heap entry is rank << 32 | position. It is stale when the symbol at the position has another rank by now; a symbol
// that was merged into its left neighbour has rank kNoRank.
void BpeModel::merge_by_heap(std::string_view piece, std::vector<int32_t>& out, BpeScratch& s) const {
  const size_t n = piece.size();
  if (n >= kNoRank) fail("a piece of text without a break has {} bytes; at most {} can be encoded", n, kNoRank - 1);
  constexpr uint32_t kEnd = kNoRank;
  s.ids.resize(n), s.next.resize(n), s.previous.resize(n), s.rank.assign(n, kNoRank), s.heap.clear();
  for (size_t i = 0; i < n; ++i) {
    s.ids[i] = id_of_byte(piece[i]);
    s.next[i] = i + 1 < n ? static_cast<uint32_t>(i + 1) : kEnd;
    s.previous[i] = i > 0 ? static_cast<uint32_t>(i - 1) : kEnd;
  }
  const auto entry = [](uint32_t rank, uint32_t at) { return (uint64_t{rank} << 32) | at; };
  for (uint32_t i = 0; i + 1 < n; ++i) {
    s.rank[i] = merge_of(s.ids[i], s.ids[i + 1]).rank;
    if (s.rank[i] != kNoRank) s.heap.push_back(entry(s.rank[i], i));
  }
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  const auto rate = [&](uint32_t at) {
    s.rank[at] = s.next[at] == kEnd ? kNoRank : merge_of(s.ids[at], s.ids[s.next[at]]).rank;
    if (s.rank[at] == kNoRank) return;
    s.heap.push_back(entry(s.rank[at], at));
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto at = static_cast<uint32_t>(top), rank = static_cast<uint32_t>(top >> 32);
    if (s.rank[at] != rank) continue;
    const uint32_t gone = s.next[at], after = s.next[gone];
    s.ids[at] = merges_[rank].result;
    s.next[at] = after;
    s.rank[gone] = kNoRank;
    if (after != kEnd) s.previous[after] = at;
    rate(at);
    if (s.previous[at] != kEnd) rate(s.previous[at]);
  }
  for (uint32_t at = 0; at != kEnd; at = s.next[at]) out.push_back(s.ids[at]);
}

void BpeModel::encode_uncached(std::string_view piece, std::vector<int32_t>& out, BpeScratch& scratch) const {
  if (piece.size() <= kScanBytes) {
    merge_by_scan(piece, out);
  } else {
    merge_by_heap(piece, out, scratch);
  }
}

void BpeModel::encode_piece(std::string_view piece, std::vector<int32_t>& out, BpeScratch& scratch) const {
  if (piece.size() > kKeyBytes) return encode_uncached(piece, out, scratch);
  const PieceKey key = key_of(piece);
  if (const Word* word = find_word(key)) {
    out.push_back(word->id);
    return;
  }
  if (scratch.cache.empty()) scratch.cache.resize(kCacheSlots);
  BpeScratch::CachedPiece& cached = scratch.cache[(hash_of(key) >> 20) & (kCacheSlots - 1)];
  if (cached.key == key) {
    out.insert(out.end(), cached.ids.begin(), cached.ids.begin() + cached.count);
    return;
  }
  const size_t before = out.size();
  merge_by_scan(piece, out);
  const size_t count = out.size() - before;
  if (count > cached.ids.size()) return;
  cached.key = key, cached.count = static_cast<int32_t>(count);
  std::copy(out.begin() + static_cast<ptrdiff_t>(before), out.end(), cached.ids.begin());
}

void BpeModel::encode_text(std::string_view text, std::vector<int32_t>& out, BpeScratch& scratch) const {
  for_each_piece(text, [&](std::string_view piece) { encode_piece(piece, out, scratch); });
}

std::unique_ptr<BpeScratch> BpeScratchPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<BpeScratch>();
  std::unique_ptr<BpeScratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

void BpeScratchPool::give(std::unique_ptr<BpeScratch> scratch) {
  if (scratch->heap.capacity() * 8 + scratch->ids.capacity() * 16 > kScratchKeepBytes) {
    BpeScratch fresh;
    fresh.cache.swap(scratch->cache);
    *scratch = std::move(fresh);
  }
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

}  // namespace tally
