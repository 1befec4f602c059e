// Loops of CPU kernels that work row by row (norms, softmax, losses, reductions): rows of f32 or bf16 views with any
// strides, read and written in blocks of f32 vectors, with the 16 partial results of simd.h.
#pragma once

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

// Rows a chunk of parallel work takes, for rows of n elements.
TALLY_INLINE int64_t row_grain(int64_t n) { return n > 0 ? (kGrainElements + n - 1) / n : kGrainElements; }

// All axes but the last, counted as one.
TALLY_INLINE int64_t rows_of(const View& v) {
  int64_t rows = 1;
  for (int axis = 0; axis < v.size.rank - 1; ++axis) rows *= v.size.v[axis];
  return rows;
}
TALLY_INLINE int64_t row_length(const View& v) { return v.size.v[v.size.rank - 1]; }

// Where a row begins, in elements.
TALLY_INLINE int64_t row_offset(const View& v, int64_t row) {
  int64_t at = 0;
  for (int axis = v.size.rank - 2; axis >= 0 && row > 0; --axis) {
    at += row % v.size.v[axis] * v.stride.v[axis];
    row /= v.size.v[axis];
  }
  return at;
}

// A row of a view: the element `at` and those `step` apart.
struct Row {
  const View* view;
  int64_t at, step;
};
TALLY_INLINE Row row_of(const View& v, int64_t row) { return {&v, row_offset(v, row), v.stride.v[v.size.rank - 1]}; }

// x with the lanes from `valid` on replaced.
TALLY_INLINE Vec first_lanes(Vec x, int64_t valid, float other) {
  if (valid >= kLanes) return x;
  VecI lane{};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < static_cast<int32_t>(valid) ? x : broadcast(other);
}

TALLY_INLINE float sum_partials(const Vec (&partial)[kPartials]) {
  return join_partials(partial, [](float a, float b) { return a + b; });
}

// f(in[], out[], j, valid) on every vector of rows of n elements: outputs first, then inputs. j is the constant number
// of the partial result that the vector belongs to; lanes from `valid` on are zero in `in` and ignored in `out`.
template <int kOut, int kIn, class F>
TALLY_INLINE void over_row(const Row (&rows)[kOut + kIn], int64_t n, const F& f) {
  alignas(64) float buffer[kOut + kIn][kBlock];
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t m = n - start < kBlock ? n - start : kBlock;
    const float* x[kIn];
    float* y[kOut + 1];
    for (int k = 0; k < kIn; ++k) {
      const Row& r = rows[kOut + k];
      x[k] = block_in(*r.view, r.at + start * r.step, r.step, m, buffer[kOut + k]);
    }
    for (int k = 0; k < kOut; ++k)
      y[k] = block_place(*rows[k].view, rows[k].at + start * rows[k].step, rows[k].step, m, buffer[k]);
    const auto vector = [&](int64_t i, int j, int64_t valid) __attribute__((always_inline)) {
      Vec in[kIn], out[kOut + 1];
      for (int k = 0; k < kIn; ++k) in[k] = load(x[k] + i);
      f(in, out, j, valid);
      for (int k = 0; k < kOut; ++k) store(y[k] + i, out[k]);
    };
    int64_t i = 0;
    for (; i + 16 <= m; i += 16)
      for (int j = 0; j < kPartials; ++j) vector(i + j * kLanes, j, kLanes);
    for (int j = 0; j < kPartials; ++j)
      if (i + j * kLanes < m) vector(i + j * kLanes, j, m - i - j * kLanes);
    for (int k = 0; k < kOut; ++k)
      block_out(*rows[k].view, rows[k].at + start * rows[k].step, rows[k].step, m, y[k], buffer[k]);
  }
}

// The largest element of a row; NaN is passed over; -inf for n = 0.
TALLY_INLINE float largest_of_row(const Row& x, int64_t n) {
  Vec most[kPartials];
  for (Vec& m : most) m = broadcast(-__builtin_inff());
  const Row rows[1] = {x};
  over_row<0, 1>(rows, n, [&](const Vec* in, Vec*, int j, int64_t valid) {
    most[j] = max2(first_lanes(in[0], valid, -__builtin_inff()), most[j]);
  });
  return join_partials(most, [](float a, float b) { return max2(b, a); });
}

// Sum of exp(x - shift) over a row.
TALLY_INLINE float exp_sum_of_row(const Row& x, int64_t n, float shift) {
  Vec sum[kPartials] = {};
  const Row rows[1] = {x};
  const Vec by = broadcast(shift);
  over_row<0, 1>(rows, n, [&](const Vec* in, Vec*, int j, int64_t valid) {
    sum[j] += first_lanes(exp_of(in[0] - by), valid, 0.0f);
  });
  return sum_partials(sum);
}

}  // namespace tally::TALLY_ISA
