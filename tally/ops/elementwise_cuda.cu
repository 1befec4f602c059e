// Element-wise kernels on a CUDA device. All formulas go through one kernel, map_kernel: the axes of all views are
// merged where they lie alike, the last one is cut into chunks of 8 numbers, and a thread has two chunks at a time. A
// chunk is loaded as raw bits, in 16-byte accesses where its view allows them and number by number where not, and only
// then converted, so that all loads are under way first; as both meet before the formula, a result does not depend on
// strides. Whether a view is f32 or bf16 is asked at run time (a uniform branch), which leaves one kernel a formula.
// Copies without a change of dtype move the same raw bits. Where all views lie flat, a shorter loop has more under way.
#include "tally/ops/device.cuh"
#include "tally/ops/elementwise_kernels.h"

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

// A chunk as it lies in memory: 8 f32 in a and b, 8 bf16 in a.
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

__device__ __forceinline__ void unpack(const Raw& r, bool half, float (&x)[kChunk]) {
  const uint32_t w[kChunk] = {r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w};
  if (half) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = __uint_as_float(i % 2 == 0 ? w[i / 2] << 16 : w[i / 2] & 0xFFFF0000u);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = __uint_as_float(w[i]);
  }
}
__device__ __forceinline__ Raw pack(const float (&x)[kChunk], bool half) {
  uint32_t w[kChunk] = {};
  if (half) {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i)  // the first operand becomes the upper half
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) w[i] = __float_as_uint(x[i]);
  }
  return {make_uint4(w[0], w[1], w[2], w[3]), make_uint4(w[4], w[5], w[6], w[7])};
}

// ---- the map

template <int N>
struct Map {
  Axes<N> axes;
  int64_t a_row, chunks;  // chunks in a row and in all
  int64_t flat;           // the first chunks lie one after another, whole and aligned, in every view
  bool half[N], vector[N];
};

// f.run(in, out) on the numbers of a chunk. `f.kMoves`: one input, one output, bits stay as they are where both are
// equally wide.
template <int kOut, int kIn, class F>
__device__ __forceinline__ void run_chunk(const Map<kOut + kIn>& m, const F& f, const Raw (&raw)[kIn],
                                          Raw (&result)[kOut]) {
  if (F::kMoves && m.half[0] == m.half[kOut]) {
    result[0] = raw[0];
    return;
  }
  float x[kIn][kChunk], y[kOut][kChunk];
#pragma unroll
  for (int k = 0; k < kIn; ++k) unpack(raw[k], m.half[kOut + k], x[k]);
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
  for (int k = 0; k < kOut; ++k) result[k] = pack(y[k], m.half[k]);
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
      run_chunk<kOut, kIn>(m, f, raw[u], result);
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
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (valid[u] == 0) continue;
      Raw result[kOut];
      run_chunk<kOut, kIn>(m, f, raw[u], result);
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
    m.half[k] = size == 2;
    m.vector[k] = m.axes.stride[k][last] == 1 && reinterpret_cast<uintptr_t>(m.axes.data[k]) % 16 == 0;
    for (int axis = 0; axis < last; ++axis) m.vector[k] = m.vector[k] && m.axes.stride[k][axis] * size % 16 == 0;
    flat = flat && m.vector[k];
  }
  m.a_row = parts(m.axes.size[last], kChunk);
  m.chunks = m.a_row;
  for (int axis = 0; axis < last; ++axis) m.chunks *= m.axes.size[axis];
  m.flat = flat ? m.axes.size[0] / kChunk : 0;
  map_kernel<kOut, kIn><<<blocks_for(m.chunks, kThreads * kAtOnce), kThreads, 0, stream_of(device)>>>(m, f);
  check_launch(name);
}

template <int N>
void require_f32_or_bf16(const char* name, const View* const (&views)[N]) {
  for (const View* v : views) with_float(name, v->dtype, [](auto) {});
}

// ---- the gates' quick arithmetic: exact functions and quotients would keep the arithmetic units busier than memory

// Errors of about 1e-6, relative for exp in |x| <= 10 and absolute for erf.
struct FastMath {
  static __device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ __forceinline__ float exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
  }
  // Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26.
  static __device__ __forceinline__ float erf(float x) {
    const float t = reciprocal(fmaf(0.3275911f, fabsf(x), 1.0f));
    float y = fmaf(t, 1.061405429f, -1.453152027f);
    y = fmaf(y, t, 1.421413741f), y = fmaf(y, t, -0.284496736f), y = fmaf(y, t, 0.254829592f);
    return copysignf(fmaf(-(y * t), exp(-x * x), 1.0f), x);
  }
};

// A float divided by way of the approximate reciprocal: within 2 units of the last place, for divisors from 1 on.
struct Quick {
  float v;
  Quick() = default;
  __device__ __forceinline__ Quick(float x) : v(x) {}
  friend __device__ __forceinline__ Quick operator-(Quick a) { return -a.v; }
  friend __device__ __forceinline__ Quick operator+(Quick a, Quick b) { return a.v + b.v; }
  friend __device__ __forceinline__ Quick operator-(Quick a, Quick b) { return a.v - b.v; }
  friend __device__ __forceinline__ Quick operator*(Quick a, Quick b) { return a.v * b.v; }
  friend __device__ __forceinline__ Quick operator/(Quick a, Quick b) { return a.v * FastMath::reciprocal(b.v); }
};
struct QuickMath {
  static __device__ __forceinline__ Quick exp(Quick x) { return FastMath::exp(x.v); }
  static __device__ __forceinline__ Quick erf(Quick x) { return FastMath::erf(x.v); }
};

template <UnaryOp op>
constexpr bool kGate =
    op == UnaryOp::kGeluErf || op == UnaryOp::kGeluTanh || op == UnaryOp::kSilu || op == UnaryOp::kSigmoid;

template <UnaryOp op>
struct Unary {
  static constexpr int kBlocks = 4;
  static constexpr bool kMoves = false;
  float alpha, beta;
  __device__ __forceinline__ void run(const float (&in)[1], float (&out)[1]) const {
    if constexpr (kGate<op>) {
      out[0] = unary_value<op, QuickMath>(Quick(in[0]), alpha, beta).v;
    } else {
      out[0] = unary_value<op, CudaMath>(in[0], alpha, beta);
    }
  }
};

template <UnaryOp op>
struct UnaryGradient {  // of (x, grad)
  static constexpr int kBlocks = kGate<op> && op != UnaryOp::kGeluErf ? 4 : 3;
  static constexpr bool kMoves = false;
  float alpha;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    if constexpr (kGate<op>) {
      out[0] = unary_gradient<op, QuickMath>(Quick(in[0]), Quick(in[1]), alpha).v;
    } else {
      out[0] = unary_gradient<op, CudaMath>(in[0], in[1], alpha);
    }
  }
};

template <BinaryOp op>
struct Binary {
  static constexpr int kBlocks = op == BinaryOp::kDiv ? 3 : 4;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    out[0] = binary_value<op>(in[0], in[1]);
  }
};

struct Swiglu {  // of (gate, up)
  static constexpr int kBlocks = 4;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] * FastMath::reciprocal(1.0f + FastMath::exp(-in[0])) * in[1];
  }
};

struct SwigluGradient {  // of (grad, gate, up) to (dgate, dup)
  static constexpr int kBlocks = 2;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[2]) const {
    const float g = in[0], x = in[1], u = in[2];
    const float s = FastMath::reciprocal(1.0f + FastMath::exp(-x));
    out[0] = g * u * (s * fmaf(x, 1.0f - s, 1.0f));
    out[1] = g * (x * s);
  }
};

struct Move {
  static constexpr int kBlocks = 4;
  static constexpr bool kMoves = true;
  __device__ __forceinline__ void run(const float (&in)[1], float (&out)[1]) const { out[0] = in[0]; }
};

template <UnaryOp op>
struct UnaryTag {
  static constexpr UnaryOp value = op;
};

template <int i = 0, class F>
void with_unary(UnaryOp op, const F& f) {
  if constexpr (i < kUnaryOps) {
    if (static_cast<int>(op) == i) return f(UnaryTag<static_cast<UnaryOp>(i)>{});
    with_unary<i + 1>(op, f);
  }
}

// ---- copies of other dtypes and fills

// Bits of numbers of 1 or 8 bytes, or of words of 16.
template <class Word>
__global__ void __launch_bounds__(kThreads) copy_words(const __grid_constant__ Axes<2> a, int64_t count) {
  const int last = a.rank - 1;
  const int64_t stride = int64_t{gridDim.x} * (kThreads * kAtOnce);
  for (int64_t first = int64_t{blockIdx.x} * (kThreads * kAtOnce) + threadIdx.x; first < count; first += stride) {
    Word word[kAtOnce] = {};
    int64_t to[kAtOnce] = {};
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t k = first + u * kThreads;
      if (k >= count) continue;
      const int64_t row = last == 0 ? 0 : k / a.size[last], column = k - row * a.size[last];
      int64_t at[2] = {column * a.stride[0][last], column * a.stride[1][last]};
      add_row(a, row, at);
      word[u] = static_cast<const Word*>(a.data[1])[at[1]], to[u] = at[0];
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (first + u * kThreads < count) static_cast<Word*>(a.data[0])[to[u]] = word[u];
  }
}

// Rows seen as words of `size` / `item` numbers, where strides and pointers allow it.
bool widen(Axes<2>& a, int64_t item, int64_t size) {
  const int last = a.rank - 1;
  const int64_t numbers = size / item;
  bool fits = a.size[last] % numbers == 0;
  for (int k = 0; k < 2; ++k) {
    fits = fits && a.stride[k][last] == 1 && reinterpret_cast<uintptr_t>(a.data[k]) % static_cast<uint64_t>(size) == 0;
    for (int axis = 0; axis < last; ++axis) fits = fits && a.stride[k][axis] % numbers == 0;
  }
  if (!fits) return false;
  a.size[last] /= numbers;
  for (int k = 0; k < 2; ++k)
    for (int axis = 0; axis < last; ++axis) a.stride[k][axis] /= numbers;
  return true;
}

void move_wide_or_narrow(const CopyArgs& c) {
  Axes<2> a = axes_of<2>({&c.out, &c.x});
  const int64_t item = item_size(c.x.dtype);
  const bool wide = widen(a, item, 16);
  int64_t count = 1;
  for (int axis = 0; axis < a.rank; ++axis) count *= a.size[axis];
  const unsigned blocks = blocks_for(count, kThreads * kAtOnce);
  if (wide) {
    copy_words<uint4><<<blocks, kThreads, 0, stream_of(c.device())>>>(a, count);
  } else if (item == 8) {
    copy_words<uint64_t><<<blocks, kThreads, 0, stream_of(c.device())>>>(a, count);
  } else {
    copy_words<uint8_t><<<blocks, kThreads, 0, stream_of(c.device())>>>(a, count);
  }
  check_launch(CopyArgs::name);
}

__device__ __forceinline__ double read_number(const void* p, DType t, int64_t at) {
  switch (t) {
    case DType::kF64:
      return static_cast<const double*>(p)[at];
    case DType::kF32:
      return static_cast<const float*>(p)[at];
    case DType::kBF16:
      return to_float(static_cast<const bf16*>(p)[at]);
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(p)[at]);
    case DType::kI32:
      return static_cast<const int32_t*>(p)[at];
    case DType::kU16:
      return static_cast<const uint16_t*>(p)[at];
    default:
      return static_cast<const uint8_t*>(p)[at];
  }
}

// The bits of x as a number of dtype t. Narrow integers go by way of i32, as processors convert them.
TALLY_INLINE uint64_t number_bits(DType t, double x) {
  switch (t) {
    case DType::kF64:
      return __builtin_bit_cast(uint64_t, x);
    case DType::kF32:
      return __builtin_bit_cast(uint32_t, static_cast<float>(x));
    case DType::kBF16:
      return to_bf16(static_cast<float>(x)).bits;
    case DType::kI64:
      return static_cast<uint64_t>(static_cast<int64_t>(x));
    case DType::kI32:
      return static_cast<uint32_t>(static_cast<int32_t>(x));
    case DType::kU16:
      return static_cast<uint16_t>(static_cast<int32_t>(x));
    default:
      return static_cast<uint8_t>(static_cast<int32_t>(x));
  }
}

__device__ __forceinline__ void write_bits(void* p, int64_t item, int64_t at, uint64_t bits) {
  if (item == 8) {
    static_cast<uint64_t*>(p)[at] = bits;
  } else if (item == 4) {
    static_cast<uint32_t*>(p)[at] = static_cast<uint32_t>(bits);
  } else if (item == 2) {
    static_cast<uint16_t*>(p)[at] = static_cast<uint16_t>(bits);
  } else {
    static_cast<uint8_t*>(p)[at] = static_cast<uint8_t>(bits);
  }
}

// Through f64, as on the CPU.
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const __grid_constant__ Axes<2> a, DType to, DType from, int64_t count) {
  const int last = a.rank - 1;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < count; k += int64_t{gridDim.x} * kThreads) {
    const int64_t row = last == 0 ? 0 : k / a.size[last], column = k - row * a.size[last];
    int64_t at[2] = {column * a.stride[0][last], column * a.stride[1][last]};
    add_row(a, row, at);
    write_bits(a.data[0], item_size(to), at[0], number_bits(to, read_number(a.data[1], from, at[1])));
  }
}

// `words` of 16 bytes, then the numbers from `done` on; strided views have no words.
__global__ void __launch_bounds__(kThreads) fill_kernel(const __grid_constant__ Axes<1> a, int64_t item, uint64_t bits,
                                                        uint4 word, int64_t words, int64_t done, int64_t count) {
  const int last = a.rank - 1;
  const int64_t start = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
  for (int64_t k = start; k < words; k += stride) static_cast<uint4*>(a.data[0])[k] = word;
  for (int64_t k = done + start; k < count; k += stride) {
    const int64_t row = last == 0 ? 0 : k / a.size[last], column = k - row * a.size[last];
    int64_t at[1] = {column * a.stride[0][last]};
    add_row(a, row, at);
    write_bits(a.data[0], item, at[0], bits);
  }
}

bool is_f32_or_bf16(DType t) { return t == DType::kF32 || t == DType::kBF16; }

}  // namespace

void unary(const UnaryArgs& a) {
  const View* const views[2] = {&a.out, &a.x};
  require_f32_or_bf16(UnaryArgs::name, views);
  with_unary(a.op, [&](auto tag) {
    map<1, 1>(UnaryArgs::name, a.device(), views, Unary<decltype(tag)::value>{a.alpha, a.beta});
  });
}

void unary_backward(const UnaryBackwardArgs& a) {
  const View* const views[3] = {&a.dx, &a.x, &a.grad};
  require_f32_or_bf16(UnaryBackwardArgs::name, views);
  with_unary(a.op, [&](auto tag) {
    map<1, 2>(UnaryBackwardArgs::name, a.device(), views, UnaryGradient<decltype(tag)::value>{a.alpha});
  });
}

void binary(const BinaryArgs& a) {
  const View* const views[3] = {&a.out, &a.a, &a.b};
  require_f32_or_bf16(BinaryArgs::name, views);
  switch (a.op) {
    case BinaryOp::kAdd:
      return map<1, 2>(BinaryArgs::name, a.device(), views, Binary<BinaryOp::kAdd>{});
    case BinaryOp::kSub:
      return map<1, 2>(BinaryArgs::name, a.device(), views, Binary<BinaryOp::kSub>{});
    case BinaryOp::kMul:
      return map<1, 2>(BinaryArgs::name, a.device(), views, Binary<BinaryOp::kMul>{});
    case BinaryOp::kDiv:
      return map<1, 2>(BinaryArgs::name, a.device(), views, Binary<BinaryOp::kDiv>{});
  }
}

void fill(const FillArgs& a) {
  const int64_t count = a.out.numel(), item = item_size(a.out.dtype);
  if (count == 0) return;
  const Axes<1> axes = axes_of<1>({&a.out});
  const uint64_t bits = number_bits(a.out.dtype, a.value);
  uint64_t twice = bits;
  for (int64_t width = item; width < 8; width *= 2) twice |= twice << (8 * width);
  const uint32_t low = static_cast<uint32_t>(twice), high = static_cast<uint32_t>(twice >> 32);
  const bool flat = axes.rank == 1 && axes.stride[0][0] == 1 && reinterpret_cast<uintptr_t>(a.out.data) % 16 == 0;
  const int64_t words = flat ? count * item / 16 : 0, done = words * 16 / item;
  fill_kernel<<<blocks_for(words + count - done, kThreads), kThreads, 0, stream_of(a.device())>>>(
      axes, item, bits, make_uint4(low, high, low, high), words, done, count);
  check_launch(FillArgs::name);
}

void copy(const CopyArgs& a) {
  const int64_t count = a.out.numel(), item = item_size(a.x.dtype);
  if (count == 0) return;
  const bool same = a.x.dtype == a.out.dtype;
  if ((same && (item == 2 || item == 4)) || (is_f32_or_bf16(a.x.dtype) && is_f32_or_bf16(a.out.dtype)))
    return map<1, 1>(CopyArgs::name, a.device(), {&a.out, &a.x}, Move{});
  if (same) return move_wide_or_narrow(a);
  convert_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream_of(a.device())>>>(axes_of<2>({&a.out, &a.x}),
                                                                                      a.out.dtype, a.x.dtype, count);
  check_launch(CopyArgs::name);
}

void swiglu(const SwigluArgs& a) {
  const View* const views[3] = {&a.out, &a.gate, &a.up};
  require_f32_or_bf16(SwigluArgs::name, views);
  map<1, 2>(SwigluArgs::name, a.device(), views, Swiglu{});
}

void swiglu_backward(const SwigluBackwardArgs& a) {
  const View* const views[5] = {&a.dgate, &a.dup, &a.grad, &a.gate, &a.up};
  require_f32_or_bf16(SwigluBackwardArgs::name, views);
  map<2, 3>(SwigluBackwardArgs::name, a.device(), views, SwigluGradient{});
}

}  // namespace tally::cuda
