// Encodes the pieces of a text one after the other: the loop that all the time is spent in. A batch of pieces is
// collected with the places of the cache that they will need, which are then on their way while the rest of the batch
// is scanned. A collected batch waits for the next one: what its pieces that are not in the cache need is loaded
// meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tally/text/bpe.h"

namespace tally {

class BpeTextEncoder {
 public:
  // Appends to `out`, or only counts when it is null. `text` holds all pieces that will be added.
  BpeTextEncoder(const BpeModel& model, std::string_view text, std::vector<int32_t>* out, BpeScratch& scratch);

  void add(std::string_view piece) {  // not empty
    PieceKey key = PieceKey::never();
    if (piece.size() <= kKeyBytes)
      key = piece.data() <= safe_ ? PieceKey::read(piece.data(), piece.size()) : PieceKey::of(piece);
    Waiting& w = collected_[n_collected_];
    const uint64_t hash = key.hash();
    w = {piece, key, hash};
    __builtin_prefetch(&cache_[hash & cache_mask_]);
    if (++n_collected_ == kBatch) advance();
  }
  void finish();  // what is still waiting
  int64_t count() const { return count_; }

 private:
  static constexpr size_t kBatch = 32, kBuffer = 4096;
  struct Waiting {
    std::string_view piece;
    PieceKey key;
    uint64_t hash;
  };

  void advance();
  void encode_waiting();
  void prefetch_missing(const Waiting& waiting) const;
  int32_t* encode_missing(const Waiting& waiting, int32_t* to);
  BpeScratch::LongPiece& long_place(std::string_view piece);
  int32_t* put(std::span<const int32_t> ids, int32_t* to);
  void drain(int32_t* end);
  void use_caches();

  const BpeModel& model_;
  BpeScratch& scratch_;
  BpeScratch::CachedPiece* cache_;
  size_t cache_mask_;
  std::vector<int32_t>* out_;
  const char* safe_;  // 16 bytes can be read from here and before
  int32_t* to_;
  int64_t count_ = 0;
  size_t n_collected_ = 0, n_waiting_ = 0;
  std::array<std::array<Waiting, kBatch>, 2> batches_;
  Waiting* collected_ = batches_[0].data();
  Waiting* waiting_ = batches_[1].data();
};

}  // namespace tally
