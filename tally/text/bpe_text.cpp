// See bpe_text.h. The ids of a cached piece are copied four at a time, whatever their number, so that only a piece that
// is not in the cache costs a branch.
#include "tally/text/bpe_text.h"

#include <algorithm>
#include <cstring>

namespace tally {

BpeTextEncoder::BpeTextEncoder(const BpeModel& model, std::string_view text, std::vector<int32_t>* out,
                               BpeScratch& scratch)
    : model_(model), scratch_(scratch), out_(out) {
  if (scratch.bits == 0) scratch.make_room();
  scratch.found.resize(kBuffer);
  use_caches();
  to_ = scratch.found.data();
  safe_ = text.size() >= 16 ? text.data() + (text.size() - 16) : nullptr;
}

void BpeTextEncoder::use_caches() {
  cache_ = scratch_.cache.data();
  cache_mask_ = scratch_.cache.size() - 1;
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

BpeScratch::LongPiece& BpeTextEncoder::long_place(std::string_view piece) {
  return scratch_.long_cache[BpeScratch::long_hash(piece) & (scratch_.long_cache.size() - 1)];
}

int32_t* BpeTextEncoder::encode_missing(const Waiting& w, int32_t* to) {
  ++scratch_.misses;
  const std::string_view piece = w.piece;
  BpeScratch::CachedPiece& cached = cache_[w.hash & cache_mask_];
  const bool is_short = piece.size() <= kKeyBytes, is_long_place = piece.size() <= sizeof(BpeScratch::LongPiece::bytes);
  if (is_short ? cached.key == w.key.marked() : is_long_place) {
    const BpeScratch::LongPiece& place = long_place(piece);
    if (place.length == piece.size() && std::memcmp(place.bytes.data(), piece.data(), piece.size()) == 0)
      return put({place.ids.data(), place.count}, to);
  } else if (is_short) {
    if (const int32_t token = model_.words_.find(w.key, w.hash); token >= 0) {
      cached = {w.key, {token, 0, 0}, 1};
      *to = token;
      return to + 1;
    }
  }
  std::array<int32_t, 64> small;
  const std::span<const int32_t> ids = model_.encode_anew(piece, small, scratch_);
  if (is_short && ids.size() <= cached.ids.size()) {
    cached.key = w.key;
    std::copy(ids.begin(), ids.end(), cached.ids.begin());
    cached.count = static_cast<uint32_t>(ids.size());
  } else if (BpeScratch::LongPiece* place = is_long_place ? &long_place(piece) : nullptr;
             place != nullptr && ids.size() <= place->ids.size()) {
    if (is_short) cached = {w.key.marked(), {}, 0};
    std::memcpy(place->bytes.data(), piece.data(), piece.size());
    place->length = static_cast<uint16_t>(piece.size());
    std::copy(ids.begin(), ids.end(), place->ids.begin());
    place->count = static_cast<uint16_t>(ids.size());
  }
  return put(ids, to);
}

inline void BpeTextEncoder::prefetch_missing(const Waiting& w) const {
  if (w.piece.size() <= kKeyBytes) model_.words_.prefetch(w.hash);
}

void BpeTextEncoder::advance() {
  for (size_t i = 0; i < n_collected_; ++i)
    if (cache_[collected_[i].hash & cache_mask_].key != collected_[i].key) prefetch_missing(collected_[i]);
  encode_waiting();
  if (scratch_.misses > scratch_.cache.size() && scratch_.bits < scratch_.most_bits) {
    scratch_.make_room();
    use_caches();
  }
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
    const BpeScratch::CachedPiece& cached = cache_[w.hash & cache_mask_];
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
