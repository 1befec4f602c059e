// Kernels for CUDA that treat element by element views of any dtype and strides: integers, comparisons, choices. Axes
// are merged where they lie alike in all views; what a dtype or an op is, is asked at run time, the same for all
// threads.
#pragma once

#include "tally/core/number.h"
#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kPlainThreads = 256;

template <int N>
struct PlainAxes {
  const void* data[N];
  int64_t stride[N][kMaxRank];
  int64_t size[kMaxRank];
  int rank;
};

// Axes of size 1 are left out, neighbours merge where they may in every view.
template <int N>
PlainAxes<N> plain_axes(const View (&views)[N]) {
  PlainAxes<N> a = {};
  for (int k = 0; k < N; ++k) a.data[k] = views[k].data;
  const Dims& size = views[0].size;
  for (int axis = 0; axis < size.rank; ++axis) {
    const int64_t n = size.v[axis];
    if (n == 1) continue;
    bool merge = a.rank > 0;
    for (int k = 0; k < N && merge; ++k) merge = a.stride[k][a.rank - 1] == n * views[k].stride.v[axis];
    const int into = merge ? a.rank - 1 : a.rank++;
    a.size[into] = merge ? a.size[into] * n : n;
    for (int k = 0; k < N; ++k) a.stride[k][into] = views[k].stride.v[axis];
  }
  return a;
}

// Where element i lies in every view.
template <int N>
__device__ __forceinline__ void places(const PlainAxes<N>& a, int64_t i, int64_t (&at)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) at[k] = 0;
  for (int axis = a.rank - 1; axis >= 0; --axis) {
    const int64_t rest = axis == 0 ? 0 : i / a.size[axis], j = i - rest * a.size[axis];
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += j * a.stride[k][axis];
    i = rest;
  }
}

// The number of dtype t with the low bits of x; bool: whether x is not 0.
__host__ __device__ __forceinline__ int64_t wrap_integer(DType t, int64_t x) {
  switch (t) {
    case DType::kI32:
      return static_cast<int32_t>(x);
    case DType::kI16:
      return static_cast<int16_t>(x);
    case DType::kU16:
      return static_cast<uint16_t>(x);
    case DType::kI8:
      return static_cast<int8_t>(x);
    case DType::kU8:
      return static_cast<uint8_t>(x);
    case DType::kBool:
      return x != 0;
    default:
      return x;
  }
}

}  // namespace

}  // namespace tally::cuda
