// The norms' backward on a CUDA device. Up to 8192 numbers a row: a team of threads walks over rows, each thread always
// with the same columns, so that dx is written and the sums for dweight and dbias are kept in registers in one reading.
// The rows of a group (norm_kernels.h) are shared out to the teams of a few blocks; on sm_90 these form a cluster,
// whose blocks join their sums through shared memory and write the group's to the scratch. A second kernel adds up the
// groups. Longer rows take one kernel for dx and one for the groups' sums. RMSNorm is the case without a mean.
#include "tally/ops/norm_cuda.cuh"

namespace tally::cuda {

namespace {

struct Backward {
  Rows grad, x, dx, grad_sum;  // no data in the last: none; else its memory may be dx's
  Parameter weight;
  const float *mean, *rstd;        // no mean: RMSNorm
  float *weight_sums, *bias_sums;  // (groups, n) each, or null
  int64_t rows, n, group_rows;
  int team, blocks;  // threads of a team, blocks of a group
  bool has_dx;
};

constexpr int kMostThreads = 1024;
constexpr int kCluster = 2;       // 64 groups of two blocks are one block a multiprocessor of an H200
constexpr int kRing = 64 * 1024;  // bytes of rows ahead of one tensor

// A thread's own part of the rows ahead, g, x and with kSum grad_sum, in shared memory: copies under way need no
// registers, and as nobody else reads them no barrier.
template <class T, int kNumbers, bool kSum>
struct Ring {
  static constexpr int kV = kVector<T>, kVectors = kNumbers / kV, kDepth = kRing / (kMostThreads * kVectors * 16);
  static constexpr int kTensors = kSum ? 3 : 2, kSlot = kTensors * kVectors * kMostThreads;
  uint4* mine;
  const T *g, *x, *s;  // of the next row to ask for
  int slot, valid;     // `valid` vectors lie in the row

  static __device__ __forceinline__ void copy(uint4* to, const T* from) {
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  }
  // Into the slot that was read last. Counts as a row asked for also where there is none.
  __device__ __forceinline__ void ask(bool there, const Backward& a, int step) {
    if (there) {
      uint4* to = mine + slot * kSlot;
#pragma unroll
      for (int c = 0; c < kVectors; ++c) {
        if (c >= valid) continue;
        copy(to + kTensors * c * kMostThreads, g + c * kV);
        copy(to + (kTensors * c + 1) * kMostThreads, x + c * kV);
        if constexpr (kSum) copy(to + (kTensors * c + 2) * kMostThreads, s + c * kV);
      }
      g += step * a.grad.outer.stride.v[0], x += step * a.x.outer.stride.v[0];
      if constexpr (kSum) s += step * a.grad_sum.outer.stride.v[0];
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    slot = slot + 1 == kDepth ? 0 : slot + 1;
  }
  // After kDepth rows were asked for: the oldest of them.
  __device__ __forceinline__ void take(float (&to_g)[kNumbers], float (&to_x)[kNumbers]) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
    const uint4* from = mine + slot * kSlot;
#pragma unroll
    for (int c = 0; c < kVectors; ++c) {
      const uint4 zero = make_uint4(0, 0, 0, 0);
      float part[kV];
      unpack(c < valid ? from[kTensors * c * kMostThreads] : zero, part);
#pragma unroll
      for (int j = 0; j < kV; ++j) to_g[c * kV + j] = part[j];
      unpack(c < valid ? from[(kTensors * c + 1) * kMostThreads] : zero, part);
#pragma unroll
      for (int j = 0; j < kV; ++j) to_x[c * kV + j] = part[j];
    }
  }
  // Vector c of the same row's grad_sum, one that lies in the row.
  __device__ __forceinline__ void take_sum(int c, float (&to)[kV]) const {
    unpack(mine[slot * kSlot + (kTensors * c + 2) * kMostThreads], to);
  }
};

// The sum of a gradient, rounded first, and of what the normed tensor has from elsewhere.
template <class T>
__device__ __forceinline__ float add_stored(float dx, float other) {
  if constexpr (sizeof(T) == 2) {
    bf16 rounded;
    store_one(&rounded, dx);
    dx = to_float(rounded);
  }
  return other + dx;
}

template <class T, int kNumbers>
__device__ __forceinline__ void load_numbers(const T* p, int64_t step, int first, int n, float (&x)[kNumbers]) {
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) x[j] = first + j < n ? load_one(p + (first + j) * step) : 0.0f;
}

// Both sums over a team of whole warps: the lower half of a warp joins x, the upper y. `shared` has two numbers for
// each of 32 warps and another such half: a warp may be one row ahead of the slowest, so rows take turns with the
// halves.
__device__ __forceinline__ void team_sums(float& x, float& y, float* shared, int team, int number, int turn) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, half_lane = lane % (kWarp / 2);
  const bool upper = lane >= kWarp / 2;
  float sum = upper ? y : x;
  sum += __shfl_xor_sync(kAll, upper ? x : y, kWarp / 2);
#pragma unroll
  for (int w = kWarp / 4; w > 0; w /= 2) sum += __shfl_xor_sync(kAll, sum, w);
  if (team > kWarp) {
    const int warps = team / kWarp, warp = static_cast<int>(threadIdx.x) / kWarp - number * warps;
    float* mine = shared + 2 * (turn * kWarp + number * warps) + (upper ? warps : 0);
    if (half_lane == 0) mine[warp] = sum;
    asm volatile("barrier.sync %0, %1;" ::"r"(1 + number), "r"(team) : "memory");
    sum = half_lane < warps ? mine[half_lane] : 0.0f;
    if (half_lane + kWarp / 2 < warps) sum += mine[half_lane + kWarp / 2];
#pragma unroll
    for (int w = kWarp / 4; w > 0; w /= 2) sum += __shfl_xor_sync(kAll, sum, w);
  }
  x = __shfl_sync(kAll, sum, 0), y = __shfl_sync(kAll, sum, kWarp / 2);
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
  __syncthreads();  // the cluster's barrier would do: racecheck does not know it
  sync_cluster();
  for (int i = block * threads + static_cast<int>(threadIdx.x); i < n; i += a.blocks * threads) {
    float sum = 0;
    for (int k = 0; k < a.blocks; ++k) sum += read_block(shared + i, k);
    out[group * n + i] = sum;
  }
  __syncthreads();
  sync_cluster();  // nobody ends or writes again while others read
}

// Block k of a group has the rows k * teams + number of each round. A block has all registers of a multiprocessor, 64 a
// thread: the rows' offsets spill some where rows are strided, nothing in the loop over rows where they are plain.
// kSum: there is a grad_sum.
template <class T, int kNumbers, bool kFast, bool kSum>
__global__ void __launch_bounds__(kMostThreads) gradient_kernel(const __grid_constant__ Backward a) {
  extern __shared__ uint4 dynamic[];
  __shared__ float team_shared[4 * kWarp];
  const int number = static_cast<int>(threadIdx.x) / a.team, teams = static_cast<int>(blockDim.x) / a.team;
  const int first = static_cast<int>(threadIdx.x) % a.team * kNumbers, n = static_cast<int>(a.n);
  const int block = static_cast<int>(blockIdx.x) % a.blocks;
  const int64_t group = blockIdx.x / a.blocks, begin = group * a.group_rows;
  const int rows = static_cast<int>(min(a.group_rows, a.rows - begin)), step = a.blocks * teams;
  const float inverse = 1.0f / static_cast<float>(n);

  float weight[kNumbers], weight_sum[kNumbers] = {}, bias_sum[kNumbers] = {};
  // The weight waits in shared memory too: there are no registers left for it.
  float4* const own_weight = reinterpret_cast<float4*>(dynamic) + (kSum ? 3 : 2) * kRing / 16 + threadIdx.x;
  int i = block * teams + number;  // counts from the group's first row
  float next_mean = 0, next_rstd = 0;
  const auto load_next = [&](int next) {
    if (next >= rows) return;
    next_mean = a.mean != nullptr ? a.mean[begin + next] : 0.0f, next_rstd = a.rstd[begin + next];
  };
  load_next(i);
  Ring<T, kNumbers, kSum> ring;
  if constexpr (kFast) {
    load_parameters<kFast>(a.weight, first, n, weight);
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4)
      own_weight[j / 4 * kMostThreads] = make_float4(weight[j], weight[j + 1], weight[j + 2], weight[j + 3]);
    ring.mine = dynamic + threadIdx.x, ring.slot = 0;
    ring.g = team_row<const T, kFast>(a.grad, begin + i) + first;
    ring.x = team_row<const T, kFast>(a.x, begin + i) + first;
    if constexpr (kSum) ring.s = team_row<const T, kFast>(a.grad_sum, begin + i) + first;
    ring.valid = first < n ? (n - first) / kVector<T> : 0;
#pragma unroll
    for (int k = 0; k < ring.kDepth; ++k) ring.ask(i + k * step < rows, a, step);
  }
  for (int turn = 0; i < rows; i += step, turn ^= 1) {
    float g[kNumbers], x[kNumbers], sum = 0, dot = 0;
    if constexpr (kFast) {
      ring.take(g, x);
#pragma unroll
      for (int j = 0; j < kNumbers; j += 4) {
        const float4 w = own_weight[j / 4 * kMostThreads];
        weight[j] = w.x, weight[j + 1] = w.y, weight[j + 2] = w.z, weight[j + 3] = w.w;
      }
    } else {
      load_parameters<kFast>(a.weight, first, n, weight);
      load_numbers(row_at<const T>(a.grad, begin + i), a.grad.step, first, n, g);
      load_numbers(row_at<const T>(a.x, begin + i), a.x.step, first, n, x);
    }
    const float mean = next_mean, rstd = next_rstd;
    load_next(i + step);
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) {
      x[j] = (x[j] - mean) * rstd;
      weight_sum[j] = fmaf(g[j], x[j], weight_sum[j]), bias_sum[j] += g[j];
      g[j] = __fmul_rn(g[j], weight[j]);
      sum += g[j], dot = fmaf(g[j], x[j], dot);
    }
    if (a.has_dx) team_sums(sum, dot, team_shared, a.team, number, turn);
    // What lay in its slot has been used, but for grad_sum.
    if constexpr (kFast && !kSum) ring.ask(i + ring.kDepth * step < rows, a, step);
    if (!a.has_dx) continue;
    const float h_mean = a.mean != nullptr ? sum * inverse : 0.0f, slope = -(dot * inverse);
    T* to = team_row<T, kFast>(a.dx, begin + i);
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) x[j] = __fmul_rn(fmaf(x[j], slope, g[j] - h_mean), rstd);
#pragma unroll
    for (int c = 0; c < kNumbers; c += kVector<T>) {
      if constexpr (kFast) {
        if (first + c >= n) continue;
        float part[kVector<T>];
        if constexpr (kSum) ring.take_sum(c / kVector<T>, part);
#pragma unroll
        for (int j = 0; j < kVector<T>; ++j) part[j] = kSum ? add_stored<T>(x[c + j], part[j]) : x[c + j];
        store_vector(to + first + c, part);
      } else {
#pragma unroll
        for (int j = c; j < c + kVector<T>; ++j) {
          if (first + j >= n) continue;
          if constexpr (kSum)
            x[j] =
                add_stored<T>(x[j], load_one(row_at<const T>(a.grad_sum, begin + i) + (first + j) * a.grad_sum.step));
          store_one(to + (first + j) * a.dx.step, x[j]);
        }
      }
    }
    if constexpr (kFast && kSum) ring.ask(i + ring.kDepth * step < rows, a, step);
  }
  __syncthreads();  // the ring becomes room for the sums
  float* shared = reinterpret_cast<float*>(dynamic);
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
      float dx = __fmul_rn(fmaf((load_one(x + i * a.x.step) - mean) * rstd, slope, h - h_mean), rstd);
      if (a.grad_sum.data != nullptr)
        dx = add_stored<T>(dx, load_one(row_at<const T>(a.grad_sum, row) + i * a.grad_sum.step));
      store_one(to + i * a.dx.step, dx);
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

template <class T, int kNumbers, bool kSum>
void launch_teams(const char* name, Backward& a, int64_t groups, bool fast, Device device) {
  a.team = static_cast<int>(parts(parts(a.n, kNumbers), kWarp)) * kWarp;
  a.blocks = cluster_blocks(device, kCluster);
  const int fit = kMostThreads / a.team, teams = a.team > kWarp && fit > 15 ? 15 : fit;  // 15 named barriers
  const int join = kMostThreads * kNumbers * static_cast<int>(sizeof(float));            // or the weight
  launch_clusters_shared(
      name, fast ? gradient_kernel<T, kNumbers, true, kSum> : gradient_kernel<T, kNumbers, false, kSum>,
      static_cast<unsigned>(groups), a.blocks, teams * a.team, fast ? (kSum ? 3 : 2) * kRing + join : join, device, a);
}
template <class T, int kNumbers>
void launch_teams(const char* name, Backward& a, int64_t groups, bool fast, Device device) {
  if (a.grad_sum.data != nullptr) return launch_teams<T, kNumbers, true>(name, a, groups, fast, device);
  launch_teams<T, kNumbers, false>(name, a, groups, fast, device);
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
  if (norm_has(r.grad_sum)) a.grad_sum = rows_of(r.grad_sum);
  a.weight = parameter_of(r.weight, 1.0f);
  a.mean = mean, a.rstd = static_cast<const float*>(r.rstd.data);
  a.group_rows = norm_group_rows(a.rows);
  if (a.rows > 0) {
    with_float(name, r.x.dtype, [&](auto type) {
      using T = decltype(type);
      const bool fast =
          plain_rows<T>(a.grad, a.n) && plain_rows<T>(a.x, a.n) && (!a.has_dx || plain_rows<T>(a.dx, a.n)) &&
          (!norm_has(r.grad_sum) || plain_rows<T>(a.grad_sum, a.n)) && (a.weight.fast || a.weight.data == nullptr);
      if (a.n > kMostShort) return launch_long<T>(name, a, groups, device);
      constexpr int kV = kVector<T>;
      if (a.n <= kMostThreads * kV) return launch_teams<T, kV>(name, a, groups, fast, device);
      // Two vectors a thread: the weight's second has to be there too.
      if constexpr (kV < 8) launch_teams<T, 8>(name, a, groups, fast && a.n % 8 == 0, device);
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

void layer_norm_backward(const LayerNormBackwardArgs& a) {
  const RmsNormBackwardArgs shared = {a.grad,    a.x,       a.weight,     a.rstd,    a.dx,
                                      a.dweight, a.scratch, a.add_weight, a.grad_sum};
  backward(LayerNormBackwardArgs::name, shared, a.mean.ptr<float>(), a.dbias, a.add_bias);
}

void rms_norm_backward(const RmsNormBackwardArgs& a) { backward(RmsNormBackwardArgs::name, a, nullptr, {}, false); }

}  // namespace tally::cuda
