// LayerNorm and RMSNorm on a CUDA device.
// Forward: a row lies in the registers of a warp (up to 1024 numbers) or a block (up to 8192); longer rows are read
// again from the caches. LayerNorm's mean is a rough mean plus the mean of what is left, so a constant row gives exact
// zeros. Backward, up to 8192 numbers: a team of threads walks over rows, each thread always with the same columns, so
// that dx is written and the sums for dweight and dbias are kept in registers in one reading. The rows of a group
// (norm_kernels.h) are shared out to the teams of a few blocks; on sm_90 these form a cluster, whose blocks join their
// sums through shared memory and write the group's to the scratch. A second kernel adds up the groups. Longer rows take
// one kernel for dx and one for the groups' sums.
#include "tally/ops/device_rows.cuh"
#include "tally/ops/norm_kernels.h"

namespace tally::cuda {

namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 20;
constexpr int kWarps = 8;  // a block, where a warp has a row
constexpr int kLongThreads = 1024;
constexpr int64_t kMostShort = 8192;  // numbers of a row that stay in registers

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

// ---- forward

template <int kThreads>
constexpr int kBlockThreads = kThreads == kWarp ? kWarp* kWarps : kThreads;

struct Forward {
  Rows x, out;
  Parameter weight, bias;
  float *mean, *rstd;  // no mean: RMSNorm
  int64_t rows, n;
  float eps;
  bool fast;
};

// kThreads threads a row, kNumbers numbers a thread.
template <class T, int kThreads, int kNumbers>
__global__ void __launch_bounds__(kBlockThreads<kThreads>, kNumbers == 8 ? 4 : 3)
    norm_kernel(const __grid_constant__ Forward a) {
  constexpr int kV = kVector<T>, kChunks = kNumbers / kV, kRows = kBlockThreads<kThreads> / kThreads;
  __shared__ float shared[kWarp];
  const int t = threadIdx.x % kThreads, n = static_cast<int>(a.n);
  const float count = static_cast<float>(n);
  for (int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads; row < a.rows;
       row += int64_t{gridDim.x} * kRows) {
    float x[kChunks][kV];
    load_row<kThreads>(row_at<const T>(a.x, row), a.x.step, n, a.fast, t, 0.0f, x);
    if (a.mean != nullptr) {
      float sum = 0, left = 0;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int j = 0; j < kV; ++j) sum += x[c][j];
      }
      const float rough = block_sum<kThreads>(sum, shared) / count;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int j = 0; j < kV; ++j)
          if ((c * kThreads + t) * kV + j < n) left += x[c][j] - rough;
      }
      const float mean = rough + block_sum<kThreads>(left, shared) / count;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int j = 0; j < kV; ++j) x[c][j] = (c * kThreads + t) * kV + j < n ? x[c][j] - mean : 0.0f;
      }
      if (t == 0) a.mean[row] = mean;
    }
    float squares = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kV; ++j) squares = fmaf(x[c][j], x[c][j], squares);
    }
    const float rstd = 1.0f / sqrtf(block_sum<kThreads>(squares, shared) / count + a.eps);
    if (t == 0) a.rstd[row] = rstd;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int first = (c * kThreads + t) * kV;
      float weight[kV], bias[kV];
      load_parameters<false>(a.weight, first, n, weight);
      load_parameters<false>(a.bias, first, n, bias);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[c][j] = fmaf(x[c][j] * rstd, weight[j], bias[j]);
    }
    store_row<kThreads>(row_at<T>(a.out, row), a.out.step, n, a.fast, t, x);
  }
}

template <class T>
__global__ void __launch_bounds__(kLongThreads) long_norm_kernel(const __grid_constant__ Forward a) {
  __shared__ float shared[kWarp];
  const float count = static_cast<float>(a.n);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* x = row_at<const T>(a.x, row);
    T* out = row_at<T>(a.out, row);
    float mean = 0;
    if (a.mean != nullptr) {
#pragma unroll 1
      for (int pass = 0; pass < 2; ++pass) {
        float sum = 0;
#pragma unroll 8
        for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads) sum += load_one(x + i * a.x.step) - mean;
        mean += block_sum<kLongThreads>(sum, shared) / count;
      }
      if (threadIdx.x == 0) a.mean[row] = mean;
    }
    float squares = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads) {
      const float centred = load_one(x + i * a.x.step) - mean;
      squares = fmaf(centred, centred, squares);
    }
    const float rstd = 1.0f / sqrtf(block_sum<kLongThreads>(squares, shared) / count + a.eps);
    if (threadIdx.x == 0) a.rstd[row] = rstd;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads)
      store_one(out + i * a.out.step, fmaf((load_one(x + i * a.x.step) - mean) * rstd, load_parameter(a.weight, i),
                                           load_parameter(a.bias, i)));
  }
}

template <class T, int kThreads, int kNumbers>
void forward_rows(const Forward& a, cudaStream_t stream) {
  constexpr int kBlock = kBlockThreads<kThreads>;
  norm_kernel<T, kThreads, kNumbers><<<blocks_for(a.rows, kBlock / kThreads, kMostBlocks), kBlock, 0, stream>>>(a);
}

void forward(const char* name, const View& x, const View& out, const View& weight, const View& bias, float* mean,
             float* rstd, double eps) {
  const int64_t n = row_length(x), rows = row_count(x);
  if (rows == 0) return;
  with_float(name, x.dtype, [&](auto type) {
    using T = decltype(type);
    Forward a = {rows_of(x),
                 rows_of(out),
                 parameter_of(weight, 1.0f),
                 parameter_of(bias, 0.0f),
                 mean,
                 rstd,
                 rows,
                 n,
                 static_cast<float>(eps),
                 false};
    a.fast = vector_rows<T>(a.x, n) && vector_rows<T>(a.out, n);
    const cudaStream_t stream = stream_of(out.device);
    if (n <= 256) {
      forward_rows<T, 32, 8>(a, stream);
    } else if (n <= 1024) {
      forward_rows<T, 32, 32>(a, stream);
    } else if (n <= 2048) {
      forward_rows<T, 256, 8>(a, stream);
    } else if (n <= kMostShort) {
      forward_rows<T, 256, 32>(a, stream);
    } else {
      long_norm_kernel<T><<<blocks_for(rows, 1, kMostBlocks), kLongThreads, 0, stream>>>(a);
    }
  });
  check_launch(name);
}

// ---- backward: RMSNorm is the case without a mean

struct Backward {
  Rows grad, x, dx;
  Parameter weight;
  const float *mean, *rstd;        // no mean: RMSNorm
  float *weight_sums, *bias_sums;  // (groups, n) each, or null
  int64_t rows, n, group_rows;
  int team, blocks;  // threads of a team, blocks of a group
  bool has_dx;
};

constexpr int kTeamThreads = 256;  // of a block, where a row needs no more
constexpr int kCluster = 8;
template <int kThreads, bool kFast>
constexpr int kTeamBlocks = kFast&& kThreads == kTeamThreads ? 3 : 1;

// A row's part of a thread as it lies in memory where whole vectors can be read, else as numbers.
template <class T, int kNumbers, bool kFast>
struct Part {
  static constexpr int kV = kVector<T>, kVectors = kNumbers / kV;
  uint4 raw[kVectors];

  __device__ __forceinline__ void load(const T* p, int64_t, int first, int n) {
#pragma unroll
    for (int c = 0; c < kVectors; ++c)
      raw[c] = first + c * kV < n ? *reinterpret_cast<const uint4*>(p + first + c * kV) : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void numbers(float (&x)[kNumbers]) const {
#pragma unroll
    for (int c = 0; c < kVectors; ++c) {
      float part[kV];
      unpack(raw[c], part);
#pragma unroll
      for (int j = 0; j < kV; ++j) x[c * kV + j] = part[j];
    }
  }
};
template <class T, int kNumbers>
struct Part<T, kNumbers, false> {
  float number[kNumbers];

  __device__ __forceinline__ void load(const T* p, int64_t step, int first, int n) {
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) number[j] = first + j < n ? load_one(p + (first + j) * step) : 0.0f;
  }
  __device__ __forceinline__ void numbers(float (&x)[kNumbers]) const {
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) x[j] = number[j];
  }
};

// kFast: equal steps between all rows are known, which spares the registers for a division.
template <class T, bool kFast>
__device__ __forceinline__ T* team_row(const Rows& r, int64_t row) {
  if constexpr (kFast) return static_cast<T*>(r.data) + row * r.outer.stride.v[0];
  return row_at<T>(r, row);
}

// Both sums over a team of whole warps. `shared` has two numbers a warp of the block and another such half: a warp may
// be one row ahead of the slowest, so rows take turns with the halves.
__device__ __forceinline__ void team_sums(float& x, float& y, float2* shared, int team, int turn) {
  x = warp_sum(x), y = warp_sum(y);
  if (team == kWarp) return;
  const int warps = team / kWarp, number = static_cast<int>(threadIdx.x) / team;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) % team / kWarp;
  float2* mine = shared + turn * kWarp + number * warps;
  if (lane == 0) mine[warp] = make_float2(x, y);
  asm volatile("barrier.sync %0, %1;" ::"r"(1 + number), "r"(team) : "memory");
  const float2 other = lane < warps ? mine[lane] : make_float2(0.0f, 0.0f);
  x = warp_sum(other.x), y = warp_sum(other.y);
}

// Adds up a thread's sums over the teams of a block and the blocks of a group; shared has n numbers a team.
template <int kNumbers>
__device__ __forceinline__ void join_sums(const Backward& a, const float (&sums)[kNumbers], float* shared, int first,
                                          int teams, int number, int64_t group, int block, float* out) {
  const int n = static_cast<int>(a.n), threads = static_cast<int>(blockDim.x), width = a.team * kNumbers;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) shared[number * width + first + j] = sums[j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += threads) {
    float sum = 0;
    for (int k = 0; k < teams; ++k) sum += shared[k * width + i];
    shared[i] = sum;  // read by this thread only so far
  }
  sync_cluster();
  for (int i = block * threads + static_cast<int>(threadIdx.x); i < n; i += a.blocks * threads) {
    float sum = 0;
    for (int k = 0; k < a.blocks; ++k) sum += read_block(shared + i, k);
    out[group * n + i] = sum;
  }
  sync_cluster();  // nobody ends or writes again while others read
}

// Block k of a group has the rows k * teams + number of each round. kThreads: the most of a block.
template <class T, int kNumbers, int kThreads, bool kFast>
__global__ void __launch_bounds__(kThreads, kTeamBlocks<kThreads, kFast>)
    gradient_kernel(const __grid_constant__ Backward a) {
  // What there is room for in registers: the next row, the weight.
  constexpr bool kAhead = kFast && kNumbers == kVector<T>, kKeep = kThreads == kTeamThreads;
  __shared__ float shared[kThreads * kNumbers];
  __shared__ float2 team_shared[2 * kWarp];
  const int number = static_cast<int>(threadIdx.x) / a.team, teams = static_cast<int>(blockDim.x) / a.team;
  const int first = static_cast<int>(threadIdx.x) % a.team * kNumbers, n = static_cast<int>(a.n);
  const int block = static_cast<int>(blockIdx.x) % a.blocks;
  const int64_t group = blockIdx.x / a.blocks, begin = group * a.group_rows;
  const int rows = static_cast<int>(min(a.group_rows, a.rows - begin)), step = a.blocks * teams;
  const float count = static_cast<float>(n);

  float weight[kNumbers], weight_sum[kNumbers] = {}, bias_sum[kNumbers] = {};
  if (kKeep) load_parameters<kFast>(a.weight, first, n, weight);
  Part<T, kNumbers, kFast> raw_g, raw_x;
  float next_mean = 0, next_rstd = 0;
  const auto load = [&](int i) {
    const int64_t row = begin + i;
    raw_g.load(team_row<const T, kFast>(a.grad, row), a.grad.step, first, n);
    raw_x.load(team_row<const T, kFast>(a.x, row), a.x.step, first, n);
    next_mean = a.mean != nullptr ? a.mean[row] : 0.0f, next_rstd = a.rstd[row];
  };
  int i = block * teams + number;  // counts from the group's first row
  if (kAhead && i < rows) load(i);
  for (int turn = 0; i < rows; i += step, turn ^= 1) {
    if (!kAhead) load(i);
    if (!kKeep) load_parameters<kFast>(a.weight, first, n, weight);
    float g[kNumbers], x[kNumbers], sum = 0, dot = 0;
    raw_g.numbers(g), raw_x.numbers(x);
    const float mean = next_mean, rstd = next_rstd;
    if (kAhead && i + step < rows) load(i + step);
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) {
      x[j] = (x[j] - mean) * rstd;
      weight_sum[j] = fmaf(g[j], x[j], weight_sum[j]), bias_sum[j] += g[j];
      g[j] = __fmul_rn(g[j], weight[j]);
      sum += g[j], dot = fmaf(g[j], x[j], dot);
    }
    if (!a.has_dx) continue;
    team_sums(sum, dot, team_shared, a.team, turn);
    const float h_mean = a.mean != nullptr ? sum / count : 0.0f, slope = -(dot / count);
    T* to = team_row<T, kFast>(a.dx, begin + i);
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) x[j] = fmaf(x[j], slope, g[j] - h_mean) * rstd;
#pragma unroll
    for (int c = 0; c < kNumbers; c += kVector<T>) {
      if constexpr (kFast) {
        float part[kVector<T>];
#pragma unroll
        for (int j = 0; j < kVector<T>; ++j) part[j] = x[c + j];
        if (first + c < n) store_vector(to + first + c, part);
      } else {
#pragma unroll
        for (int j = c; j < c + kVector<T>; ++j)
          if (first + j < n) store_one(to + (first + j) * a.dx.step, x[j]);
      }
    }
  }
  if (a.weight_sums != nullptr) join_sums(a, weight_sum, shared, first, teams, number, group, block, a.weight_sums);
  if (a.bias_sums != nullptr) join_sums(a, bias_sum, shared, first, teams, number, group, block, a.bias_sums);
}

template <class T>
__global__ void __launch_bounds__(kLongThreads) long_gradient_kernel(const __grid_constant__ Backward a) {
  __shared__ float shared[kWarp];
  const float count = static_cast<float>(a.n);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T *g = row_at<const T>(a.grad, row), *x = row_at<const T>(a.x, row);
    T* to = row_at<T>(a.dx, row);
    const float mean = a.mean != nullptr ? a.mean[row] : 0.0f, rstd = a.rstd[row];
    float sum = 0, dot = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads) {
      const float h = __fmul_rn(load_one(g + i * a.grad.step), load_parameter(a.weight, i));
      sum += h, dot = fmaf(h, (load_one(x + i * a.x.step) - mean) * rstd, dot);
    }
    sum = block_sum<kLongThreads>(sum, shared), dot = block_sum<kLongThreads>(dot, shared);
    const float h_mean = a.mean != nullptr ? sum / count : 0.0f, slope = -(dot / count);
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < a.n; i += kLongThreads) {
      const float h = __fmul_rn(load_one(g + i * a.grad.step), load_parameter(a.weight, i));
      store_one(to + i * a.dx.step, fmaf((load_one(x + i * a.x.step) - mean) * rstd, slope, h - h_mean) * rstd);
    }
  }
}

constexpr int kColumnThreads = 256;

// A thread has a column of a group.
template <class T>
__global__ void __launch_bounds__(kColumnThreads) long_sums_kernel(const __grid_constant__ Backward a) {
  const int64_t tiles = (a.n + kColumnThreads - 1) / kColumnThreads, group = blockIdx.x / tiles;
  const int64_t i = blockIdx.x % tiles * kColumnThreads + threadIdx.x;
  if (i >= a.n) return;
  const int64_t begin = group * a.group_rows, end = min(begin + a.group_rows, a.rows);
  float weight_sum = 0, bias_sum = 0;
#pragma unroll 8
  for (int64_t row = begin; row < end; ++row) {
    const float g = load_one(row_at<const T>(a.grad, row) + i * a.grad.step);
    const float x = load_one(row_at<const T>(a.x, row) + i * a.x.step);
    const float mean = a.mean != nullptr ? a.mean[row] : 0.0f;
    weight_sum = fmaf(g, (x - mean) * a.rstd[row], weight_sum), bias_sum += g;
  }
  if (a.weight_sums != nullptr) a.weight_sums[group * a.n + i] = weight_sum;
  if (a.bias_sums != nullptr) a.bias_sums[group * a.n + i] = bias_sum;
}

struct Join {
  const float* sums;  // (groups, n)
  void* out;
  int64_t step;
  bool is_bf16, add;
};

// out = sums over the groups in order, on top of out with `add`; blockIdx.y says which of two.
__global__ void __launch_bounds__(kColumnThreads) join_kernel(Join a, Join b, int64_t groups, int64_t n) {
  const Join j = blockIdx.y == 0 ? a : b;
  for (int64_t i = int64_t{blockIdx.x} * kColumnThreads + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kColumnThreads) {
    float sum = 0;
#pragma unroll 16
    for (int64_t g = 0; g < groups; ++g) sum += j.sums[g * n + i];
    const int64_t at = i * j.step;
    if (j.is_bf16) {
      bf16* out = static_cast<bf16*>(j.out) + at;
      store_one(out, j.add ? sum + load_one(out) : sum);
    } else {
      float* out = static_cast<float*>(j.out) + at;
      *out = j.add ? sum + *out : sum;
    }
  }
}

template <class T, int kNumbers, int kThreads>
void launch_teams(const char* name, Backward& a, int64_t groups, bool fast, Device device) {
  a.team = static_cast<int>(parts(parts(a.n, kNumbers), kWarp)) * kWarp;
  a.blocks = cluster_blocks(device, kCluster);
  const int threads = kThreads == kTeamThreads ? kTeamThreads / a.team * a.team : a.team;
  launch_clusters(name,
                  fast ? gradient_kernel<T, kNumbers, kThreads, true> : gradient_kernel<T, kNumbers, kThreads, false>,
                  static_cast<unsigned>(groups), a.blocks, threads, device, a);
}

template <class T>
void launch_long(const char* name, const Backward& a, int64_t groups, Device device) {
  if (a.has_dx) {
    long_gradient_kernel<T><<<blocks_for(a.rows, 1, kMostBlocks), kLongThreads, 0, stream_of(device)>>>(a);
    check_launch(name);
  }
  if (a.weight_sums == nullptr && a.bias_sums == nullptr) return;
  const auto blocks = static_cast<unsigned>(groups * parts(a.n, kColumnThreads));
  long_sums_kernel<T><<<blocks, kColumnThreads, 0, stream_of(device)>>>(a);
  check_launch(name);
}

void backward(const char* name, const RmsNormBackwardArgs& r, const float* mean, const View& dbias, bool add_bias) {
  const Device device = r.grad.device;
  Backward a = {};
  a.n = row_length(r.x), a.rows = row_count(r.x);
  if (a.n == 0) return;
  const int64_t groups = norm_groups(a.rows);
  const bool has_weight = norm_has(r.dweight), has_bias = norm_has(dbias);
  float* scratch = static_cast<float*>(r.scratch.data);
  if (has_weight) a.weight_sums = scratch, scratch += groups * a.n;
  if (has_bias) a.bias_sums = scratch;
  a.has_dx = norm_has(r.dx);
  a.grad = rows_of(r.grad), a.x = rows_of(r.x);
  if (a.has_dx) a.dx = rows_of(r.dx);
  a.weight = parameter_of(r.weight, 1.0f);
  a.mean = mean, a.rstd = static_cast<const float*>(r.rstd.data);
  a.group_rows = norm_group_rows(a.rows);
  if (a.rows > 0) {
    with_float(name, r.x.dtype, [&](auto type) {
      using T = decltype(type);
      const auto plain = [&](const Rows& rows) { return vector_rows<T>(rows, a.n) && rows.outer.size.rank <= 1; };
      const bool fast =
          plain(a.grad) && plain(a.x) && (!a.has_dx || plain(a.dx)) && (a.weight.fast || a.weight.data == nullptr);
      if (a.n > kMostShort) return launch_long<T>(name, a, groups, device);
      constexpr int kV = kVector<T>;
      if (a.n <= kTeamThreads * kV) return launch_teams<T, kV, kTeamThreads>(name, a, groups, fast, device);
      if (a.n <= 1024 * kV) return launch_teams<T, kV, 1024>(name, a, groups, fast, device);
      // Two vectors a thread: the weight's second has to be there too.
      if constexpr (kV < 8) launch_teams<T, 8, 1024>(name, a, groups, fast && a.n % 8 == 0, device);
    });
  }
  if (!has_weight && !has_bias) return;
  const Join weight = {a.weight_sums, r.dweight.data, r.dweight.stride.v[0], r.dweight.dtype == DType::kBF16,
                       r.add_weight};
  const Join bias = {a.bias_sums, dbias.data, dbias.stride.v[0], dbias.dtype == DType::kBF16, add_bias};
  const dim3 grid(blocks_for(a.n, kColumnThreads), has_weight && has_bias ? 2 : 1);
  join_kernel<<<grid, kColumnThreads, 0, stream_of(device)>>>(has_weight ? weight : bias, bias, groups, a.n);
  check_launch(name);
}

}  // namespace

void layer_norm(const LayerNormArgs& a) {
  forward(LayerNormArgs::name, a.x, a.out, a.weight, a.bias, a.mean.ptr<float>(), a.rstd.ptr<float>(), a.eps);
}

void layer_norm_backward(const LayerNormBackwardArgs& a) {
  const RmsNormBackwardArgs shared = {a.grad, a.x, a.weight, a.rstd, a.dx, a.dweight, a.scratch, a.add_weight};
  backward(LayerNormBackwardArgs::name, shared, a.mean.ptr<float>(), a.dbias, a.add_bias);
}

void rms_norm(const RmsNormArgs& a) {
  forward(RmsNormArgs::name, a.x, a.out, a.weight, {}, nullptr, a.rstd.ptr<float>(), a.eps);
}

void rms_norm_backward(const RmsNormBackwardArgs& a) { backward(RmsNormBackwardArgs::name, a, nullptr, {}, false); }

}  // namespace tally::cuda
