// LayerNorm and RMSNorm forward on a CUDA device: a row lies in the registers of a warp or a block (up to 8192
// numbers); longer rows are read again from the caches. A constant row gives exact zeros. With a residual the row that
// lies in the registers is the rounded sum, so what follows has the bits of the norm of a tensor added up before.
#include "tally/ops/norm_cuda.cuh"

namespace tally::cuda {

namespace {

template <int kThreads>
constexpr int kBlockThreads = kThreads == kWarp ? 128 : kThreads;

struct Forward {
  Rows x, out, residual, sum;  // no data in the last two: x is normed as it is
  Parameter weight, bias;
  float *mean, *rstd;  // no mean: RMSNorm
  int64_t rows, n;
  float eps;
};

// Sums of a row for its mean are such that n equal numbers give n times the number, to the bit: f64 for f32; f32 is
// wide enough for bf16.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 4, double, float>;

template <class N, int kV>
__device__ __forceinline__ N vector_sum(const float (&x)[kV]) {
  N sum[kV];
#pragma unroll
  for (int j = 0; j < kV; ++j) sum[j] = x[j];
#pragma unroll
  for (int w = kV / 2; w > 0; w /= 2) {
#pragma unroll
    for (int j = 0; j < w; ++j) sum[j] += sum[j + w];
  }
  return sum[0];
}
// Makes the compiler convert raw numbers again where they are used next, instead of keeping twice the registers.
template <int kChunks>
__device__ __forceinline__ void convert_again(uint4 (&raw)[kChunks]) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) asm volatile("" : "+r"(raw[c].x), "+r"(raw[c].y), "+r"(raw[c].z), "+r"(raw[c].w));
}

// 16 bytes as they lie in memory.
__device__ __forceinline__ uint4 pack(const float (&x)[4]) {
  return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
}
__device__ __forceinline__ uint4 pack(const float (&x)[8]) {
  uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
  return make_uint4(w[0], w[1], w[2], w[3]);
}

// Adds the residual's row to x's and writes the sum where the row is `there`; a few loads are under way at a time.
template <class T, int kThreads, bool kFast, int kChunks>
__device__ __forceinline__ void add_residual(const Forward& a, int64_t row, bool there, int t, uint4 (&raw)[kChunks]) {
  constexpr int kV = kVector<T>, kBatch = kChunks % 4 == 0 ? 4 : kChunks;
  const int n = static_cast<int>(a.n);
  const T* residual = team_row<const T, kFast>(a.residual, row);
  T* sum = team_row<T, kFast>(a.sum, row);
#pragma unroll
  for (int b = 0; b < kChunks; b += kBatch) {
    constexpr int kSpan = kThreads * kV;
    uint4 more[kBatch];
    load_raw<kThreads>(residual + int64_t{b * kSpan} * a.residual.step, a.residual.step, n - b * kSpan, kFast, t, 0.0f,
                       more);
#pragma unroll
    for (int c = 0; c < kBatch; ++c) {
      float x[kV], r[kV];
      unpack(raw[b + c], x), unpack(more[c], r);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[j] += r[j];
      raw[b + c] = pack(x);
      if (there) store_chunk(sum, a.sum.step, n, kFast, (b + c) * kSpan + t * kV, x);
    }
  }
}

// By the registers for raw numbers and 40 more (56 where a residual is added): some 100 KB of rows are under way on a
// multiprocessor.
template <class T, int kThreads, int kHeld, bool kFast, bool kResidual>
constexpr int kForwardBlocks = kFast ? blocks_of(kBlockThreads<kThreads>,
                                                 kHeld* static_cast<int>(sizeof(T)) / 4 + (kResidual ? 56 : 40))
                                     : 1;

// kThreads threads have kRows rows at a time, kNumbers numbers each of a row. The rows stay in registers as they lie in
// memory. kFast: x, out, residual and sum are plain_rows(), weight and bias `fast` or none.
template <class T, int kThreads, int kNumbers, int kRows, bool kFast, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads<kThreads>,
                                  kForwardBlocks<T, kThreads, kRows * kNumbers, kFast, kResidual>)
    norm_kernel(const __grid_constant__ Forward a) {
  constexpr int kV = kVector<T>, kChunks = kNumbers / kV, kBlockRows = kBlockThreads<kThreads> / kThreads * kRows;
  __shared__ double shared[2 * kRows * (kThreads / kWarp)];
  const int t = threadIdx.x % kThreads, n = static_cast<int>(a.n);
  const float count = static_cast<float>(n);
  int turn = 0;
  let_next_start();
  wait_for_previous();
  for (int64_t row = int64_t{blockIdx.x} * kBlockRows + threadIdx.x / kThreads * kRows; row < a.rows;
       row += int64_t{gridDim.x} * kBlockRows) {
    uint4 raw[kRows][kChunks];
    float mean[kRows] = {}, squares[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r)  // rows that are not there stand for the last one
      load_raw<kThreads>(team_row<const T, kFast>(a.x, min(row + r, a.rows - 1)), a.x.step, n, kFast, t, 0.0f, raw[r]);
    if constexpr (kResidual) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        add_residual<T, kThreads, kFast>(a, min(row + r, a.rows - 1), row + r < a.rows, t, raw[r]);
    }
    if (a.mean != nullptr) {
      Wide<T> sum[kRows] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          float x[kV];
          unpack(raw[r][c], x);
          sum[r] += vector_sum<Wide<T>>(x);
        }
        convert_again(raw[r]);
      }
      row_sum<kThreads>(sum, shared, turn);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        mean[r] = static_cast<float>(sum[r] / static_cast<Wide<T>>(n));
        if (t == 0 && row + r < a.rows) a.mean[row + r] = mean[r];
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float odd = 0;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int first = (c * kThreads + t) * kV;
        if (first >= n) continue;
        float x[kV];
        unpack(raw[r][c], x);
#pragma unroll
        for (int j = 0; j < kV; ++j) {
          const float centred = kFast || first + j < n ? x[j] - mean[r] : 0.0f;
          float& to = j % 2 == 0 ? squares[r] : odd;
          to = fmaf(centred, centred, to);
        }
      }
      squares[r] += odd;
      convert_again(raw[r]);
    }
    row_sum<kThreads>(squares, shared, turn);
    float rstd[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rstd[r] = 1.0f / sqrtf(squares[r] / count + a.eps);
      if (t == 0 && row + r < a.rows) a.rstd[row + r] = rstd[r];
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int first = (c * kThreads + t) * kV;
      if (first >= n) continue;
      float weight[kV], bias[kV];
      load_parameters<kFast>(a.weight, first, n, weight);
      load_parameters<kFast>(a.bias, first, n, bias);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r >= a.rows) continue;
        float x[kV];
        unpack(raw[r][c], x);
#pragma unroll
        for (int j = 0; j < kV; ++j) x[j] = fmaf((x[j] - mean[r]) * rstd[r], weight[j], bias[j]);
        store_chunk(team_row<T, kFast>(a.out, row + r), a.out.step, n, kFast, first, x);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kLongThreads) long_norm_kernel(const __grid_constant__ Forward a) {
  __shared__ double shared[2 * (kLongThreads / kWarp)];
  const float count = static_cast<float>(a.n);
  int turn = 0;
  let_next_start();
  wait_for_previous();
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* x = row_at<const T>(a.x, row);
    T* out = row_at<T>(a.out, row);
    int64_t step = a.x.step;
    if (a.sum.data != nullptr) {  // a thread reads back what it wrote itself
      const T* residual = row_at<const T>(a.residual, row);
      T* sum = row_at<T>(a.sum, row);
#pragma unroll 4
      for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads)
        store_one(sum + i * a.sum.step, load_one(x + i * step) + load_one(residual + i * a.residual.step));
      x = sum, step = a.sum.step;
    }
    float mean = 0;
    if (a.mean != nullptr) {
      double sum[1] = {0};
#pragma unroll 8
      for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads) sum[0] += load_one(x + i * step);
      row_sum<kLongThreads>(sum, shared, turn);
      mean = static_cast<float>(sum[0] / static_cast<double>(a.n));
      if (threadIdx.x == 0) a.mean[row] = mean;
    }
    float squares[1] = {0};
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads) {
      const float centred = load_one(x + i * step) - mean;
      squares[0] = fmaf(centred, centred, squares[0]);
    }
    row_sum<kLongThreads>(squares, shared, turn);
    const float rstd = 1.0f / sqrtf(squares[0] / count + a.eps);
    if (threadIdx.x == 0) a.rstd[row] = rstd;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads)
      store_one(out + i * a.out.step,
                fmaf((load_one(x + i * step) - mean) * rstd, load_parameter(a.weight, i), load_parameter(a.bias, i)));
  }
}

template <class T, int kThreads, int kNumbers, int kRows, bool kFast>
void forward_rows(const char* name, const Forward& a, Device device) {
  constexpr int kBlock = kBlockThreads<kThreads>;
  const auto kernel = a.sum.data != nullptr ? norm_kernel<T, kThreads, kNumbers, kRows, kFast, true>
                                            : norm_kernel<T, kThreads, kNumbers, kRows, kFast, false>;
  launch_after(name, kernel, {blocks_for(a.rows, kBlock / kThreads * kRows, kMostBlocks), kBlock}, device, a);
}

// Few rows, as when tokens are generated, take a block each: it is the time of one row that counts then.
constexpr int64_t kFewRows = 8;
template <class T, bool kFast>
bool forward_few(const char* name, const Forward& a, Device device) {
  if (a.rows > kFewRows || a.n <= 1024 || a.n > 4096) return false;
  if (a.n <= 2048) return forward_rows<T, 256, 8, 1, kFast>(name, a, device), true;
  return forward_rows<T, 256, 16, 1, kFast>(name, a, device), true;
}

// Either way the same n (and few rows or many) means the same kThreads, so views of other strides give the same bits.
template <class T>
void forward_fast(const char* name, const Forward& a, Device device) {
  constexpr bool kHalf = sizeof(T) == 2;  // a warp has 64 registers of a lane for its rows at most
  constexpr int kTinyRows = kHalf ? 4 : 2;
  if (forward_few<T, true>(name, a, device)) return;
  if (a.n <= 256) return forward_rows<T, kWarp, 8, kTinyRows, true>(name, a, device);
  if (a.n <= 768) return forward_rows<T, kWarp, 24, 2, true>(name, a, device);
  if (a.n <= 1024) return forward_rows<T, kWarp, 32, 2, true>(name, a, device);
  if (a.n <= 2048) return forward_rows<T, kWarp, 64, 1, true>(name, a, device);
  if constexpr (kHalf) {
    if (a.n <= 4096) return forward_rows<T, kWarp, 128, 1, true>(name, a, device);
  } else {
    if (a.n <= 4096) return forward_rows<T, 128, 32, 1, true>(name, a, device);
  }
  forward_rows<T, 128, 64, 1, true>(name, a, device);
}
template <class T>
void forward_slow(const char* name, const Forward& a, Device device) {
  constexpr int kMost = 256 / sizeof(T);  // numbers of a lane
  if (forward_few<T, false>(name, a, device)) return;
  if (a.n <= 1024) return forward_rows<T, kWarp, 32, 1, false>(name, a, device);
  if (a.n <= kMost * kWarp) return forward_rows<T, kWarp, kMost, 1, false>(name, a, device);
  forward_rows<T, 128, 64, 1, false>(name, a, device);
}

// As LayerNormArgs has them; no mean: RMSNorm.
void forward(const char* name, const LayerNormArgs& l) {
  const int64_t n = row_length(l.x), rows = row_count(l.x);
  if (rows == 0) return;
  Forward a = {};
  a.x = rows_of(l.x), a.out = rows_of(l.out);
  const bool residual = norm_has(l.residual);
  if (residual) a.residual = rows_of(l.residual), a.sum = rows_of(l.sum);
  a.weight = parameter_of(l.weight, 1.0f), a.bias = parameter_of(l.bias, 0.0f);
  a.mean = static_cast<float*>(l.mean.data), a.rstd = l.rstd.ptr<float>();
  a.rows = rows, a.n = n, a.eps = static_cast<float>(l.eps);
  with_float(name, l.x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto plain = [](const Parameter& p) { return p.fast || p.data == nullptr; };
    const Device device = l.out.device;
    if (n > kMostShort) {
      launch_after(name, long_norm_kernel<T>, {blocks_for(rows, 1, kMostBlocks), kLongThreads}, device, a);
    } else if (plain_rows<T>(a.x, n) && plain_rows<T>(a.out, n) && plain(a.weight) && plain(a.bias) &&
               (!residual || (plain_rows<T>(a.residual, n) && plain_rows<T>(a.sum, n)))) {
      forward_fast<T>(name, a, device);
    } else {
      forward_slow<T>(name, a, device);
    }
  });
}

}  // namespace

void layer_norm(const LayerNormArgs& a) { forward(LayerNormArgs::name, a); }

void rms_norm(const RmsNormArgs& a) {
  forward(RmsNormArgs::name, {a.x, a.weight, {}, a.out, {}, a.rstd, a.eps, a.residual, a.sum});
}

}  // namespace tally::cuda
