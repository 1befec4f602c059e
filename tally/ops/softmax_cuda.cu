// Softmax on a CUDA device: a row lies in the registers of a warp (up to 2048 numbers) or of a block, so memory is read
// and written once; longer rows are read three times by one block, which the second-level cache serves. How a row is
// spread over threads depends on its length only; numbers a thread are few enough for some 64 KB of loads under way on
// a multiprocessor.
#include "tally/ops/device_rows.cuh"
#include "tally/ops/softmax_kernels.h"

namespace tally::cuda {

namespace {

constexpr int kLongThreads = 1024;

template <int kThreads>
constexpr int kBlockThreads = kThreads == kWarp ? 128 : kThreads;

// Blocks of a multiprocessor whose threads have `registers` each.
constexpr int blocks_of(int threads, int registers) { return 65536 / registers / threads; }

__device__ __forceinline__ float shift_of(float most) {
  return most == -INFINITY ? 0.0f : most;  // -inf throughout: exp(-inf) = 0 everywhere
}
__device__ __forceinline__ float scale_of(float sum) { return 1.0f / (sum == 0.0f ? 1.0f : sum); }

// kThreads threads a row, kNumbers numbers a thread. With 64, a warp's row leaves no registers for its address, which
// is spilled: a few loads a row.
template <class T, int kThreads, int kNumbers>
__global__ void __launch_bounds__(kBlockThreads<kThreads>,
                                  blocks_of(kBlockThreads<kThreads>, kNumbers + (kThreads == kWarp ? 40 : 32)))
    softmax_kernel(const __grid_constant__ Rows in, const __grid_constant__ Rows out, int64_t rows, int n, bool fast) {
  constexpr int kV = kVector<T>, kChunks = kNumbers / kV, kRows = kBlockThreads<kThreads> / kThreads;
  __shared__ double shared[2 * (kThreads / kWarp)];
  const int t = threadIdx.x % kThreads;
  int turn = 0;
  for (int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads; row < rows;
       row += int64_t{gridDim.x} * kRows) {
    float x[kChunks][kV];
    load_row<kThreads>(row_at<const T>(in, row), in.step, n, fast, t, -INFINITY, x);
    float most[1] = {-INFINITY}, sum[1] = {0};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kV; ++j) most[0] = fmaxf(most[0], x[c][j]);  // NaN is passed over; the sum finds it
    }
    row_max<kThreads>(most, shared, turn);
    const float shift = shift_of(most[0]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[c][j] = expf(x[c][j] - shift), sum[0] = __fadd_rn(sum[0], x[c][j]);
    }
    row_sum<kThreads>(sum, shared, turn);
    const float scale = scale_of(sum[0]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kV; ++j) x[c][j] *= scale;
    }
    store_row<kThreads>(row_at<T>(out, row), out.step, n, fast, t, x);
  }
}

template <class T, int kThreads, int kNumbers>
__global__ void __launch_bounds__(kBlockThreads<kThreads>, blocks_of(kBlockThreads<kThreads>, 2 * kNumbers + 40))
    gradient_kernel(const __grid_constant__ Rows grad, const __grid_constant__ Rows y, const __grid_constant__ Rows dx,
                    int64_t rows, int n, bool fast) {
  constexpr int kV = kVector<T>, kChunks = kNumbers / kV, kRows = kBlockThreads<kThreads> / kThreads;
  __shared__ double shared[2 * (kThreads / kWarp)];
  const int t = threadIdx.x % kThreads;
  int turn = 0;
  for (int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads; row < rows;
       row += int64_t{gridDim.x} * kRows) {
    float g[kChunks][kV], p[kChunks][kV];
    load_row<kThreads>(row_at<const T>(grad, row), grad.step, n, fast, t, 0.0f, g);
    load_row<kThreads>(row_at<const T>(y, row), y.step, n, fast, t, 0.0f, p);
    float dot[1] = {0};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kV; ++j) dot[0] = fmaf(g[c][j], p[c][j], dot[0]);
    }
    row_sum<kThreads>(dot, shared, turn);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kV; ++j) g[c][j] = p[c][j] * (g[c][j] - dot[0]);
    }
    store_row<kThreads>(row_at<T>(dx, row), dx.step, n, fast, t, g);
  }
}

// ---- rows of any length, a block each

// A vector of the row from number i on.
template <class T>
__device__ __forceinline__ void load_part(const T* p, int64_t step, int64_t i, int64_t n, bool fast, float pad,
                                          float (&x)[kVector<T>]) {
  if (fast) return load_vector(p + i, x);
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) x[j] = i + j < n ? load_one(p + (i + j) * step) : pad;
}
template <class T>
__device__ __forceinline__ void store_part(T* p, int64_t step, int64_t i, int64_t n, bool fast,
                                           const float (&x)[kVector<T>]) {
  if (fast) return store_vector(p + i, x);
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j)
    if (i + j < n) store_one(p + (i + j) * step, x[j]);
}

template <class T>
__global__ void __launch_bounds__(kLongThreads)
    long_softmax_kernel(const __grid_constant__ Rows in, const __grid_constant__ Rows out, int64_t rows, int64_t n,
                        bool fast) {
  constexpr int kV = kVector<T>, kStep = kLongThreads * kV;
  __shared__ float shared[kWarp];
  const int first = static_cast<int>(threadIdx.x) * kV;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* p = row_at<const T>(in, row);
    T* to = row_at<T>(out, row);
    float most = -INFINITY, sum = 0, x[kV];
#pragma unroll 4
    for (int64_t i = first; i < n; i += kStep) {
      load_part(p, in.step, i, n, fast, -INFINITY, x);
#pragma unroll
      for (int j = 0; j < kV; ++j) most = fmaxf(most, x[j]);
    }
    const float shift = shift_of(block_max<kLongThreads>(most, shared));
#pragma unroll 2
    for (int64_t i = first; i < n; i += kStep) {
      load_part(p, in.step, i, n, fast, -INFINITY, x);
#pragma unroll
      for (int j = 0; j < kV; ++j) sum = __fadd_rn(sum, expf(x[j] - shift));
    }
    const float scale = scale_of(block_sum<kLongThreads>(sum, shared));
#pragma unroll 2
    for (int64_t i = first; i < n; i += kStep) {
      load_part(p, in.step, i, n, fast, -INFINITY, x);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] = expf(x[j] - shift) * scale;
      store_part(to, out.step, i, n, fast, x);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kLongThreads)
    long_gradient_kernel(const __grid_constant__ Rows grad, const __grid_constant__ Rows y,
                         const __grid_constant__ Rows dx, int64_t rows, int64_t n, bool fast) {
  constexpr int kV = kVector<T>, kStep = kLongThreads * kV;
  __shared__ float shared[kWarp];
  const int first = static_cast<int>(threadIdx.x) * kV;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T *pg = row_at<const T>(grad, row), *py = row_at<const T>(y, row);
    T* to = row_at<T>(dx, row);
    float dot = 0, g[kV], p[kV];
#pragma unroll 2
    for (int64_t i = first; i < n; i += kStep) {
      load_part(pg, grad.step, i, n, fast, 0.0f, g);
      load_part(py, y.step, i, n, fast, 0.0f, p);
#pragma unroll
      for (int j = 0; j < kV; ++j) dot = fmaf(g[j], p[j], dot);
    }
    dot = block_sum<kLongThreads>(dot, shared);
#pragma unroll 2
    for (int64_t i = first; i < n; i += kStep) {
      load_part(pg, grad.step, i, n, fast, 0.0f, g);
      load_part(py, y.step, i, n, fast, 0.0f, p);
#pragma unroll
      for (int j = 0; j < kV; ++j) g[j] = p[j] * (g[j] - dot);
      store_part(to, dx.step, i, n, fast, g);
    }
  }
}

// ---- launches

constexpr int64_t kMostBlocks = int64_t{1} << 20;

template <class T, int kThreads, int kNumbers>
void forward(const SoftmaxArgs& a, const Rows& x, const Rows& out, int64_t rows, int64_t n, bool fast) {
  constexpr int kBlock = kBlockThreads<kThreads>;
  softmax_kernel<T, kThreads, kNumbers>
      <<<blocks_for(rows, kBlock / kThreads, kMostBlocks), kBlock, 0, stream_of(a.device())>>>(
          x, out, rows, static_cast<int>(n), fast);
}

template <class T, int kThreads, int kNumbers>
void backward(const SoftmaxBackwardArgs& a, const Rows& grad, const Rows& y, const Rows& dx, int64_t rows, int64_t n,
              bool fast) {
  constexpr int kBlock = kBlockThreads<kThreads>;
  gradient_kernel<T, kThreads, kNumbers>
      <<<blocks_for(rows, kBlock / kThreads, kMostBlocks), kBlock, 0, stream_of(a.device())>>>(
          grad, y, dx, rows, static_cast<int>(n), fast);
}

}  // namespace

void softmax(const SoftmaxArgs& a) {
  if (a.x.numel() == 0) return;
  const int64_t n = row_length(a.x), rows = row_count(a.x);
  const Rows x = rows_of(a.x), out = rows_of(a.out);
  with_float(SoftmaxArgs::name, a.x.dtype, [&](auto type) {
    using T = decltype(type);
    const bool fast = vector_rows<T>(x, n) && vector_rows<T>(out, n);
    if (n <= 256) {
      forward<T, 32, 8>(a, x, out, rows, n, fast);
    } else if (n <= 768) {
      forward<T, 32, 24>(a, x, out, rows, n, fast);
    } else if (n <= 1024) {
      forward<T, 32, 32>(a, x, out, rows, n, fast);
    } else if (n <= 2048) {
      forward<T, 32, 64>(a, x, out, rows, n, fast);
    } else if (n <= 4096) {
      forward<T, 128, 32>(a, x, out, rows, n, fast);
    } else if (n <= 8192) {
      forward<T, 128, 64>(a, x, out, rows, n, fast);
    } else if (n <= 16384) {
      forward<T, 256, 64>(a, x, out, rows, n, fast);
    } else {
      long_softmax_kernel<T>
          <<<blocks_for(rows, 1, kMostBlocks), kLongThreads, 0, stream_of(a.device())>>>(x, out, rows, n, fast);
    }
  });
  check_launch(SoftmaxArgs::name);
}

void softmax_backward(const SoftmaxBackwardArgs& a) {
  if (a.y.numel() == 0) return;
  const int64_t n = row_length(a.y), rows = row_count(a.y);
  const Rows grad = rows_of(a.grad), y = rows_of(a.y), dx = rows_of(a.dx);
  with_float(SoftmaxBackwardArgs::name, a.y.dtype, [&](auto type) {
    using T = decltype(type);
    const bool fast = vector_rows<T>(grad, n) && vector_rows<T>(y, n) && vector_rows<T>(dx, n);
    if (n <= 256) {
      backward<T, 32, 8>(a, grad, y, dx, rows, n, fast);
    } else if (n <= 768) {
      backward<T, 32, 24>(a, grad, y, dx, rows, n, fast);
    } else if (n <= 1024) {
      backward<T, 32, 32>(a, grad, y, dx, rows, n, fast);
    } else if (n <= 2048) {
      backward<T, 32, 64>(a, grad, y, dx, rows, n, fast);
    } else if (n <= 4096) {
      backward<T, 128, 32>(a, grad, y, dx, rows, n, fast);
    } else if (n <= 8192) {
      backward<T, 128, 64>(a, grad, y, dx, rows, n, fast);
    } else if (n <= 16384) {
      backward<T, 256, 64>(a, grad, y, dx, rows, n, fast);
    } else {
      long_gradient_kernel<T>
          <<<blocks_for(rows, 1, kMostBlocks), kLongThreads, 0, stream_of(a.device())>>>(grad, y, dx, rows, n, fast);
    }
  });
  check_launch(SoftmaxBackwardArgs::name);
}

}  // namespace tally::cuda
