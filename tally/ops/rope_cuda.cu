// Rotary position embedding on CUDA. Table: a thread keeps one frequency for a run of positions, all in f64. Rotation:
// a thread keeps the cosines and sines of a few pairs in registers and turns these pairs in up to four heads, in
// 16-byte accesses; other layouts go pair by pair.
#include "tally/ops/rope_cuda.cuh"
#include "tally/ops/rope_kernels.h"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kRun = 16;  // positions of one thread of the table
// Heads of one thread of the rotation: four vectors are in flight.
constexpr int heads_of(bool half) { return half ? 2 : 4; }

// The stack frame that ptxas reports is the reduction of large angles in sincos().
__global__ void __launch_bounds__(kThreads) table_kernel(RopeTableArgs a) {
  const int64_t positions = a.out.size[0], pairs = a.out.size[1], runs = (positions + kRun - 1) / kRun;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < runs * pairs; k += step) {
    const int64_t run = k / pairs, i = k - run * pairs;
    const double frequency = pow(a.theta, -static_cast<double>(i) / static_cast<double>(pairs));
    const int64_t end = (run + 1) * kRun < positions ? (run + 1) * kRun : positions;
    for (int64_t t = run * kRun; t < end; ++t) {
      double sine, cosine;
      sincos(static_cast<double>(a.first_position + t) * frequency, &sine, &cosine);
      float* out = a.out.ptr<float>() + t * a.out.stride[0] + i * a.out.stride[1];
      out[0] = static_cast<float>(cosine);
      out[a.out.stride[2]] = static_cast<float>(sine);
    }
  }
}

// Where row 0 of the table's rows is now.
__device__ __forceinline__ const float* rows_of(const RopeArgs& a) {
  const float* const rows = a.table.ptr<float>();
  return a.position.data ? rows + (*a.position.ptr<int32_t>() - a.first) * a.table.stride[0] : rows;
}

// A unit is a position, every slots-th head and a vector of pairs: one vector of a head, or with kHalf the two that lie
// D/2 apart.
template <class T, bool kHalf>
__global__ void __launch_bounds__(kThreads) vector_kernel(RopeArgs a) {
  constexpr int kV = kVector<T>, kLines = kHalf ? 2 : 1, kPairs = kV * kLines / 2, kHeads = heads_of(kHalf);
  const int64_t t_size = a.out.size[1], heads = a.out.size[2], half = a.out.size[3] / 2;
  const int64_t groups = half / kPairs, slots = (heads + kHeads - 1) / kHeads;
  let_next_start();
  wait_for_previous();
  const float* const rows = rows_of(a);
  const int64_t units = a.out.size[0] * t_size * slots * groups, step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < units; k += step) {
    int64_t rest = k / groups;
    const int64_t group = k - rest * groups, slot = rest % slots;
    rest /= slots;
    const int64_t b = rest / t_size, t = rest - b * t_size;
    const T* x = a.x.ptr<T>() + b * a.x.stride[0] + t * a.x.stride[1] + group * kV;
    T* y = a.out.ptr<T>() + b * a.out.stride[0] + t * a.out.stride[1] + group * kV;
    float v[kHeads][kLines][kV];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int64_t head = slot + h * slots;
      if (head >= heads) break;
#pragma unroll
      for (int line = 0; line < kLines; ++line) load_vector(x + head * a.x.stride[2] + line * half, v[h][line]);
    }
    const float* table = rows + t * a.table.stride[0] + group * (2 * kPairs);
    float c[kPairs], s[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; i += 2) {
      const float4 two = *reinterpret_cast<const float4*>(table + 2 * i);
      c[i] = two.x, s[i] = a.inverse ? -two.y : two.y, c[i + 1] = two.z, s[i + 1] = a.inverse ? -two.w : two.w;
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int64_t head = slot + h * slots;
      if (head >= heads) break;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        if constexpr (kHalf) {
          turn(v[h][0][i], v[h][1][i], c[i], s[i]);
        } else {
          turn(v[h][0][2 * i], v[h][0][2 * i + 1], c[i], s[i]);
        }
      }
#pragma unroll
      for (int line = 0; line < kLines; ++line) store_vector(y + head * a.out.stride[2] + line * half, v[h][line]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) pair_kernel(RopeArgs a) {
  const int64_t t_size = a.out.size[1], heads = a.out.size[2], half = a.out.size[3] / 2;
  const bool interleaved = a.style == RopeStyle::kInterleaved;
  let_next_start();
  wait_for_previous();
  const float* const rows = rows_of(a);
  const int64_t units = a.out.size[0] * t_size * heads * half, step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < units; k += step) {
    int64_t rest = k / half;
    const int64_t pair = k - rest * half, head = rest % heads;
    rest /= heads;
    const int64_t b = rest / t_size, t = rest - b * t_size;
    const int64_t i = interleaved ? 2 * pair : pair, j = interleaved ? i + 1 : i + half;
    const T* x = a.x.ptr<T>() + b * a.x.stride[0] + t * a.x.stride[1] + head * a.x.stride[2];
    T* y = a.out.ptr<T>() + b * a.out.stride[0] + t * a.out.stride[1] + head * a.out.stride[2];
    const float* table = rows + t * a.table.stride[0] + pair * a.table.stride[1];
    const float c = table[0], s = table[a.table.stride[2]];
    float first = load_one(x + i * a.x.stride[3]), second = load_one(x + j * a.x.stride[3]);
    turn(first, second, c, a.inverse ? -s : s);
    store_one(y + i * a.out.stride[3], first);
    store_one(y + j * a.out.stride[3], second);
  }
}

// True when every row of the last axis is contiguous and begins at a multiple of 16 bytes.
template <class T>
bool vector_rows(const View& v) {
  const int last = v.rank() - 1;
  bool ok = v.stride[last] == 1 && aligned<T>(v.data, 0);
  for (int axis = 0; axis < last; ++axis) ok = ok && (v.size[axis] == 1 || aligned<T>(v.data, v.stride[axis]));
  return ok;
}

}  // namespace

void rope_table(const RopeTableArgs& a) {
  if (a.out.numel() == 0) return;
  const int64_t threads = parts(a.out.size[0], kRun) * a.out.size[1];
  table_kernel<<<blocks_for(threads, kThreads), kThreads, 0, stream_of(a.device())>>>(a);
  check_launch("rope_table");
}

void rope(const RopeArgs& a) {
  if (a.out.numel() == 0) return;
  with_float("rope", a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool half = a.style == RopeStyle::kHalfSplit;
    const int64_t d = a.out.size[3], unit = kVector<T> * (half ? 2 : 1);  // numbers of a head that a thread takes
    const bool one_row = a.table.size[0] == 1 && a.position.rank() == 0;
    const bool pairs_lie_flat = a.table.stride[2] == 1 && a.table.stride[1] == 2 &&
                                aligned<float>(a.table.data, one_row ? 0 : a.table.stride[0]);
    if (d % unit == 0 && pairs_lie_flat && vector_rows<T>(a.x) && vector_rows<T>(a.out)) {
      const int64_t units = a.out.size[0] * a.out.size[1] * parts(a.out.size[2], heads_of(half)) * (d / unit);
      const auto kernel = half ? vector_kernel<T, true> : vector_kernel<T, false>;
      launch_after("rope", kernel, {blocks_for(units, kThreads), kThreads}, a.device(), a);
    } else {
      launch_after("rope", pair_kernel<T>, {blocks_for(a.out.numel() / 2, kThreads), kThreads}, a.device(), a);
    }
  });
}

}  // namespace tally::cuda
