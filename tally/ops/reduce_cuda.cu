// Reductions on a CUDA device. The reduced elements of an output are numbered in logical order and spread over threads
// by that number, so a result depends on its own elements, their count and the dtype only, not on strides. Where x's
// last axis is reduced, 4 threads, a warp or a block have an output, each thread whole vectors of it; else a thread has
// a vector of neighbouring outputs (columns) and, of many elements, every 16th or 128th, which shared memory joins. Of
// very many elements blocks have a share each: of neighbours those of a cluster; of columns, as for the gradient of a
// bias, blocks that leave their sums in scratch for a second launch. Where strides do not allow vectors the same
// numbers are fetched one by one.
#include "tally/ops/device_rows.cuh"
#include "tally/ops/reduce_kernels.h"

namespace tally::cuda {

namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 20;
constexpr int kCluster = 8;

struct Reduction {
  void *x, *out;
  Space kept, reduced;  // of x
  Space to;             // of out
  int64_t outputs, elements;
  float scale;
  bool narrow;          // out is bf16, else f32
  int blocks = 1;       // of a cluster, that share the elements of an output
  int64_t share = 0;    // elements of a share of columns; 0: all
  float* scratch = {};  // (shares, outputs)
};

template <ReduceOp op>
constexpr float kNeutral = op == ReduceOp::kSum ? 0.0f : -INFINITY;
template <ReduceOp op, class N>
__device__ __forceinline__ N joined(N x, N so_far) {
  if constexpr (op == ReduceOp::kSum) return so_far + x;
  return x > so_far || x != x ? x : so_far;  // NaN wins
}
template <ReduceOp op>
__device__ __forceinline__ void write_result(const Reduction& a, int64_t output, float x) {
  if constexpr (op == ReduceOp::kSum) x *= a.scale;
  const int64_t at = offset_in(a.to, output);
  if (a.narrow) {
    store_one(static_cast<bf16*>(a.out) + at, x);
  } else {
    static_cast<float*>(a.out)[at] = x;
  }
}

// ---- the last axis is reduced

constexpr int kRowThreads = 256;    // a block whose outputs have 4 or 32 threads each
constexpr int kLongThreads = 1024;  // a block that has one output
constexpr int kLoads = 4;           // vectors a thread has under way

// kThreads: of a block; `group` of them (a power of 2) have one output.
template <class T, ReduceOp op, bool kFast, int kThreads>
__global__ void __launch_bounds__(kThreads) row_kernel(const __grid_constant__ Reduction a, int group) {
  constexpr int kV = kVector<T>;
  __shared__ float shared[kWarp], whole;
  const int t = static_cast<int>(threadIdx.x) % group, groups = kThreads / group;
  const int block = static_cast<int>(blockIdx.x) % a.blocks;
  const int64_t stride = int64_t{group} * a.blocks * kV, rounds = gridDim.x / a.blocks;
  // All threads of a block take part in every round, because they join with shuffles.
  for (int64_t begin = blockIdx.x / a.blocks * int64_t{groups}; begin < a.outputs; begin += rounds * groups) {
    const int64_t k = begin + static_cast<int>(threadIdx.x) / group, elements = k < a.outputs ? a.elements : 0;
    const T* p = static_cast<const T*>(a.x) + (k < a.outputs ? offset_in(a.kept, k) : 0);
    float sums[kV];
#pragma unroll
    for (int j = 0; j < kV; ++j) sums[j] = kNeutral<op>;
    int64_t i = (int64_t{block} * group + t) * kV;
    if constexpr (kFast) {
      for (; i + (kLoads - 1) * stride < elements; i += kLoads * stride) {
        uint4 raw[kLoads];
#pragma unroll
        for (int u = 0; u < kLoads; ++u) raw[u] = *reinterpret_cast<const uint4*>(p + i + u * stride);
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
          float x[kV];
          unpack(raw[u], x);
#pragma unroll
          for (int j = 0; j < kV; ++j) sums[j] = joined<op>(x[j], sums[j]);
        }
      }
      for (; i < elements; i += stride) {
        float x[kV];
        load_vector(p + i, x);
#pragma unroll
        for (int j = 0; j < kV; ++j) sums[j] = joined<op>(x[j], sums[j]);
      }
    } else {
      for (; i < elements; i += stride) {
#pragma unroll
        for (int j = 0; j < kV; ++j)
          if (i + j < elements) sums[j] = joined<op>(load_one(p + offset_in(a.reduced, i + j)), sums[j]);
      }
    }
#pragma unroll
    for (int width = kV / 2; width > 0; width /= 2) {
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j] = joined<op>(sums[j + width], sums[j]);
    }
    float all = sums[0];
    for (int width = min(group, kWarp) / 2; width > 0; width /= 2)
      all = joined<op>(__shfl_xor_sync(kAll, all, width), all);
    if constexpr (kThreads == kLongThreads) {
      if (t % kWarp == 0) shared[t / kWarp] = all;
      __syncthreads();
      all = shared[t % kWarp];
#pragma unroll
      for (int width = kWarp / 2; width > 0; width /= 2) all = joined<op>(__shfl_xor_sync(kAll, all, width), all);
      __syncthreads();
      if (a.blocks > 1) {
        if (t == 0) whole = all;
        sync_cluster();
        all = kNeutral<op>;
        if (block == 0 && t == 0)
          for (int other = 0; other < a.blocks; ++other) all = joined<op>(read_block(&whole, other), all);
        sync_cluster();  // nobody ends or writes again before it was read
      }
    }
    if (block == 0 && t == 0 && k < a.outputs) write_result<op>(a, k, all);
  }
}

// ---- the last axis is kept

constexpr int kColumnThreads = 512;
constexpr int kColumnLoads = 8;

// kColumnThreads / lanes threads side by side have a vector of outputs each; `lanes` share the elements out. Blocks
// (x, y) have share y.
template <class T, ReduceOp op, bool kFast>
__global__ void __launch_bounds__(kColumnThreads, kFast ? 2 : 1)
    column_kernel(const __grid_constant__ Reduction a, int lanes) {
  constexpr int kV = kVector<T>;
  __shared__ float shared[kV][kColumnThreads];
  const int thread = static_cast<int>(threadIdx.x), width = kColumnThreads / lanes;
  const int lane = thread / width, column = thread % width;
  const int64_t stride = lanes, vectors = (a.outputs + kV - 1) / kV;
  for (int64_t begin = blockIdx.x * int64_t{width}; begin < vectors; begin += int64_t{gridDim.x} * width) {
    const int64_t first = (begin + column) * kV;
    const int valid = static_cast<int>(a.outputs - first < kV ? a.outputs - first : kV);  // may be below 0
    const T* p[kFast ? 1 : kV];
#pragma unroll
    for (int j = 0; j < (kFast ? 1 : kV); ++j)
      p[j] = static_cast<const T*>(a.x) + (j < valid ? offset_in(a.kept, first + j) : 0);
    float sums[kV];
#pragma unroll
    for (int j = 0; j < kV; ++j) sums[j] = kNeutral<op>;
    int64_t r = lane, elements = valid > 0 ? a.elements : 0;
    if (a.share > 0) {
      r += blockIdx.y * a.share;
      elements = min(elements, (blockIdx.y + 1) * a.share);
    }
    if (kFast && a.reduced.size.rank == 1) {
      const T* from = p[0] + r * a.reduced.stride.v[0];
      const int64_t step = stride * a.reduced.stride.v[0];
      for (; r + (kColumnLoads - 1) * stride < elements; r += kColumnLoads * stride, from += kColumnLoads * step) {
        uint4 raw[kColumnLoads];
#pragma unroll
        for (int u = 0; u < kColumnLoads; ++u) raw[u] = *reinterpret_cast<const uint4*>(from + u * step);
#pragma unroll
        for (int u = 0; u < kColumnLoads; ++u) {
          float x[kV];
          unpack(raw[u], x);
#pragma unroll
          for (int j = 0; j < kV; ++j) sums[j] = joined<op>(x[j], sums[j]);
        }
      }
    }
#pragma unroll 1
    for (; r < elements; r += stride) {
      const int64_t at = offset_in(a.reduced, r);
      float x[kV];
      if constexpr (kFast) {
        load_vector(p[0] + at, x);
      } else {
#pragma unroll
        for (int j = 0; j < kV; ++j) x[j] = j < valid ? load_one(p[j] + at) : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kV; ++j) sums[j] = joined<op>(x[j], sums[j]);
    }
    if (lanes > 1) {
#pragma unroll
      for (int j = 0; j < kV; ++j) shared[j][thread] = sums[j];
      __syncthreads();
      for (int half = lanes / 2; half > 0; half /= 2) {
        if (lane < half) {
#pragma unroll
          for (int j = 0; j < kV; ++j)
            shared[j][thread] = joined<op>(shared[j][thread + half * width], shared[j][thread]);
        }
        __syncthreads();
      }
#pragma unroll
      for (int j = 0; j < kV; ++j) sums[j] = shared[j][column];
      __syncthreads();  // before shared is written again
    }
    if (lane > 0) continue;
#pragma unroll
    for (int j = 0; j < kV; ++j) {
      if (j >= valid) continue;
      if (a.share > 0) {
        a.scratch[blockIdx.y * a.outputs + first + j] = sums[j];
      } else {
        write_result<op>(a, first + j, sums[j]);
      }
    }
  }
}

// ---- f64, for partial sums and tests: a block an output

constexpr int kWideThreads = 256;

template <ReduceOp op>
__global__ void __launch_bounds__(kWideThreads) wide_kernel(const __grid_constant__ Reduction a, double scale) {
  __shared__ double shared[kWideThreads];
  const int t = static_cast<int>(threadIdx.x);
  for (int64_t k = blockIdx.x; k < a.outputs; k += gridDim.x) {
    const double* p = static_cast<const double*>(a.x) + offset_in(a.kept, k);
    double sum = kNeutral<op>;
    for (int64_t r = t; r < a.elements; r += kWideThreads) sum = joined<op>(p[offset_in(a.reduced, r)], sum);
    shared[t] = sum;
    __syncthreads();
    for (int half = kWideThreads / 2; half > 0; half /= 2) {
      if (t < half) shared[t] = joined<op>(shared[t + half], shared[t]);
      __syncthreads();
    }
    if (t == 0) static_cast<double*>(a.out)[offset_in(a.to, k)] = op == ReduceOp::kSum ? shared[0] * scale : shared[0];
    __syncthreads();
  }
}

// ---- the gradient of max

struct Spread {
  const void *grad, *x, *max;
  void* dx;
  Space kept_x, kept_dx, kept_max, kept_grad, reduced_x, reduced_dx;
  int64_t outputs, elements;
  bool magnitudes = false;
};

__device__ __forceinline__ bool is_most(const Spread& a, float v, float most) {
  return v == most || (a.magnitudes && -v == most);
}

// `lanes` threads of a warp have an output: all of them where its elements are neighbours, else one.
template <class T>
__global__ void __launch_bounds__(kRowThreads) max_backward_kernel(const __grid_constant__ Spread a, int lanes) {
  const int t = static_cast<int>(threadIdx.x) % lanes, groups = kRowThreads / lanes;
  for (int64_t begin = int64_t{blockIdx.x} * groups; begin < a.outputs; begin += int64_t{gridDim.x} * groups) {
    const int64_t k = begin + static_cast<int>(threadIdx.x) / lanes, elements = k < a.outputs ? a.elements : 0;
    const int64_t safe = k < a.outputs ? k : 0;
    const T* x = static_cast<const T*>(a.x) + offset_in(a.kept_x, safe);
    T* dx = static_cast<T*>(a.dx) + offset_in(a.kept_dx, safe);
    const float most = load_one(static_cast<const T*>(a.max) + offset_in(a.kept_max, safe));
    float count = 0;
#pragma unroll 4
    for (int64_t r = t; r < elements; r += lanes)
      count += is_most(a, load_one(x + offset_in(a.reduced_x, r)), most) ? 1.0f : 0.0f;
    if (lanes > 1) count = warp_sum(count);
    const float share =
        load_one(static_cast<const T*>(a.grad) + offset_in(a.kept_grad, safe)) / (count > 0 ? count : 1.0f);
#pragma unroll 4
    for (int64_t r = t; r < elements; r += lanes) {
      const float v = load_one(x + offset_in(a.reduced_x, r));
      const float g = a.magnitudes && v <= 0.0f ? (v < 0.0f ? -share : 0.0f) : share;
      store_one(dx + offset_in(a.reduced_dx, r), is_most(a, v, most) ? g : 0.0f);
    }
  }
}

// The same where an output's elements are neighbours in x and dx and fill whole vectors: kGroup threads have an output.
template <class T, int kGroup>
__global__ void __launch_bounds__(kRowThreads) max_backward_rows_kernel(const __grid_constant__ Spread a) {
  constexpr int kV = kVector<T>, kStride = kGroup * kV, kGroups = kRowThreads / kGroup;
  __shared__ float shared[kRowThreads / kWarp];
  const int t = static_cast<int>(threadIdx.x) % kGroup;
  for (int64_t begin = int64_t{blockIdx.x} * kGroups; begin < a.outputs; begin += int64_t{gridDim.x} * kGroups) {
    const int64_t k = begin + static_cast<int>(threadIdx.x) / kGroup, elements = k < a.outputs ? a.elements : 0;
    const int64_t safe = k < a.outputs ? k : 0;
    const T* x = static_cast<const T*>(a.x) + offset_in(a.kept_x, safe);
    T* dx = static_cast<T*>(a.dx) + offset_in(a.kept_dx, safe);
    const float most = load_one(static_cast<const T*>(a.max) + offset_in(a.kept_max, safe));
    const float grad = load_one(static_cast<const T*>(a.grad) + offset_in(a.kept_grad, safe));
    float count = 0;
#pragma unroll 4
    for (int64_t i = t * kV; i < elements; i += kStride) {
      float v[kV];
      load_vector(x + i, v);
#pragma unroll
      for (int j = 0; j < kV; ++j) count += v[j] == most ? 1.0f : 0.0f;
    }
    count = kGroup == kWarp ? warp_sum(count) : block_sum<kRowThreads>(count, shared);
    const float share = grad / (count > 0 ? count : 1.0f);
    for (int64_t i = t * kV; i < elements; i += kLoads * kStride) {  // x comes from the caches now
      float v[kLoads][kV];
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        if (i + u * kStride < elements) load_vector(x + i + u * kStride, v[u]);
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        if (i + u * kStride >= elements) break;
#pragma unroll
        for (int j = 0; j < kV; ++j) v[u][j] = v[u][j] == most ? share : 0.0f;
        store_vector(dx + i + u * kStride, v[u]);
      }
    }
  }
}

// ---- launches

// Bits of the axes that are reduced.
unsigned reduced_axes(const View& x, const View& out) {
  unsigned axes = 0;
  for (int axis = 0; axis < x.size.rank; ++axis)
    if (x.size.v[axis] != out.size.v[axis]) axes |= 1u << axis;
  return axes;
}

template <class T, ReduceOp op>
void rows(Reduction a, Device device) {
  // One run of neighbours, and each output's begin aligned: whole vectors.
  const bool fast = a.reduced.size.rank == 1 && a.reduced.stride.v[0] == 1 && a.elements % kVector<T> == 0 &&
                    aligned<T>(a.x, 0) && aligned<T>(a.x, a.kept);
  a.blocks = a.elements > 65536 ? cluster_blocks(device, kCluster) : 1;
  const bool alone = a.elements > 4096;
  const int group = alone ? kLongThreads : a.elements > 64 ? kWarp : 4, threads = alone ? kLongThreads : kRowThreads;
  const auto kernel = alone  ? fast ? row_kernel<T, op, true, kLongThreads> : row_kernel<T, op, false, kLongThreads>
                       : fast ? row_kernel<T, op, true, kRowThreads>
                             : row_kernel<T, op, false, kRowThreads>;
  const unsigned clusters = blocks_for(a.outputs, threads / group, kMostBlocks);
  launch_clusters(ReduceArgs::name, kernel, clusters, a.blocks, threads, device, a, group);
}

template <class T, ReduceOp op>
void columns(Reduction a, Device device) {
  const int last = a.kept.size.rank - 1;
  bool fast = last >= 0 && a.kept.stride.v[last] == 1 && a.kept.size.v[last] % kVector<T> == 0 && aligned<T>(a.x, 0) &&
              aligned<T>(a.x, a.reduced);
  for (int axis = 0; axis < last; ++axis) fast = fast && aligned<T>(a.x, a.kept.stride.v[axis]);
  // A share has 16 lanes: 32 threads side by side read 512 bytes of a row.
  const int64_t shares = reduce_shares(a.elements);
  const int lanes = a.elements <= 16 ? 1 : a.elements <= 512 || shares > 1 ? 16 : 128;
  if (shares > 1) a.share = parts(a.elements, shares);
  const dim3 blocks(blocks_for(parts(a.outputs, kVector<T>), kColumnThreads / lanes, kMostBlocks),
                    static_cast<unsigned>(shares));
  const auto kernel = fast ? column_kernel<T, op, true> : column_kernel<T, op, false>;
  kernel<<<blocks, kColumnThreads, 0, stream_of(device)>>>(a, lanes);
  check_launch(ReduceArgs::name);
  if (shares == 1) return;
  Reduction joint = a;  // of the shares
  joint.x = a.scratch, joint.share = 0, joint.elements = shares;
  joint.kept = {Dims(a.outputs), Dims(1)}, joint.reduced = {Dims(shares), Dims(a.outputs)};
  columns<float, op>(joint, device);
}

template <ReduceOp op>
void reduce_with(const ReduceArgs& a) {
  const unsigned axes = reduced_axes(a.x, a.out);
  Reduction r = {
      a.x.data,      a.out.data, space_of(a.x, ~axes),        space_of(a.x, axes),        space_of(a.out, ~0u),
      a.out.numel(), 1,          static_cast<float>(a.scale), a.out.dtype == DType::kBF16};
  r.scratch = a.scratch.ptr<float>();
  for (int axis = 0; axis < a.x.size.rank; ++axis)
    if (axes >> axis & 1u) r.elements *= a.x.size.v[axis];
  if (a.x.dtype == DType::kF64) {
    wide_kernel<op><<<blocks_for(r.outputs, 1, kMostBlocks), kWideThreads, 0, stream_of(a.device())>>>(r, a.scale);
    return check_launch(ReduceArgs::name);
  }
  with_float(ReduceArgs::name, a.x.dtype, [&](auto type) {
    using T = decltype(type);
    if (keeps_last_axis(a.x, a.out)) return columns<T, op>(r, a.device());
    rows<T, op>(r, a.device());
  });
}

}  // namespace

void reduce(const ReduceArgs& a) {
  if (a.out.numel() == 0) return;
  if (a.op == ReduceOp::kSum) return reduce_with<ReduceOp::kSum>(a);
  if (a.op == ReduceOp::kMax) return reduce_with<ReduceOp::kMax>(a);
  reduce_mapped(a);
}

void max_backward(const MaxBackwardArgs& a) {
  if (a.dx.numel() == 0) return;
  const unsigned axes = reduced_axes(a.x, a.max);
  Spread s = {a.grad.data,
              a.x.data,
              a.max.data,
              a.dx.data,
              space_of(a.x, ~axes),
              space_of(a.dx, ~axes),
              space_of(a.max, ~axes),
              space_of(a.grad, ~axes),
              space_of(a.x, axes),
              space_of(a.dx, axes),
              a.max.numel(),
              1};
  s.elements = a.x.numel() / s.outputs;
  s.magnitudes = a.magnitudes;
  const int lanes = keeps_last_axis(a.x, a.max) ? 1 : kWarp;
  with_float(MaxBackwardArgs::name, a.x.dtype, [&](auto type) {
    using T = decltype(type);
    const bool fast = !a.magnitudes && s.reduced_x.size.rank == 1 && s.reduced_x.stride.v[0] == 1 &&
                      s.reduced_dx.size.rank == 1 && s.reduced_dx.stride.v[0] == 1 && s.elements % kVector<T> == 0 &&
                      aligned<T>(s.x, s.kept_x) && aligned<T>(s.dx, s.kept_dx);
    if (fast) {
      const bool alone = s.elements >= 4 * kRowThreads;  // has a block
      const auto kernel = alone ? max_backward_rows_kernel<T, kRowThreads> : max_backward_rows_kernel<T, kWarp>;
      const unsigned blocks = blocks_for(s.outputs, alone ? 1 : kRowThreads / kWarp, kMostBlocks);
      kernel<<<blocks, kRowThreads, 0, stream_of(a.device())>>>(s);
      return;
    }
    max_backward_kernel<T>
        <<<blocks_for(s.outputs, kRowThreads / lanes, kMostBlocks), kRowThreads, 0, stream_of(a.device())>>>(s, lanes);
  });
  check_launch(MaxBackwardArgs::name);
}

}  // namespace tally::cuda
