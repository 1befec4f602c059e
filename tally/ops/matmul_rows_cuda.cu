// The products of few rows and a up to three weights on CUDA, as when tokens are generated: y (M, N) = x (M, K) W^T
// (+ bias) for W (N, K) with K contiguous and M up to 8; or of two weights silu(g) * u of their results. Its time is
// that of reading W once. A warp takes a few columns of y, which are rows of W, and slices of K: all loads of a slice,
// 16 bytes a lane and past L1, are under way before the first is used; x comes from L1, where all warps find it. Where
// K has several slices, they are for different warps of a block. Order of a sum: a chain of fused multiply-adds in a
// lane, its slices one after the other; a fixed tree over the lanes; the warps of a column in order. It depends on K
// and the dtype only, so a row's bits do not depend on M and N, nor on what else is computed in the launch. While the
// kernel before still runs, what a warp reads first of W is fetched into L2.
#include "tally/ops/device.cuh"
#include "tally/ops/matmul_kernels.h"

namespace tally::cuda {

bool multiply_rows(const MatmulArgs& args);

namespace {

constexpr int kMostRows = 8, kMostWarps = 8, kMostParts = 1 + MatmulArgs::kMore;
constexpr int kColumns = 2;  // of a warp
constexpr int kLoads = 2;    // of a lane for one row of W in a slice; on an H200 8 were 10 % slower, 4 were 4 %
template <class T>
constexpr int kSlice = kLoads* kWarp* kVector<T>;

struct Part {  // a weight and its result
  const void *w, *bias;
  void* y;
  int64_t w_row, y_row, y_column;  // strides in elements
  int n;
  unsigned first_block;  // beyond the grid for a part that is not there
};
struct Rows {
  const void* x;
  int x_row, m, k, split;  // split: warps that share a column
  bool bf16_result;
  bool gated;  // a warp has one column of part 0, the gate, and the same of part 1; the result is part 0's
  Part part[kMostParts];
};

__device__ __forceinline__ uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
// Both multiples of 16.
__device__ __forceinline__ void prefetch(const void* p, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
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

// A result before it is stored, as what follows in f32 reads it.
__device__ __forceinline__ float result_of(float sum, const void* bias, int64_t n, bool half) {
  if (!half) return bias ? sum + static_cast<const float*>(bias)[n] : sum;
  bf16 x;
  store_one(&x, bias ? sum + load_one(static_cast<const bf16*>(bias) + n) : sum);
  return to_float(x);
}

// kM: a.m or the next power of 2; rows beyond are the last again.
template <class T, int kM>
__global__ void __launch_bounds__(kMostWarps* kWarp, 4) rows_kernel(const __grid_constant__ Rows a) {
  __shared__ float sums[kMostWarps][kM][kColumns];
  let_next_start();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = warp / a.split, slice = warp % a.split;
  const int columns = static_cast<int>(blockDim.x) / kWarp / a.split * (a.gated ? 1 : kColumns);  // of the block
  int which = 0;
  while (which + 1 < kMostParts && blockIdx.x >= a.part[which + 1].first_block) ++which;
  const Part& p = a.part[which];
  const int64_t first = int64_t{blockIdx.x - p.first_block} * columns;
  int x_row[kM];
  const T* w[kColumns];
#pragma unroll
  for (int m = 0; m < kM; ++m) x_row[m] = (m < a.m ? m : a.m - 1) * a.x_row;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const Part& from = a.gated ? a.part[n] : p;
    const int64_t row = a.gated ? first + group : first + group * kColumns + n;
    w[n] = static_cast<const T*>(from.w) + (row < p.n ? row : p.n - 1) * from.w_row;
    const int k = slice * kSlice<T>;
    if (lane == n) prefetch(w[n] + k, min(kSlice<T>, a.k - k) * static_cast<int>(sizeof(T)));
  }
  wait_for_previous();
  float sum[kM][kColumns] = {};
#pragma unroll 1
  for (int64_t k = int64_t{slice} * kSlice<T>; k < a.k; k += int64_t{a.split} * kSlice<T>)
    add_slice<T, kM>(static_cast<const T*>(a.x), x_row, w, static_cast<int>(k) + lane * kVector<T>, a.k, sum);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const float all = warp_sum(sum[m][n]);
      if (lane == 0) sums[warp][m][n] = all;
    }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < a.m * columns; e += static_cast<int>(blockDim.x)) {
    const int m = e / columns, column = e - m * columns;
    const int64_t n = first + column;
    if (n >= p.n) continue;
    const auto sum = [&](int of, int i) {  // of a group's i-th column
      float all = 0;
      for (int s = 0; s < a.split; ++s) all += sums[of * a.split + s][m][i];
      return all;
    };
    float y;
    if (a.gated) {
      y = swiglu_value(result_of(sum(column, 0), p.bias, n, a.bf16_result),
                       result_of(sum(column, 1), a.part[1].bias, n, a.bf16_result));
    } else {
      y = result_of(sum(column / kColumns, column % kColumns), p.bias, n, a.bf16_result);
    }
    const int64_t at = m * p.y_row + n * p.y_column;
    a.bf16_result ? store_one(static_cast<bf16*>(p.y) + at, y) : store_one(static_cast<float*>(p.y) + at, y);
  }
}

// The weights of a call, their biases and results; those of a gate share one.
struct Product {
  const View *w, *y, *bias;
};
int products_of(const MatmulArgs& a, Product (&all)[kMostParts]) {
  const bool gated = a.what_aux == MatmulAux::kSwiglu;
  all[0] = {&a.b, &a.c, a.has_bias ? &a.bias : nullptr};
  for (int i = 0; i < a.more; ++i)
    all[i + 1] = {&a.more_b[i], gated ? &a.c : &a.more_c[i], a.has_bias ? &a.more_bias[i] : nullptr};
  return 1 + a.more;
}

template <class T, int kM>
void multiply(const MatmulArgs& args) {
  const View &x = args.a, &y = args.c;
  const int64_t k = x.size[2], slices = parts(k, kSlice<T>);
  const int split = static_cast<int>(slices < kMostWarps ? slices : kMostWarps);
  Rows rows = {};
  rows.x = x.data, rows.x_row = static_cast<int>(x.size[1] > 1 ? x.stride[1] : 0);
  rows.m = static_cast<int>(y.size[1]), rows.k = static_cast<int>(k), rows.split = split;
  rows.bf16_result = y.dtype == DType::kBF16, rows.gated = args.what_aux == MatmulAux::kSwiglu;
  Product all[kMostParts];
  const int count = products_of(args, all), working = rows.gated ? 1 : count;  // parts that have blocks
  const auto blocks_of = [&](int i, int groups) {
    return parts(all[i].y->size[2], groups * (rows.gated ? 1 : kColumns));
  };
  const auto blocks = [&](int groups) {
    int64_t sum = 0;
    for (int i = 0; i < working; ++i) sum += blocks_of(i, groups);
    return sum;
  };
  int processors = 0;
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, args.device().index));
  int groups = kMostWarps / split;  // of columns; fewer where the blocks would be too few for the card
  while (groups > 1 && blocks(groups) < processors) groups /= 2;
  unsigned first = 0;
  for (int i = 0; i < kMostParts; ++i) {
    rows.part[i].first_block = ~0u;
    if (i >= count) continue;
    const View &w = *all[i].w, &out = *all[i].y;
    const void* const bias = all[i].bias ? all[i].bias->data : nullptr;
    rows.part[i] = {w.data,
                    bias,
                    out.data,
                    w.stride[2],
                    out.stride[1],
                    out.stride[2],
                    static_cast<int>(out.size[2]),
                    i < working ? first : ~0u};
    if (i < working) first += static_cast<unsigned>(blocks_of(i, groups));
  }
  launch_after("matmul", rows_kernel<T, kM>, {first, groups * split * kWarp}, args.device(), rows);
}

template <class T>
bool suits(const MatmulArgs& args) {
  const View &x = args.a, &y = args.c;
  const int64_t m = y.size[1], k = x.size[2];
  // Offsets in x are counted in 32 bits.
  constexpr int64_t kMost = ((int64_t{1} << 31) - 1 - kSlice<T>) / (kMostRows + 1);
  bool ok = m <= kMostRows && k < kMost && (m == 1 || (x.stride[1] >= 0 && x.stride[1] < kMost)) &&
            k % kVector<T> == 0 && x.stride[2] == 1 && aligned<T>(x.data, m > 1 ? x.stride[1] : 0);
  Product all[kMostParts];
  const int count = products_of(args, all);
  for (int i = 0; i < count && ok; ++i) {
    const View& w = *all[i].w;
    const int64_t n = all[i].y->size[2];
    ok = n < kMost / kMostParts && w.stride[1] == 1 && aligned<T>(w.data, n > 1 ? w.stride[2] : 0) &&
         w.dtype == x.dtype && all[i].y->dtype == y.dtype &&
         (!all[i].bias || (all[i].bias->dtype == y.dtype && (all[i].bias->stride[0] == 1 || n <= 1)));
  }
  return ok;
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
  const View &x = args.a, &y = args.c;
  const bool alone = args.what_aux == MatmulAux::kNone || args.what_aux == MatmulAux::kSwiglu;
  if (y.size[0] != 1 || x.size[2] == 0 || args.accumulate || !alone) return false;
  if (x.dtype == DType::kF32) return y.dtype == DType::kF32 && multiply<float>(args);
  return x.dtype == DType::kBF16 && y.dtype != DType::kF64 && multiply<bf16>(args);
}

}  // namespace tally::cuda
