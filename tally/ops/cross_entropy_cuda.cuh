// What the kernels of cross-entropy share: pieces of rows of any alignment, the sum of exponentials of a row in one
// pass, gradients. Which thread takes which element of a row depends on the row's length only, so that all kernels give
// a row the same bits.
#pragma once

#include "tally/ops/cross_entropy_kernels.h"
#include "tally/ops/device.cuh"

namespace tally::cuda {

constexpr int kThreads = 256;
constexpr int64_t kShortRow = 512;  // a warp instead of a block up to here

__device__ __forceinline__ int64_t target_at(const View& targets, int64_t row) {
  return targets.dtype == DType::kI64 ? targets.ptr<int64_t>()[row] : targets.ptr<int32_t>()[row];
}

__device__ __forceinline__ void unpack(const uint32_t (&w)[4], float (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(w[i]);
}
__device__ __forceinline__ void unpack(const uint32_t (&w)[4], float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[2 * i] = __uint_as_float(w[i] << 16), x[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
}

// A vector from an address that is no multiple of 16: out of the two aligned ones that hold it, each of which has at
// least one of its bytes, so no read leaves the memory block.
template <class T>
__device__ __forceinline__ void load_shifted(const T* p, float (&x)[kVector<T>]) {
  const unsigned off = static_cast<unsigned>(reinterpret_cast<uintptr_t>(p) % 16);
  const uint4* const base = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(p) - off);
  const uint4 a = base[0], b = base[1];
  const uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  const unsigned words = off / 4, bits = off % 4 * 8;
  uint32_t from[5], to[4];
#pragma unroll
  for (int i = 0; i < 5; ++i)
    from[i] = words == 0 ? w[i] : words == 1 ? w[i + 1] : words == 2 ? w[i + 2] : w[i + 3 < 8 ? i + 3 : 7];
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __funnelshift_r(from[i], from[i + 1], bits);
  unpack(to, x);
}

enum class Access { kAligned, kShifted, kStrided };

// Elements [at, at + kVector) of a row of n; -inf beyond its end.
template <class T>
__device__ __forceinline__ void load_piece(const T* row, int64_t step, Access access, int64_t at, int64_t n,
                                           float (&x)[kVector<T>]) {
  if (at + kVector<T> <= n && access == Access::kAligned) {
    load_vector(row + at, x);
  } else if (at + kVector<T> <= n && access == Access::kShifted) {
    load_shifted(row + at, x);
  } else {
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) x[j] = at + j < n ? load_one(row + (at + j) * step) : -INFINITY;
  }
}

// e^x by the hardware's 2^x; results below 2^-126 become 0.
__device__ __forceinline__ float exp_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fmul_rn(x, 1.44269504f)));
  return y;
}

// The shift of exponentials below a maximum: a row of -inf has none.
__device__ __forceinline__ float shift_of(float most) { return most == -INFINITY ? 0.0f : most; }

// A thread's share of a row's sum of exponentials, relative to the largest number so far.
struct OnlineSum {
  float most = -INFINITY, sum = 0;

  template <int kPieces, int kV>
  __device__ __forceinline__ void add(const float (&v)[kPieces][kV]) {
    float top = most;
#pragma unroll
    for (int u = 0; u < kPieces; ++u)
#pragma unroll
      for (int j = 0; j < kV; ++j) top = fmaxf(top, v[u][j]);
    const float shift = shift_of(top);
    sum *= exp_fast(most - shift);
    most = top;
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      float part = 0;
#pragma unroll
      for (int j = 0; j < kV; ++j) part += exp_fast(v[u][j] - shift);
      sum += part;
    }
  }
  // The row's shift and sum, for all threads; `shared` as block_sum() wants it.
  template <int kBlock>
  __device__ __forceinline__ void join(float* shared, float& row_shift, float& row_sum) const {
    row_shift = shift_of(block_max<kBlock>(most, shared));
    row_sum = block_sum<kBlock>(sum * exp_fast(most - row_shift), shared);
  }
};

// What a row's gradients are made of.
struct RowGradient {
  float shift, factor, g;
  int64_t target;

  __device__ __forceinline__ float probability(float x) const { return __fmul_rn(exp_fast(x - shift), factor); }
  __device__ __forceinline__ float operator()(float x, int64_t column) const {
    const float p = probability(x);
    return column == target ? __fsub_rn(p, g) : p;
  }
  // Columns from `first` on; one question for all of them whether the target is there.
  template <int kV>
  __device__ __forceinline__ void run(float (&x)[kV], int64_t first) const {
#pragma unroll
    for (int j = 0; j < kV; ++j) x[j] = probability(x[j]);
    if (target < first || target >= first + kV) return;
#pragma unroll
    for (int j = 0; j < kV; ++j)
      if (first + j == target) x[j] = __fsub_rn(x[j], g);
  }
};

constexpr int kFinishThreads = 1024;

// The number of targets not ignored, by a block; barriers are inside.
template <int kBlock>
__device__ __forceinline__ float block_count(const View& targets, int64_t rows, int64_t ignore_index) {
  __shared__ unsigned long long count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  unsigned mine = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < rows; row += kBlock) mine += target_at(targets, row) != ignore_index;
  mine = __reduce_add_sync(kAll, mine);
  if (threadIdx.x % kWarp == 0) atomicAdd(&count, static_cast<unsigned long long>(mine));
  __syncthreads();
  return static_cast<float>(count);
}

inline Dims outer_of(const View& v) {
  Dims outer = v.size;
  --outer.rank;
  return outer;
}

}  // namespace tally::cuda
