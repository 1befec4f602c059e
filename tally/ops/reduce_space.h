// The axes of a view of one kind (reduced or kept) as rows of elements, for CPU kernels that reduce.
#pragma once

#include "tally/ops/reduce_kernels.h"  // keeps_last_axis
#include "tally/ops/row_loops.h"

namespace tally::TALLY_ISA {

// Axes of x of one kind (reduced or kept) without those of size 1, neighbours merged where memory allows: rows of
// `n` elements `step` apart; `outer` lists the other axes before a dummy last one, as row_offset() wants it.
struct Space {
  View outer;
  int64_t rows, n, step;
  TALLY_INLINE int64_t numel() const { return rows * n; }
};

// An axis is reduced where out's size differs from x's.
[[maybe_unused]] static Space space_of(const View& x, const View& out, bool reduced) {
  View v;
  int rank = 0;
  for (int axis = 0; axis < x.size.rank; ++axis) {
    const int64_t size = x.size.v[axis], stride = x.stride.v[axis];
    if (size == 1 || (size != out.size.v[axis]) != reduced) continue;
    if (rank > 0 && v.stride.v[rank - 1] == size * stride) {
      v.size.v[rank - 1] *= size, v.stride.v[rank - 1] = stride;
    } else {
      v.size.v[rank] = size, v.stride.v[rank++] = stride;
    }
  }
  if (rank == 0) v.size.v[rank] = 1, v.stride.v[rank++] = 1;
  v.size.rank = v.stride.rank = rank;
  return {v, rows_of(v), row_length(v), v.stride.v[rank - 1]};
}

TALLY_INLINE int64_t offset_in(const Space& s, int64_t k) { return row_offset(s.outer, k / s.n) + k % s.n * s.step; }

// f(offset, done, m) for the pieces of rows that elements [start, start + count) fall into.
template <class F>
TALLY_INLINE void over_pieces(const Space& s, int64_t start, int64_t count, const F& f) {
  for (int64_t done = 0; done < count;) {
    const int64_t row = (start + done) / s.n, i = (start + done) % s.n;
    const int64_t m = s.n - i < count - done ? s.n - i : count - done;
    f(row_offset(s.outer, row) + i * s.step, done, m);
    done += m;
  }
}

}  // namespace tally::TALLY_ISA
