// Tables of normalization form C, written by tools/make_nfc_tables.py. Hangul syllables are not in them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally {

// Code point * 512 + combining class * 2 + (1 when it may change, or join what stands before it); holds up to the next
// entry, and 0 before the first.
extern const uint32_t kNfcRuns[];
extern const size_t kNfcRunsCount;
// Characters with a canonical decomposition, ascending; the whole one of i is kNfcText[kNfcStarts[i]..kNfcStarts[i+1]].
extern const uint32_t kNfcDecomposed[];
extern const size_t kNfcDecomposedCount;
extern const uint16_t kNfcStarts[];
extern const size_t kNfcStartsCount;
extern const uint32_t kNfcText[];
extern const size_t kNfcTextCount;
// Pairs that become one character: first << 32 | second, ascending, and what they become.
extern const uint64_t kNfcPairs[];
extern const size_t kNfcPairsCount;
extern const uint32_t kNfcComposed[];
extern const size_t kNfcComposedCount;

}  // namespace tally
