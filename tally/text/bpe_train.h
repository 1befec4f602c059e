// The byte-level BPE trainer (Sennrich et al. 2016, "Neural machine translation of rare words with subword units").
// Pre-tokens are counted once (word_counts.h); then the most frequent pair is merged again and again. Each pair has a
// count and the list of the places where it stands, so a merge touches only those; its changes to the counts of other
// pairs are summed by neighbour and applied once a merge. The best pair comes from a heap whose stale entries are
// corrected when they surface: counts only fall, so what is on top with its live count is the best of all.
// Counts are 64-bit. The result does not depend on threads: counts are sums, ties are broken by a rule.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/text/specials.h"
#include "tally/text/vocab.h"
#include "tally/text/word_counts.h"

namespace tally {

// Which of the pairs with the same count is merged first.
enum class BpeTie {
  kGreatestBytes,    // the lexicographically greatest (left bytes, right bytes); CS336's rule and the default
  kSmallestIds,      // the smallest (left id, right id) of the vocabulary that a tokenizer makes of it: bytes in the
                     // order of vocab.json's printable characters, then merges; huggingface/tokenizers' rule
  kFirstSeen,        // the pair that stands first in the text as merged so far; minbpe's rule
  kSmallestByteIds,  // the smallest (left id, right id), bytes being ids 0 to 255 by value; rustbpe's rule
};
const char* bpe_tie_name(BpeTie tie);        // "greatest-bytes", "smallest-ids", "first-seen", "smallest-byte-ids"
BpeTie parse_bpe_tie(std::string_view name);  // Error names the four

struct BpeTrainOptions {
  int64_t max_merges = 0;
  BpeTie tie = BpeTie::kGreatestBytes;
  int64_t min_frequency = 1;    // a pair must stand at least this often to be merged
  int64_t max_token_bytes = 0;  // longer tokens are not made; 0: any length
  int64_t max_memory = 0;       // bytes; Error naming the need when training takes more; 0: no limit
  TrainProgress progress = {};       // phase "merging", in merges
};

// Ids here: bytes 0 to 255 by value, merge k is 256 + k.
struct BpeTrained {
  TokenTable tokens;
  std::vector<std::pair<int32_t, int32_t>> merges;
};

// At most max_merges merges; fewer when no pair is left. Words must differ, and stand in the order in which they are
// first met when the tie rule is kFirstSeen; counts of 0 are left out, negative ones an Error.
BpeTrained train_bpe(WordList words, const BpeTrainOptions& options);
// Of texts cut by GPT-2's pattern. Every text stands alone: nothing merges across two, nor across special tokens.
BpeTrained train_bpe(std::span<const std::string_view> texts, const SpecialSet& specials, int64_t max_merges,
                     BpeTie tie = BpeTie::kGreatestBytes);
// The order of words that a tie rule needs.
inline WordOrder word_order(BpeTie tie) { return tie == BpeTie::kFirstSeen ? WordOrder::kFirstMet : WordOrder::kAny; }

}  // namespace tally
