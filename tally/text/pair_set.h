// The pairs of tokens that a token is last merged from, with that token and the rank of that merge: asked for every two
// neighbours, and mostly not there, which a filter of about 16 bits a pair says of 15 in 16 of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tally/base/huge_pages.h"

namespace tally {

class PairSet {
 public:
  explicit PairSet(size_t pairs = 0)
      : filter_shift_(64 - std::max(6, static_cast<int>(std::bit_width(pairs)) + 4)),
        filter_(size_t{1} << (58 - filter_shift_), 0),
        places_(pairs + pairs / 2 + 8) {}

  struct Found {
    uint32_t made = 0;  // the rank + 1; 0: not there
    int32_t token = -1;
  };
  // `made` > 0; the pairs differ.
  void insert(int32_t left, int32_t right, Found found) {
    const uint64_t hash = hash_of(left, right);
    filter_[hash >> filter_shift_ >> 6] |= uint64_t{1} << (hash >> filter_shift_ & 63);
    size_t i = place_of(hash);
    while (places_[i].found.made != 0) i = i + 1 == places_.size() ? 0 : i + 1;
    places_[i] = {left, right, found};
  }
  Found find(int32_t left, int32_t right) const {
    const uint64_t hash = hash_of(left, right);
    if ((filter_[hash >> filter_shift_ >> 6] >> (hash >> filter_shift_ & 63) & 1) == 0) return {};
    for (size_t i = place_of(hash);; i = i + 1 == places_.size() ? 0 : i + 1) {
      const Place& place = places_[i];
      if ((place.left == left && place.right == right) || place.found.made == 0) return place.found;
    }
  }

 private:
  struct Place {
    int32_t left = 0, right = 0;
    Found found;  // not there: empty
  };
  static uint64_t hash_of(int32_t left, int32_t right) {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return (key ^ (key >> 31)) * 0xD6E8FEB86659FD93u;
  }
  // Other bits of the hash than the filter's are as good.
  size_t place_of(uint64_t hash) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash * 0x9E3779B97F4A7C15u) * places_.size()) >> 64);
  }

  int filter_shift_;
  HugeVector<uint64_t> filter_;
  HugeVector<Place> places_;
};

}  // namespace tally
