// The byte-level BPE trainer (Sennrich et al. 2016). Pre-tokens are counted once, in parallel; then the most frequent
// pair is merged again and again. A pair's count and the list of words that hold it are kept up to date, so a merge
// touches only those words; the best pair comes from a heap whose stale entries are corrected when they surface.
// Special tokens are cut out first and nothing merges across them or across pre-tokens. Counts are 64-bit.
// The result does not depend on threads: counts are sums, ties are broken by a rule.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/text/specials.h"
#include "tally/text/vocab.h"

namespace tally {

// Which of the pairs with the same count is merged first.
enum class BpeTie {
  kGreatestBytes,  // the lexicographically greatest (left bytes, right bytes); CS336's rule and the default
  kSmallestIds,    // the smallest (left id, right id), bytes being ids 0 to 255; huggingface/tokenizers' rule
};

// Ids here: bytes 0 to 255 by value, merge k is 256 + k.
struct BpeTrained {
  TokenTable tokens;
  std::vector<std::pair<int32_t, int32_t>> merges;
};

// At most max_merges merges; fewer when no pair is left. Every text stands alone: nothing merges across two.
BpeTrained train_bpe(std::span<const std::string_view> texts, const SpecialSet& specials, int64_t max_merges,
                     BpeTie tie = BpeTie::kGreatestBytes);

}  // namespace tally
