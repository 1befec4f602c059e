// Loops of CPU kernels that work row by row (norms, softmax, losses, reductions): rows of f32 or bf16 views with any
// strides, read and written in blocks of f32 vectors. A row has kRowParts interleaved partial results: element i
// belongs to number i mod kRowParts, enough chains to hide the latency of an addition in every instruction set.
#pragma once

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

constexpr int kRowParts = 32;
constexpr int kRowVecs = kRowParts / kLanes;

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

// Asks for a row that is read soon: rows in several pieces are no pattern that the processor would see by itself.
[[maybe_unused]] static void fetch_row(const View& v, int64_t row) {
  constexpr int64_t kMost = 16384;  // bytes, half of the smallest first cache
  if (v.stride.v[v.size.rank - 1] != 1) return;
  const char* p = v.ptr<char>() + row_offset(v, row) * item_size(v.dtype);
  const int64_t bytes = row_length(v) * item_size(v.dtype);
  for (int64_t i = 0; i < bytes && i < kMost; i += 64) __builtin_prefetch(p + i);
}

// x with the lanes from `valid` on replaced.
TALLY_INLINE Vec first_lanes(Vec x, int64_t valid, float other) {
  if (valid >= kLanes) return x;
  VecI lane{};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < static_cast<int32_t>(valid) ? x : broadcast(other);
}

// Lane i with lane i + n / 2, and so on.
TALLY_INLINE float sum_lanes(Vec x) {
  alignas(64) float s[kLanes];
  store(s, x);
#if defined(TALLY_SIMD_V4)
  const __m256 h = _mm256_load_ps(s) + _mm256_load_ps(s + 8);
  _mm256_store_ps(s, h);
#endif
#if defined(TALLY_SIMD_V3) || defined(TALLY_SIMD_V4)
  const __m128 q = _mm_load_ps(s) + _mm_load_ps(s + 4);
  _mm_store_ps(s, q);
#endif
  return (s[0] + s[2]) + (s[1] + s[3]);
}
// The parts joined in one fixed tree: part i with part i + 16, then 8, 4, 2 and 1.
TALLY_INLINE float sum_partials(const Vec (&partial)[kRowVecs]) {
  Vec p[kRowVecs];
  for (int i = 0; i < kRowVecs; ++i) p[i] = partial[i];
  for (int n = kRowVecs / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) p[i] += p[i + n];
  return sum_lanes(p[0]);
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
    for (; i + kRowParts <= m; i += kRowParts)
#pragma GCC unroll 8
      for (int j = 0; j < kRowVecs; ++j) vector(i + j * kLanes, j, kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < kRowVecs; ++j)
      if (i + j * kLanes < m) vector(i + j * kLanes, j, m - i - j * kLanes);
    for (int k = 0; k < kOut; ++k)
      block_out(*rows[k].view, rows[k].at + start * rows[k].step, rows[k].step, m, y[k], buffer[k]);
  }
}

// The largest element of a row; NaN is passed over; -inf for n = 0.
TALLY_INLINE float largest_of_row(const Row& x, int64_t n) {
  Vec most[kRowVecs];
  for (Vec& m : most) m = broadcast(-__builtin_inff());
  const Row rows[1] = {x};
  over_row<0, 1>(rows, n, [&](const Vec* in, Vec*, int j, int64_t valid) {
    most[j] = max2(first_lanes(in[0], valid, -__builtin_inff()), most[j]);
  });
  alignas(64) float s[kRowParts];
  for (int j = 0; j < kRowVecs; ++j) store(s + j * kLanes, most[j]);
  for (int width = kRowParts / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) s[i] = max2(s[i + width], s[i]);
  return s[0];
}

// Sum of exp(x - shift) over a row.
TALLY_INLINE float exp_sum_of_row(const Row& x, int64_t n, float shift) {
  Vec sum[kRowVecs] = {};
  const Row rows[1] = {x};
  const Vec by = broadcast(shift);
  over_row<0, 1>(rows, n, [&](const Vec* in, Vec*, int j, int64_t valid) {
    sum[j] += first_lanes(exp_of(in[0] - by), valid, 0.0f);
  });
  return sum_partials(sum);
}

}  // namespace tally::TALLY_ISA
