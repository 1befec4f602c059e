// Sorting rows along an axis and selecting the k first of them.
#pragma once

#include "tally/core/cost.h"
#include "tally/ops/order_keys.h"

namespace tally {

constexpr int64_t kSortSlots = 64;         // rows that are worked on at a time (CPU)
constexpr int64_t kLongRow = 65536;        // from here on threads share a row (CPU)
constexpr int64_t kSortChunk = 32768;      // elements of a long row that a task takes
constexpr int64_t kSortDigits = 2048;      // of a radix pass over a long row
constexpr int64_t kMostSelected = 2048;    // largest k of topk's kernel; above everything is sorted
constexpr int64_t kSortTile = 2048;        // items that a block sorts in shared memory (CUDA)
constexpr int64_t kSortBatch = 1 << 22;    // items that are merged at a time (CUDA)
constexpr int64_t kSelectPiece = 1 << 17;  // elements of a long row that a task selects from (CPU)

// An element to be sorted is its key and its place, in 8 bytes where both have 32 bits, else in 16.
TALLY_INLINE int64_t sort_item(DType t, int64_t n, DeviceKind target) {
  return target == DeviceKind::kCpu && !wide_key(t) && n <= int64_t{1} << 32 ? 8 : 16;
}
TALLY_INLINE int64_t sort_rows_at_once(int64_t rows, int64_t n, DeviceKind target) {
  const int64_t fit = target == DeviceKind::kCpu ? (n >= kLongRow ? 1 : kSortSlots)
                      : kSortBatch / n > 1       ? kSortBatch / n
                                                 : 1;
  return rows < fit ? rows : fit;
}
// Bytes of scratch, by the sizes only: two buffers of items for every row that is worked on, and counts of digits.
TALLY_INLINE int64_t sort_scratch(DType t, int64_t rows, int64_t n, DeviceKind target) {
  if (rows == 0 || n == 0 || (target == DeviceKind::kCuda && n <= kSortTile)) return 0;
  const int64_t items = 2 * sort_rows_at_once(rows, n, target) * n * sort_item(t, n, target);
  const int64_t chunks = (n + kSortChunk - 1) / kSortChunk;
  return items + (target == DeviceKind::kCpu && n >= kLongRow ? chunks * kSortDigits * 8 : 0);
}

// Candidates that are kept before the worse ones are thrown away.
TALLY_INLINE constexpr int64_t select_room(int64_t k) { return 2 * k + 64; }
// Pieces of a row that tasks select from apart.
TALLY_INLINE constexpr int64_t select_pieces(int64_t rows, int64_t n) {
  if (rows >= 8 || n < 2 * kSelectPiece) return 1;
  const int64_t pieces = n / kSelectPiece;
  return pieces < 16 ? pieces : 16;
}
TALLY_INLINE int64_t select_scratch(DType t, int64_t rows, int64_t n, int64_t k, DeviceKind target) {
  if (target != DeviceKind::kCpu || rows == 0) return 0;
  const int64_t pieces = select_pieces(rows, n), at_once = rows < kSortSlots ? rows : kSortSlots;
  return at_once * pieces * select_room(k) * sort_item(t, n, target);
}

// Comparisons of sorting n elements by merging.
TALLY_INLINE constexpr int64_t sort_comparisons(int64_t n) {
  int64_t levels = 0;
  while (levels < 62 && (int64_t{1} << levels) < n) ++levels;
  return n * levels;
}
TALLY_INLINE int64_t rows_beside(const View& x, int axis) {  // of the axis
  int64_t rows = 1;
  for (int i = 0; i < x.size.rank; ++i)
    if (i != axis) rows *= x.size.v[i];
  return rows;
}

// values = x sorted along `axis`, indices (i64) the places they come from; equal elements keep their order. NaN counts
// as the largest. Rank 1 or more.
struct SortArgs {
  static constexpr const char* name = "sort";
  View x, values, indices, scratch;
  int axis;
  bool descending;
  Device device() const { return values.device; }
  Cost cost() const {
    return {0, rows_beside(x, axis) * sort_comparisons(x.size.v[axis]), x.bytes(), values.bytes() + indices.bytes(), 0};
  }
};

// The first k (the size of values along `axis`; 1 <= k <= kMostSelected) of what sort would give.
// Counted: one comparison an element, then those of sorting k.
struct TopkArgs {
  static constexpr const char* name = "topk";
  View x, values, indices, scratch;
  int axis;
  bool largest;
  Device device() const { return values.device; }
  Cost cost() const {
    return {0, x.numel() + rows_beside(x, axis) * sort_comparisons(values.size.v[axis]), x.bytes(),
            values.bytes() + indices.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void sort(const SortArgs&);
void topk(const TopkArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
