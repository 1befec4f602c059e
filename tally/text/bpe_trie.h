// All tokens as a trie over bytes: the longest token that a text starts with, one load a byte. A double array with
// unique bases (Aoe 1989, "An efficient digital search algorithm by using a double-array structure"): the child of a
// node under byte c stands at base ^ c and carries c, which no other node's child there could. The first two bytes
// are one look-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/base/huge_pages.h"

namespace tally {

class ByteTrie {
 public:
  struct Entry {
    std::string_view bytes;  // not empty, all different
    int32_t token;
  };
  ByteTrie() = default;
  explicit ByteTrie(std::vector<Entry> entries);

  struct Match {
    int32_t token;  // -1: none
    uint32_t length;
  };
  // The longest entry that the n > 0 bytes at p start with.
  Match longest(const char* p, size_t n) const {
    const auto byte = [p](size_t i) { return static_cast<unsigned char>(p[i]); };
    Match best{one_[byte(0)], 1};
    if (n < 2) return best;
    uint64_t node = two_[size_t{byte(0)} << 8 | byte(1)];
    for (size_t i = 2;; ++i) {
      if (const auto token = static_cast<int32_t>(node >> kTokenShift); token != 0)
        best = {token - 1, static_cast<uint32_t>(i)};
      if (i == n) return best;
      node = nodes_[base_of(node) ^ byte(i)];
      if ((node & kLabelMask) != (kUsed | byte(i))) return best;
    }
  }

 private:
  // A node: 8 bits label, 1 bit used, 27 bits base, 28 bits token + 1. A node without children has base 0, where
  // nothing stands under its own label.
  static constexpr uint64_t kUsed = 0x100, kLabelMask = 0x1FF;
  static constexpr int kBaseShift = 9, kTokenShift = 36;
  static constexpr size_t kMostNodes = size_t{1} << 27, kMostTokens = (size_t{1} << 28) - 1;
  static size_t base_of(uint64_t node) { return (node >> kBaseShift) & (kMostNodes - 1); }

  struct Builder;
  std::array<int32_t, 256> one_{};
  std::vector<uint64_t> two_;  // by the first two bytes: token and base
  HugeVector<uint64_t> nodes_;
};

}  // namespace tally
