// See bpe_text.h. The ids of a cached piece are copied four at a time, whatever their number, so that only a piece that
// is not in the cache costs a branch.
#include "tally/text/bpe_text.h"

#include <algorithm>
#include <cstring>

namespace tally {

BpeTextEncoder::BpeTextEncoder(const BpeModel& model, std::string_view text, std::vector<int32_t>* out,
                               BpeScratch& scratch)
    : model_(model), scratch_(scratch), out_(out) {
  if (scratch.cache.empty()) {
    scratch.cache.resize(kCacheSlots);
    scratch.long_cache.resize(kLongSlots);
    scratch.found.resize(kBuffer);
  }
  cache_ = scratch.cache.data();
  to_ = scratch.found.data();
  safe_ = text.size() >= 16 ? text.data() + (text.size() - 16) : nullptr;
}

void BpeTextEncoder::drain(int32_t* end) {
  const int32_t* begin = scratch_.found.data();
  count_ += end - begin;
  if (out_ != nullptr) out_->insert(out_->end(), begin, static_cast<const int32_t*>(end));
}

int32_t* BpeTextEncoder::put(std::span<const int32_t> ids, int32_t* to) {
  if (ids.size() > kBuffer / 2) {  // longer than what is left: the buffer first, then straight on
    drain(to);
    count_ += static_cast<int64_t>(ids.size());
    if (out_ != nullptr) out_->insert(out_->end(), ids.begin(), ids.end());
    return scratch_.found.data();
  }
  if (to + ids.size() + 4 * kBatch > scratch_.found.data() + kBuffer) {
    drain(to);
    to = scratch_.found.data();
  }
  return std::copy(ids.begin(), ids.end(), to);
}

int32_t* BpeTextEncoder::encode_missing(const Waiting& w, int32_t* to) {
  const std::string_view piece = w.piece;
  if (piece.size() <= kKeyBytes) {
    if (const int32_t token = model_.words_.find(w.key, w.hash); token >= 0) {
      cache_[w.hash & kCacheMask] = {w.key, {token, 0, 0}, 1};
      *to = token;
      return to + 1;
    }
  }
  std::array<int32_t, 64> small;
  BpeScratch::LongPiece* slot = nullptr;
  if (piece.size() <= sizeof(BpeScratch::LongPiece::bytes)) {
    uint64_t hash = w.hash;
    if (piece.size() > kKeyBytes) {
      PieceKey head = PieceKey::read(piece.data(), kKeyBytes),
               tail = PieceKey::of(piece.substr(piece.size() - kKeyBytes));
      head.high ^= piece.size() << 48;
      hash = head.hash() ^ tail.hash() * 3;
    }
    slot = &scratch_.long_cache[(hash >> 20) & (kLongSlots - 1)];
    if (slot->length == piece.size() && std::memcmp(slot->bytes.data(), piece.data(), piece.size()) == 0)
      return put({slot->ids.data(), slot->count}, to);
  }
  const std::span<const int32_t> ids = model_.encode_anew(piece, small, scratch_);
  if (piece.size() <= kKeyBytes && ids.size() <= 3) {
    BpeScratch::CachedPiece& cached = cache_[w.hash & kCacheMask];
    cached.key = w.key;
    std::copy(ids.begin(), ids.end(), cached.ids.begin());
    cached.count = static_cast<uint32_t>(ids.size());
  } else if (slot != nullptr && ids.size() <= slot->ids.size()) {
    std::memcpy(slot->bytes.data(), piece.data(), piece.size());
    slot->length = static_cast<uint16_t>(piece.size());
    std::copy(ids.begin(), ids.end(), slot->ids.begin());
    slot->count = static_cast<uint16_t>(ids.size());
  }
  return put(ids, to);
}

inline void BpeTextEncoder::prefetch_missing(const Waiting& w) const {
  if (w.piece.size() <= kKeyBytes) model_.words_.prefetch(w.hash);
}

void BpeTextEncoder::advance() {
  for (size_t i = 0; i < n_collected_; ++i)
    if (cache_[collected_[i].hash & kCacheMask].key != collected_[i].key) prefetch_missing(collected_[i]);
  encode_waiting();
  std::swap(collected_, waiting_);
  n_waiting_ = n_collected_;
  n_collected_ = 0;
}

void BpeTextEncoder::encode_waiting() {
  int32_t* to = to_;
  if (to + 4 * kBatch > scratch_.found.data() + kBuffer) {
    drain(to);
    to = scratch_.found.data();
  }
  const size_t n = n_waiting_;
  for (size_t i = 0; i < n; ++i) {
    const Waiting& w = waiting_[i];
    const BpeScratch::CachedPiece& cached = cache_[w.hash & kCacheMask];
    if (cached.key == w.key) [[likely]] {
      std::memcpy(to, cached.ids.data(), 16);
      to += cached.count;
    } else {
      to = encode_missing(w, to);
    }
  }
  to_ = to;
  n_waiting_ = 0;
}

void BpeTextEncoder::finish() {
  advance();
  advance();
  drain(to_);
  to_ = scratch_.found.data();
}

}  // namespace tally
