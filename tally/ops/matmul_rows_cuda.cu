// The product of few rows and a weight on CUDA, as when tokens are generated: y (M, N) = x (M, K) W^T (+ bias) for W
// (N, K) with K contiguous and M up to 8. Its time is that of reading W once. A warp takes a few columns of y, which
// are rows of W, and slices of K: all loads of a slice, 16 bytes a lane and past L1, are under way before the first is
// used; x comes from L1, where all warps find it. Where K has several slices, they are for different warps of a block.
// Order of a sum: a chain of fused multiply-adds in a lane, its slices one after the other; a fixed tree over the
// lanes; the warps of a column in order. It depends on K and the dtype only, so a row's bits do not depend on M and N.
#include "tally/ops/device.cuh"
#include "tally/ops/matmul_kernels.h"

namespace tally::cuda {

bool multiply_rows(const MatmulArgs& args);

namespace {

constexpr int kMostRows = 8, kMostWarps = 8;
constexpr int kColumns = 2;  // of a warp
constexpr int kLoads = 8;    // of a lane for one row of W in a slice
template <class T>
constexpr int kSlice = kLoads* kWarp* kVector<T>;

struct Rows {
  const void *x, *w, *bias;
  void* y;
  int64_t w_row, y_row, y_column;  // strides in elements
  int x_row, m, n, k, split;       // split: warps that share a column
  bool bf16_result;
};

__device__ __forceinline__ uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ void widen(const uint4& v, float (&x)[4]) {
  x[0] = __uint_as_float(v.x), x[1] = __uint_as_float(v.y), x[2] = __uint_as_float(v.z), x[3] = __uint_as_float(v.w);
}
__device__ __forceinline__ void widen(const uint4& v, float (&x)[8]) {
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[2 * i] = __uint_as_float(w[i] << 16), x[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
}

// sum[m][n] += the lane's terms of one slice, from element k on. Row m of x starts at x + row[m].
template <class T, int kM>
__device__ __forceinline__ void add_slice(const T* x, const int (&row)[kM], const T* const (&w)[kColumns], int k,
                                          int end, float (&sum)[kM][kColumns]) {
  constexpr int kV = kVector<T>, kStep = kWarp * kV;
  constexpr int kAtOnce = kM < kMostRows ? kLoads : kLoads / 2;  // its sums need the registers
#pragma unroll 1
  for (int part = 0; part < kLoads; part += kAtOnce, k += kAtOnce * kStep) {
    uint4 v[kAtOnce][kColumns];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
        v[i][n] = k + i * kStep < end ? load_once(w[n] + k + i * kStep) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (k + i * kStep >= end) break;
      float b[kColumns][kV];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) widen(v[i][n], b[n]);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        float a[kV];
        load_vector(x + (row[m] + k + i * kStep), a);
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
#pragma unroll
          for (int e = 0; e < kV; ++e) sum[m][n] = fmaf(a[e], b[n][e], sum[m][n]);
      }
    }
  }
}

// kM: a.m or the next power of 2; rows beyond are the last again.
template <class T, int kM>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2) rows_kernel(const Rows a) {
  __shared__ float parts[kMostWarps][kM][kColumns];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = warp / a.split, slice = warp % a.split;
  const int columns = static_cast<int>(blockDim.x) / kWarp / a.split * kColumns;  // of the block
  const int64_t first = int64_t{blockIdx.x} * columns;
  int x_row[kM];
  const T* w[kColumns];
#pragma unroll
  for (int m = 0; m < kM; ++m) x_row[m] = (m < a.m ? m : a.m - 1) * a.x_row;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int64_t row = first + group * kColumns + n;
    w[n] = static_cast<const T*>(a.w) + (row < a.n ? row : a.n - 1) * a.w_row;
  }
  float sum[kM][kColumns] = {};
#pragma unroll 1
  for (int64_t k = int64_t{slice} * kSlice<T>; k < a.k; k += int64_t{a.split} * kSlice<T>)
    add_slice<T, kM>(static_cast<const T*>(a.x), x_row, w, static_cast<int>(k) + lane * kVector<T>, a.k, sum);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const float all = warp_sum(sum[m][n]);
      if (lane == 0) parts[warp][m][n] = all;
    }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < a.m * columns; e += static_cast<int>(blockDim.x)) {
    const int m = e / columns, column = e - m * columns;
    const int64_t n = first + column;
    if (n >= a.n) continue;
    float all = 0;
    for (int s = 0; s < a.split; ++s) all += parts[column / kColumns * a.split + s][m][column % kColumns];
    const int64_t at = m * a.y_row + n * a.y_column;
    if (a.bf16_result) {
      if (a.bias) all += load_one(static_cast<const bf16*>(a.bias) + n);
      store_one(static_cast<bf16*>(a.y) + at, all);
    } else {
      if (a.bias) all += load_one(static_cast<const float*>(a.bias) + n);
      store_one(static_cast<float*>(a.y) + at, all);
    }
  }
}

template <class T, int kM>
void multiply(const MatmulArgs& args) {
  const View &x = args.a, &w = args.b, &y = args.c;
  const int64_t n = y.size[2], k = x.size[2], slices = parts(k, kSlice<T>);
  const int split = static_cast<int>(slices < kMostWarps ? slices : kMostWarps);
  int processors = 0;
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, args.device().index));
  int groups = kMostWarps / split;  // of columns; fewer where the blocks would be too few for the card
  while (groups > 1 && parts(n, groups * kColumns) < processors) groups /= 2;
  const Rows rows{x.data,
                  w.data,
                  args.has_bias ? args.bias.data : nullptr,
                  y.data,
                  w.stride[2],
                  y.stride[1],
                  y.stride[2],
                  static_cast<int>(x.size[1] > 1 ? x.stride[1] : 0),
                  static_cast<int>(y.size[1]),
                  static_cast<int>(n),
                  static_cast<int>(k),
                  split,
                  y.dtype == DType::kBF16};
  rows_kernel<T, kM><<<static_cast<unsigned>(parts(n, groups * kColumns)),
                       static_cast<unsigned>(groups * split * kWarp), 0, stream_of(args.device())>>>(rows);
  check_launch("matmul");
}

template <class T>
bool suits(const MatmulArgs& args) {
  const View &x = args.a, &w = args.b, &y = args.c;
  const int64_t m = y.size[1], n = y.size[2], k = x.size[2];
  // Offsets in x are counted in 32 bits.
  constexpr int64_t kMost = ((int64_t{1} << 31) - 1 - kSlice<T>) / (kMostRows + 1);
  return m <= kMostRows && n < kMost && k < kMost && (m == 1 || (x.stride[1] >= 0 && x.stride[1] < kMost)) &&
         k % kVector<T> == 0 && x.stride[2] == 1 && w.stride[1] == 1 && aligned<T>(x.data, m > 1 ? x.stride[1] : 0) &&
         aligned<T>(w.data, n > 1 ? w.stride[2] : 0);
}

template <class T>
bool multiply(const MatmulArgs& args) {
  if (!suits<T>(args)) return false;
  switch (args.c.size[1]) {
    case 1:
      multiply<T, 1>(args);
      break;
    case 2:
      multiply<T, 2>(args);
      break;
    case 3:
    case 4:
      multiply<T, 4>(args);
      break;
    default:
      multiply<T, kMostRows>(args);
  }
  return true;
}

}  // namespace

// True when it took the call.
bool multiply_rows(const MatmulArgs& args) {
  const View &x = args.a, &w = args.b, &y = args.c, &bias = args.bias;
  if (y.size[0] != 1 || x.size[2] == 0 || args.accumulate || args.what_aux != MatmulAux::kNone || x.dtype != w.dtype)
    return false;
  if (args.has_bias && (bias.dtype != y.dtype || (bias.stride[0] != 1 && y.size[2] > 1))) return false;
  if (x.dtype == DType::kF32) return y.dtype == DType::kF32 && multiply<float>(args);
  return x.dtype == DType::kBF16 && y.dtype != DType::kF64 && multiply<bf16>(args);
}

}  // namespace tally::cuda
