// See bpe_merge.h. A heap entry is rank << 32 | position; it is stale when the symbol there has another rank by now.
#include "tally/text/bpe_merge.h"

#include <algorithm>
#include <functional>

#include "tally/base/error.h"
#include "tally/base/rng.h"

namespace tally {
namespace {

constexpr uint32_t kEnd = ~uint32_t{0};  // no symbol

// The symbols as a doubly linked list; `rank` is that of each with its next one.
struct Symbols {
  std::vector<int32_t>& ids;
  std::vector<uint32_t> next, previous, rank;
  std::vector<uint64_t> heap, passed_over;

  explicit Symbols(std::vector<int32_t>& symbols)
      : ids(symbols), next(symbols.size()), previous(symbols.size()), rank(symbols.size(), MergeTable::kNoRank) {
    for (uint32_t i = 0; i < ids.size(); ++i) next[i] = i + 1 < ids.size() ? i + 1 : kEnd, previous[i] = i - 1;
  }

  uint64_t entry(uint32_t at) const { return (uint64_t{rank[at]} << 32) | at; }
  void push(uint64_t value) {
    heap.push_back(value);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  uint64_t pop() {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    return top;
  }
  void rate(uint32_t at, const MergeTable& table) {
    rank[at] = next[at] == kEnd ? MergeTable::kNoRank : table.find(ids[at], ids[next[at]]).rank;
    if (rank[at] != MergeTable::kNoRank) push(entry(at));
  }
  // Takes the symbol after `at` into it.
  void join(uint32_t at, int32_t token) {
    const uint32_t gone = next[at], after = next[gone];
    ids[at] = token;
    next[at] = after;
    rank[gone] = MergeTable::kNoRank;
    if (after != kEnd) previous[after] = at;
  }
};

}  // namespace

MergeTable::MergeTable(std::span<const BpeMerge> merges, bool rank_by_result) : ranks_(merges.size()) {
  if (merges.size() >= kNoRank) fail("{} merges are more than ranks can count", merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const BpeMerge& m = merges[i];
    const auto rank = rank_by_result ? static_cast<uint32_t>(m.result) : static_cast<uint32_t>(i);
    ranks_.insert(pair_key(m.left, m.right), {rank, m.result});
  }
}

MergeTable::Last MergeTable::merge(std::vector<int32_t>& symbols, const BpeDropout* dropout) const {
  if (symbols.size() >= kEnd)
    fail("a piece of text without a break has {} bytes; at most {} can be merged", symbols.size(), kEnd - 1);
  Last last;
  Symbols s(symbols);
  for (uint32_t i = 0; i < symbols.size(); ++i) s.rate(i, *this);
  uint64_t draws = 0;
  while (!s.heap.empty()) {
    const uint64_t top = s.pop();
    const auto at = static_cast<uint32_t>(top), rank = static_cast<uint32_t>(top >> 32);
    if (s.rank[at] != rank) continue;
    // Passed over until something else is merged (the order of draws of huggingface/tokenizers).
    if (dropout != nullptr &&
        uniform_from_u32(random_u32(dropout->seed, dropout->stream, draws++)) < dropout->probability) {
      s.passed_over.push_back(top);
      continue;
    }
    for (const uint64_t value : s.passed_over) s.push(value);
    s.passed_over.clear();
    last = {s.ids[at], s.ids[s.next[at]], rank};
    s.join(at, find(last.left, last.right).token);
    s.rate(at, *this);
    if (s.previous[at] != kEnd) s.rate(s.previous[at], *this);
  }
  if (symbols.empty()) return last;
  size_t n = 0;
  for (uint32_t at = 0; at != kEnd; at = s.next[at]) symbols[n++] = s.ids[at];
  symbols.resize(n);
  return last;
}

}  // namespace tally
