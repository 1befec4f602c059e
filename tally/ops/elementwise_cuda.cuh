// One kernel for formulas on views of any strides, for CUDA files of element-wise ops. All formulas go through
// map_kernel: the axes of all views are merged where they lie alike, the last one is cut into chunks of 8 numbers, and
// a thread has two chunks at a time. A chunk is loaded as raw bits, in 16-byte accesses where its view allows them and
// number by number where not, and only then converted, so that all loads are under way first; as both meet before the
// formula, a result does not depend on strides. Whether a view is f32, bf16 or f16 is asked at run time (a uniform
// branch), which leaves one kernel a formula. Copies without a change of dtype move the same raw bits. Where all views
// lie flat, a shorter loop has more under way.
#pragma once

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kChunk = 8;   // numbers
constexpr int kAtOnce = 2;  // chunks a thread has under way
constexpr int kThreads = 256;

// ---- N views with common axes

template <int N>
struct Axes {
  void* data[N];
  int64_t stride[N][kMaxRank];
  int64_t size[kMaxRank];
  int rank;  // at least 1
};

// Axes of size 1 are left out, neighbours merge where they may in every view.
template <int N>
Axes<N> axes_of(const View* const (&views)[N]) {
  Axes<N> a = {};
  for (int k = 0; k < N; ++k) a.data[k] = views[k]->data;
  const Dims& size = views[0]->size;
  for (int axis = 0; axis < size.rank; ++axis) {
    const int64_t n = size.v[axis];
    if (n == 1) continue;
    bool merge = a.rank > 0;
    for (int k = 0; k < N && merge; ++k) merge = a.stride[k][a.rank - 1] == n * views[k]->stride.v[axis];
    const int into = merge ? a.rank - 1 : a.rank++;
    a.size[into] = merge ? a.size[into] * n : n;
    for (int k = 0; k < N; ++k) a.stride[k][into] = views[k]->stride.v[axis];
  }
  if (a.rank == 0) {
    a.rank = 1, a.size[0] = 1;
    for (int k = 0; k < N; ++k) a.stride[k][0] = 1;
  }
  return a;
}

// Adds the offsets of row `row` of all axes but the last.
template <int N>
__device__ __forceinline__ void add_row(const Axes<N>& a, int64_t row, int64_t (&at)[N]) {
  for (int axis = a.rank - 2; axis >= 0; --axis) {
    const int64_t rest = row / a.size[axis], i = row - rest * a.size[axis];
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += i * a.stride[k][axis];
    row = rest;
  }
}

// ---- chunks

// A chunk as it lies in memory: 8 f32 in a and b, 8 bf16 or f16 in a.
struct Raw {
  uint4 a, b;
};

// The numbers move one place down; `bits` becomes the last. Eight of these fill or empty a chunk without an array that
// would have to lie in memory.
__device__ __forceinline__ void push_half(Raw& r, uint32_t bits) {
  r.a.x = __funnelshift_r(r.a.x, r.a.y, 16), r.a.y = __funnelshift_r(r.a.y, r.a.z, 16);
  r.a.z = __funnelshift_r(r.a.z, r.a.w, 16), r.a.w = (r.a.w >> 16) | (bits << 16);
}
__device__ __forceinline__ void push_word(Raw& r, uint32_t bits) {
  r.a.x = r.a.y, r.a.y = r.a.z, r.a.z = r.a.w, r.a.w = r.b.x;
  r.b.x = r.b.y, r.b.y = r.b.z, r.b.z = r.b.w, r.b.w = bits;
}

__device__ __forceinline__ Raw load_chunk(const void* data, int64_t at, int64_t step, int valid, bool half,
                                          bool vector) {
  Raw r = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
  if (vector && valid == kChunk) {
    if (half) {
      r.a = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + at);
    } else {
      const uint4* p = reinterpret_cast<const uint4*>(static_cast<const uint32_t*>(data) + at);
      r.a = p[0], r.b = p[1];
    }
  } else if (half) {
    const uint16_t* p = static_cast<const uint16_t*>(data) + at;
#pragma unroll 1
    for (int i = 0; i < kChunk; ++i) push_half(r, i < valid ? p[i * step] : 0);
  } else {
    const uint32_t* p = static_cast<const uint32_t*>(data) + at;
#pragma unroll 1
    for (int i = 0; i < kChunk; ++i) push_word(r, i < valid ? p[i * step] : 0);
  }
  return r;
}

__device__ __forceinline__ void store_chunk(void* data, int64_t at, int64_t step, int valid, bool half, bool vector,
                                            Raw r) {
  if (vector && valid == kChunk) {
    if (half) {
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + at) = r.a;
    } else {
      uint4* p = reinterpret_cast<uint4*>(static_cast<uint32_t*>(data) + at);
      p[0] = r.a, p[1] = r.b;
    }
  } else if (half) {
    uint16_t* p = static_cast<uint16_t*>(data) + at;
#pragma unroll 1
    for (int i = 0; i < valid; ++i, push_half(r, 0)) p[i * step] = static_cast<uint16_t>(r.a.x);
  } else {
    uint32_t* p = static_cast<uint32_t*>(data) + at;
#pragma unroll 1
    for (int i = 0; i < valid; ++i, push_word(r, 0)) p[i * step] = r.a.x;
  }
}

__device__ __forceinline__ void unpack(const Raw& r, bool bf16, float (&x)[kChunk]) {
  const uint32_t w[kChunk] = {r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w};
  if (bf16) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = __uint_as_float(i % 2 == 0 ? w[i / 2] << 16 : w[i / 2] & 0xFFFF0000u);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = __uint_as_float(w[i]);
  }
}
__device__ __forceinline__ Raw pack(const float (&x)[kChunk], bool bf16) {
  uint32_t w[kChunk] = {};
  if (bf16) {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i)  // the first operand becomes the upper half
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) w[i] = __float_as_uint(x[i]);
  }
  return {make_uint4(w[0], w[1], w[2], w[3]), make_uint4(w[4], w[5], w[6], w[7])};
}

// A chunk of f16 becomes one of f32 in place and back: apart from the above, which the compiler does without a branch.
__device__ __forceinline__ void widen_pair(uint32_t w, uint32_t& low, uint32_t& high) {
  asm("{.reg .f16 l, h; .reg .f32 x, y; mov.b32 {l, h}, %2; cvt.f32.f16 x, l; cvt.f32.f16 y, h; mov.b32 %0, x; "
      "mov.b32 %1, y;}"
      : "=r"(low), "=r"(high)
      : "r"(w));
}
__device__ __forceinline__ void widen_f16(Raw& r) {
  widen_pair(r.a.w, r.b.z, r.b.w), widen_pair(r.a.z, r.b.x, r.b.y);
  const uint32_t x = r.a.x;
  widen_pair(r.a.y, r.a.z, r.a.w), widen_pair(x, r.a.x, r.a.y);
}
__device__ __forceinline__ uint32_t narrow_pair(uint32_t low, uint32_t high) {
  uint32_t w;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return w;
}
__device__ __forceinline__ void narrow_f16(Raw& r) {
  r.a.x = narrow_pair(r.a.x, r.a.y), r.a.y = narrow_pair(r.a.z, r.a.w);
  r.a.z = narrow_pair(r.b.x, r.b.y), r.a.w = narrow_pair(r.b.z, r.b.w);
}
// kWidened: chunks of f16 are f32 already.
template <bool kWidened = false>
__device__ __forceinline__ void unpack(Raw r, bool half, bool f16, float (&x)[kChunk]) {
  if (!kWidened && f16) widen_f16(r);
  unpack(r, half && !f16, x);
}
__device__ __forceinline__ Raw pack(const float (&x)[kChunk], bool half, bool f16) {
  Raw r = pack(x, half && !f16);
  if (f16) narrow_f16(r);
  return r;
}

// ---- the map

template <int N>
struct Map {
  Axes<N> axes;
  int64_t a_row, chunks;  // chunks in a row and in all
  int64_t flat;           // the first chunks lie one after another, whole and aligned, in every view
  bool half[N], f16[N], vector[N];
};

// f.run(in, out) on the numbers of a chunk. `f.kMoves`: one input, one output, bits stay as they are where both are
// equally wide.
template <int kOut, int kIn, bool kWidened, class F>
__device__ __forceinline__ void run_chunk(const Map<kOut + kIn>& m, const F& f, const Raw (&raw)[kIn],
                                          Raw (&result)[kOut]) {
  if (F::kMoves && m.half[0] == m.half[kOut] && m.f16[0] == m.f16[kOut]) {
    result[0] = raw[0];
    return;
  }
  float x[kIn][kChunk], y[kOut][kChunk];
#pragma unroll
  for (int k = 0; k < kIn; ++k) unpack<kWidened>(raw[k], m.half[kOut + k], m.f16[kOut + k], x[k]);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    float in[kIn], out[kOut];
#pragma unroll
    for (int k = 0; k < kIn; ++k) in[k] = x[k][i];
    f.run(in, out);
#pragma unroll
    for (int k = 0; k < kOut; ++k) y[k][i] = out[k];
  }
#pragma unroll
  for (int k = 0; k < kOut; ++k) result[k] = pack(y[k], m.half[k], m.f16[k]);
}

// Chunks of flat views that a thread has under way, so that a full multiprocessor asks for some 64 KB of bf16.
template <int kIn>
constexpr int kFlatAtOnce = kIn == 1 ? 4 : 2;

// Outputs come first in m. f.kBlocks: on a multiprocessor, as many as do without spills.
template <int kOut, int kIn, class F>
__global__ void __launch_bounds__(kThreads, F::kBlocks)
    map_kernel(const __grid_constant__ Map<kOut + kIn> m, const F f) {
  constexpr int N = kOut + kIn;
  constexpr int kFlat = kFlatAtOnce<kIn>;
  let_next_start();
  wait_for_previous();
  for (int64_t first = int64_t{blockIdx.x} * (kThreads * kFlat) + threadIdx.x; first < m.flat;
       first += int64_t{gridDim.x} * (kThreads * kFlat)) {
    Raw raw[kFlat][kIn];
#pragma unroll
    for (int u = 0; u < kFlat; ++u) {
      const int64_t at = (first + u * kThreads) * kChunk;
#pragma unroll
      for (int k = 0; k < kIn; ++k)
        if (at < m.flat * kChunk) raw[u][k] = load_chunk(m.axes.data[kOut + k], at, 1, kChunk, m.half[kOut + k], true);
    }
#pragma unroll
    for (int u = 0; u < kFlat; ++u) {
      const int64_t at = (first + u * kThreads) * kChunk;
      if (at >= m.flat * kChunk) continue;
      Raw result[kOut];
      run_chunk<kOut, kIn, false>(m, f, raw[u], result);
#pragma unroll
      for (int k = 0; k < kOut; ++k) store_chunk(m.axes.data[k], at, 1, kChunk, m.half[k], true, result[k]);
    }
  }

  const int last = m.axes.rank - 1;
  const int64_t stride = int64_t{gridDim.x} * (kThreads * kAtOnce);
  for (int64_t first = m.flat + int64_t{blockIdx.x} * (kThreads * kAtOnce) + threadIdx.x; first < m.chunks;
       first += stride) {
    int64_t at[kAtOnce][N];
    int valid[kAtOnce];
    Raw raw[kAtOnce][kIn];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t chunk = first + u * kThreads;
      valid[u] = 0;
      if (chunk >= m.chunks) continue;
      const int64_t row = last == 0 ? 0 : chunk / m.a_row;
      const int64_t column = (chunk - row * m.a_row) * kChunk, left = m.axes.size[last] - column;
      valid[u] = left < kChunk ? static_cast<int>(left) : kChunk;
#pragma unroll
      for (int k = 0; k < N; ++k) at[u][k] = column * m.axes.stride[k][last];
      add_row(m.axes, row, at[u]);
#pragma unroll
      for (int k = 0; k < kIn; ++k) {
        constexpr int kFirst = kOut;
        raw[u][k] = load_chunk(m.axes.data[kFirst + k], at[u][kFirst + k], m.axes.stride[kFirst + k][last], valid[u],
                               m.half[kFirst + k], m.vector[kFirst + k]);
        if (!F::kMoves && m.f16[kFirst + k]) widen_f16(raw[u][k]);  // here, where it needs no register more
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (valid[u] == 0) continue;
      Raw result[kOut];
      run_chunk<kOut, kIn, !F::kMoves>(m, f, raw[u], result);
#pragma unroll
      for (int k = 0; k < kOut; ++k)
        store_chunk(m.axes.data[k], at[u][k], m.axes.stride[k][last], valid[u], m.half[k], m.vector[k], result[k]);
    }
  }
}

template <int kOut, int kIn, class F>
void map(const char* name, Device device, const View* const (&views)[kOut + kIn], const F& f) {
  constexpr int N = kOut + kIn;
  if (views[0]->numel() == 0) return;
  Map<N> m = {};
  m.axes = axes_of(views);
  const int last = m.axes.rank - 1;
  bool flat = last == 0;
  for (int k = 0; k < N; ++k) {
    const int64_t size = item_size(views[k]->dtype);
    m.half[k] = size == 2, m.f16[k] = views[k]->dtype == DType::kF16;
    m.vector[k] = m.axes.stride[k][last] == 1 && reinterpret_cast<uintptr_t>(m.axes.data[k]) % 16 == 0;
    for (int axis = 0; axis < last; ++axis) m.vector[k] = m.vector[k] && m.axes.stride[k][axis] * size % 16 == 0;
    flat = flat && m.vector[k];
  }
  m.a_row = parts(m.axes.size[last], kChunk);
  m.chunks = m.a_row;
  for (int axis = 0; axis < last; ++axis) m.chunks *= m.axes.size[axis];
  m.flat = flat ? m.axes.size[0] / kChunk : 0;
  launch_after(name, map_kernel<kOut, kIn, F>, {blocks_for(m.chunks, kThreads * kAtOnce), kThreads}, device, m, f);
}

template <int N>
void require_f32_or_bf16(const char* name, const View* const (&views)[N]) {  // or f16
  for (const View* v : views)
    if (v->dtype != DType::kF16) with_float(name, v->dtype, [](auto) {});
}

}  // namespace

}  // namespace tally::cuda
