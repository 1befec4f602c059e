// Byte-pair merges by their definition: of the adjacent pairs that have a merge the one of the lowest rank is merged,
// the leftmost first, until none is left (Sennrich et al. 2016, "Neural machine translation of rare words with subword
// units"). A heap over a linked list, O(n log n). What the fast encoder is derived from, and what dropout runs on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tally/text/pair_map.h"

namespace tally {

struct BpeMerge {
  int32_t left, right, result;  // token ids
};

// Dropout's random numbers: the draws of one piece are a stream of their own.
struct BpeDropout {
  double probability;  // in [0, 1]
  uint64_t seed, stream;
};

class MergeTable {
 public:
  struct Merged {
    uint32_t rank;
    int32_t token;
  };
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  MergeTable() = default;
  // merges[i] has rank i, or the id of its result. Of two merges of one pair the first counts.
  MergeTable(std::span<const BpeMerge> merges, bool rank_by_result);

  // rank is kNoRank when the pair has no merge.
  Merged find(int32_t left, int32_t right) const {
    const Merged* found = ranks_.find(pair_key(left, right));
    return found == nullptr ? Merged{kNoRank, -1} : *found;
  }

  // The last merge that was done; left is -1 when there was none.
  struct Last {
    int32_t left = -1, right = -1;
    uint32_t rank = kNoRank;
  };
  // Merges the symbols; they are replaced by what is left. At most 2^32 - 2.
  Last merge(std::vector<int32_t>& symbols, const BpeDropout* dropout = nullptr) const;

 private:
  PairMap<Merged> ranks_;
};

}  // namespace tally
