// Rows of a table by id, and the sum of gradients into the table.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// out[i] = table[ids[i]]; ids (n) i32 or i64, contiguous, all in [0, V); table (V, d), or packed as pack_weight() does,
// (panels, d, 32); out (n, d) of table's dtype.
// At most min(n, V) rows of the table are read.
struct EmbeddingArgs {
  static constexpr const char* name = "embedding";
  View ids, table, out;
  Device device() const { return out.device; }
  Cost cost() const {
    const int64_t n = out.size.v[0], rows = table.size.rank == 3 ? table.size.v[0] * table.size.v[2] : table.size.v[0];
    return {0, 0, ids.bytes() + (n < rows ? out.bytes() : table.bytes()), out.bytes(), 0};
  }
};

// dtable[v] = sum of grad[i] over all i with ids[i] = v, in the order of i and in f32, rounded once; with `add` the sum
// goes on top of what dtable holds (rows without an id are not touched), without it every row is written.
// scratch: embedding_scratch(n, V, target) i32 numbers. Counted: one addition an element of grad; with `add` at most
// min(n, V) rows of dtable are read and written. On CUDA the sum of an id with more than EmbeddingSort::kHot places is
// joined from 32 interleaved sums, in a fixed order.
struct EmbeddingSort {  // of the CUDA kernel
  static constexpr int64_t kBins = 512, kBlocks = 128, kHot = 64;
};
TALLY_INLINE constexpr int64_t embedding_scratch(int64_t n, int64_t rows, DeviceKind target) {
  using S = EmbeddingSort;
  if (target != DeviceKind::kCuda) return n + rows + 1;
  // where rows begin, two pairs of keys and positions, histograms, the number of hot rows and their list
  return rows + 1 + 4 * n + S::kBins * S::kBlocks + 1 + n / S::kHot;
}
struct EmbeddingBackwardArgs {
  static constexpr const char* name = "embedding_backward";
  View grad, ids, dtable, scratch;
  bool add;
  Device device() const { return dtable.device; }
  Cost cost() const {
    const int64_t n = grad.size.v[0], rows = dtable.size.v[0], d = grad.size.v[1];
    const int64_t touched = (n < rows ? n : rows) * d * item_size(dtable.dtype);
    return {0, grad.numel(), grad.bytes() + ids.bytes() + (add ? touched : 0), add ? touched : dtable.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void embedding(const EmbeddingArgs&);
void embedding_backward(const EmbeddingBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
