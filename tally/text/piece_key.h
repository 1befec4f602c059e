// A short piece of text as a value: its bytes and its length in 16 bytes, with a hash. Made without branches on the
// length, which changes from piece to piece.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tally/base/huge_pages.h"

namespace tally {

inline constexpr size_t kKeyBytes = 15;  // the longest piece that is a key; one more byte holds the length

struct PieceKey {
  static constexpr uint64_t kMark = uint64_t{1} << 63;
  uint64_t low = 0, high = 0;  // all zero: no piece
  bool operator==(const PieceKey&) const = default;
  // For what is known of a piece beside the key itself; unequal to every key of a piece.
  PieceKey marked() const { return {low, high | kMark}; }
  PieceKey unmarked() const { return {low, high & ~kMark}; }
  // Unequal to every key of a piece, marked or not, and to the empty one.
  static constexpr PieceKey never() { return {0, ~uint64_t{0}}; }

  // 1 to 15 bytes at p, where 16 can be read.
  static PieceKey read(const char* p, size_t length) {
    static_assert(std::endian::native == std::endian::little, "the bytes behind the piece are cut off at the high end");
    PieceKey key;
    std::memcpy(&key.low, p, 8);
    std::memcpy(&key.high, p + 8, 8);
    const uint64_t low_bits = length < 8 ? 8 * length : 63, high_bits = length > 8 ? 8 * (length - 8) : 0;
    const uint64_t low_mask = length < 8 ? (uint64_t{1} << low_bits) - 1 : ~uint64_t{0};
    key.low &= low_mask;
    key.high = (key.high & ((uint64_t{1} << high_bits) - 1)) | (uint64_t{length} << 56);
    return key;
  }
  static PieceKey of(std::string_view piece) {
    char padded[16] = {};
    std::memcpy(padded, piece.data(), piece.size());
    return read(padded, piece.size());
  }

  uint64_t hash() const {
    const auto product = static_cast<unsigned __int128>(low ^ 0x9E3779B97F4A7C15u) * (high ^ 0xD6E8FEB86659FD93u);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
};

// Whole pieces that are tokens: open addressing, 20 bytes a place.
class WordMap {
 public:
  explicit WordMap(size_t most = 0) : places_(2 * most + 8) {}
  bool insert(const PieceKey& key, int32_t token) {  // false: it is there already
    size_t i = place_of(key.hash());
    for (; places_[i].token >= 0; i = after(i))
      if (places_[i].is(key)) return false;
    places_[i] = {{key.low, key.high}, token};
    return true;
  }
  int32_t find(const PieceKey& key, uint64_t hash) const {  // -1: none
    for (size_t i = place_of(hash);; i = after(i))
      if (places_[i].is(key) || places_[i].token < 0) return places_[i].token;
  }
  int32_t find(const PieceKey& key) const { return find(key, key.hash()); }
  void prefetch(uint64_t hash) const {
    const Place* p = &places_[place_of(hash)];
    __builtin_prefetch(p), __builtin_prefetch(p + 2);  // a search goes on over about as many
  }

 private:
  struct __attribute__((packed, aligned(4))) Place {
    uint64_t key[2] = {0, 0};
    int32_t token = -1;
    bool is(const PieceKey& k) const { return key[0] == k.low && key[1] == k.high; }
  };
  size_t after(size_t i) const { return i + 1 == places_.size() ? 0 : i + 1; }
  size_t place_of(uint64_t hash) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash) * places_.size()) >> 64);
  }
  HugeVector<Place> places_;
};

}  // namespace tally
