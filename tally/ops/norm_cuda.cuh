// What the forward (norm_cuda.cu) and the backward (norm_backward_cuda.cu) of the norms share: weights and biases that
// may not be there, rows that are known to be plain.
#pragma once

#include "tally/ops/device_rows.cuh"
#include "tally/ops/norm_kernels.h"

namespace tally::cuda {

namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 20;
constexpr int kLongThreads = 1024;
constexpr int64_t kMostShort = 8192;  // numbers of a row that stay in registers

// Blocks of a multiprocessor whose threads have `registers` each.
constexpr int blocks_of(int threads, int registers) { return 65536 / registers / threads; }

// A weight or bias of any dtype and stride, or `none` everywhere.
struct Parameter {
  const void* data;
  int64_t step;
  bool is_bf16, fast;
  float none;
};
Parameter parameter_of(const View& v, float none) {
  Parameter p = {nullptr, 0, false, false, none};
  if (!norm_has(v)) return p;
  p.data = v.data, p.step = v.stride.v[0], p.is_bf16 = v.dtype == DType::kBF16;
  p.fast = p.step == 1 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  return p;
}
__device__ __forceinline__ float load_parameter(const Parameter& p, int64_t i) {
  if (p.data == nullptr) return p.none;
  return p.is_bf16 ? load_one(static_cast<const bf16*>(p.data) + i * p.step)
                   : load_one(static_cast<const float*>(p.data) + i * p.step);
}
// Numbers i to i + kV of one that is `fast`.
template <int kV>
__device__ __forceinline__ void load_vector_of(const Parameter& p, int64_t i, float (&x)[kV]) {
  if (p.is_bf16) {
    if constexpr (kV == 8) {
      load_vector(static_cast<const bf16*>(p.data) + i, x);
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = load_one(static_cast<const bf16*>(p.data) + i + j);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kV; j += 4) {
      const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(p.data) + i + j);
      x[j] = v.x, x[j + 1] = v.y, x[j + 2] = v.z, x[j + 3] = v.w;
    }
  }
}
// Those from n on are not read. kFast: it is known to be `fast` or none, and n a whole number of vectors.
template <bool kFast, int kV>
__device__ __forceinline__ void load_parameters(const Parameter& p, int64_t i, int64_t n, float (&x)[kV]) {
  if constexpr (kFast) {
    if (p.data != nullptr && i < n) return load_vector_of(p, i, x);
#pragma unroll
    for (int j = 0; j < kV; ++j) x[j] = p.none;
  } else {
    if (p.fast && i + kV <= n) return load_vector_of(p, i, x);
#pragma unroll
    for (int j = 0; j < kV; ++j) x[j] = i + j < n ? load_parameter(p, i + j) : 0.0f;
  }
}

// True when rows can be read in whole vectors and lie in equal steps, which spares the registers for a division.
template <class T>
bool plain_rows(const Rows& r, int64_t n) {
  return vector_rows<T>(r, n) && r.outer.size.rank <= 1;
}
// kFast: they are known to be plain_rows().
template <class T, bool kFast>
__device__ __forceinline__ T* team_row(const Rows& r, int64_t row) {
  if constexpr (kFast) return static_cast<T*>(r.data) + row * r.outer.stride.v[0];
  return row_at<T>(r, row);
}

}  // namespace

}  // namespace tally::cuda
