// Optimizer kernels on CUDA. AdamW: a thread takes four elements, in 16-byte accesses to f32 and 8-byte ones to bf16,
// so that a warp reads whole lines of every operand; the arithmetic is the CPU's operation by operation. Sums of
// squares: a block a chunk; which thread adds which element depends on the place in the chunk only, not on alignment.
#include "tally/ops/optim_step_kernels.h"

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kFour = 4;

__device__ __forceinline__ void load_four(const float* p, float (&x)[kFour]) { load_vector(p, x); }
__device__ __forceinline__ void load_four(const bf16* p, float (&x)[kFour]) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  x[0] = __uint_as_float(v.x << 16), x[1] = __uint_as_float(v.x & 0xFFFF0000u);
  x[2] = __uint_as_float(v.y << 16), x[3] = __uint_as_float(v.y & 0xFFFF0000u);
}
__device__ __forceinline__ void store_four(float* p, const float (&x)[kFour]) { store_vector(p, x); }
__device__ __forceinline__ void store_four(bf16* p, const float (&x)[kFour]) {
  uint2 v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v.x) : "f"(x[1]), "f"(x[0]));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v.y) : "f"(x[3]), "f"(x[2]));
  *reinterpret_cast<uint2*>(p) = v;
}

struct Factors {
  float beta1, rest1, beta2, rest2, decay, step, inverse_root, eps, grad_scale;
};

Factors factors_of(const AdamwScalars& s) {
  const auto f = [](double x) { return static_cast<float>(x); };
  return {f(s.beta1),
          f(1 - s.beta1),
          f(s.beta2),
          f(1 - s.beta2),
          f(1 - s.lr * s.weight_decay),
          f(s.lr / s.correction1),
          f(1 / __builtin_sqrt(s.correction2)),
          f(s.eps),
          f(s.grad_scale)};
}

__device__ __forceinline__ void update(const Factors& f, float& param, float grad, float& m, float& v) {
  const float g = __fmul_rn(grad, f.grad_scale);
  m = __fmaf_rn(m, f.beta1, __fmul_rn(g, f.rest1));
  v = __fmaf_rn(v, f.beta2, __fmul_rn(__fmul_rn(g, g), f.rest2));
  const float by = __fadd_rn(__fmul_rn(__fsqrt_rn(v), f.inverse_root), f.eps);
  param = __fsub_rn(__fmul_rn(param, f.decay), __fmul_rn(__fdiv_rn(m, by), f.step));
}

template <class P, class G>
__global__ void __launch_bounds__(kThreads)
    adamw_flat(Factors f, P* param, const G* grad, float* m, float* v, int64_t n) {
  const int64_t fours = n / kFour, step = int64_t{gridDim.x} * kThreads;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t k = thread; k < fours; k += step) {
    float p4[kFour], g4[kFour], m4[kFour], v4[kFour];
    load_four(param + k * kFour, p4);
    load_four(grad + k * kFour, g4);
    load_four(m + k * kFour, m4);
    load_four(v + k * kFour, v4);
#pragma unroll
    for (int i = 0; i < kFour; ++i) update(f, p4[i], g4[i], m4[i], v4[i]);
    store_four(param + k * kFour, p4);
    store_four(m + k * kFour, m4);
    store_four(v + k * kFour, v4);
  }
  const int64_t tail = fours * kFour + thread;
  if (tail >= n) return;
  float p = load_one(param + tail);
  update(f, p, load_one(grad + tail), m[tail], v[tail]);
  store_one(param + tail, p);
}

struct Strides {
  Dims size, param, grad, m, v;
};

template <class P, class G>
__global__ void __launch_bounds__(kThreads)
    adamw_strided(Factors f, Strides s, P* param, const G* grad, float* m, float* v, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < n; k += step) {
    int64_t rest = k, param_at = 0, grad_at = 0, m_at = 0, v_at = 0;
    for (int axis = s.size.rank - 1; axis >= 0; --axis) {
      const int64_t above = rest / s.size.v[axis], i = rest - above * s.size.v[axis];
      param_at += i * s.param.v[axis], grad_at += i * s.grad.v[axis];
      m_at += i * s.m.v[axis], v_at += i * s.v.v[axis];
      rest = above;
    }
    float p = load_one(param + param_at);
    update(f, p, load_one(grad + grad_at), m[m_at], v[v_at]);
    store_one(param + param_at, p);
  }
}

template <class T>
bool flat_fours(const View& v) {
  return v.contiguous() && reinterpret_cast<uintptr_t>(v.data) % (kFour * sizeof(T)) == 0;
}

constexpr int kSumThreads = 512, kSums = 4, kAhead = 4;

template <class T>
__device__ __forceinline__ void add_squares(double (&sums)[kSums], const float (&x)[kVector<T>]) {
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    const double v = x[j];
    sums[j % kSums] = __fma_rn(v, v, sums[j % kSums]);
  }
}

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_squares_kernel(const T* x, int64_t n, bool vectors, double* partial, int64_t partial_stride) {
  constexpr int kV = kVector<T>, kStep = kV * kSumThreads;
  __shared__ double shared[kSumThreads / kWarp];
  const int64_t first = blockIdx.x * kSumSquaresChunk;
  const int count = static_cast<int>(n - first < kSumSquaresChunk ? n - first : kSumSquaresChunk);
  const T* const p = x + first;
  double sums[kSums] = {};
  int at = kV * static_cast<int>(threadIdx.x);
  if (vectors) {
    for (; at + (kAhead - 1) * kStep + kV <= count; at += kAhead * kStep) {
      float v[kAhead][kV];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) load_vector(p + at + u * kStep, v[u]);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) add_squares<T>(sums, v[u]);
    }
  }
  for (; at < count; at += kStep) {
    float v[kV];
#pragma unroll
    for (int j = 0; j < kV; ++j) v[j] = at + j < count ? load_one(p + at + j) : 0.0f;
    add_squares<T>(sums, v);
  }
  double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
#pragma unroll
  for (int w = kWarp / 2; w > 0; w /= 2) sum += __shfl_xor_sync(kAll, sum, w);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = shared[0];
  for (int w = 1; w < kSumThreads / kWarp; ++w) total += shared[w];
  partial[blockIdx.x * partial_stride] = total;
}

}  // namespace

void adamw(const AdamwArgs& a) {
  const int64_t n = a.param.numel();
  if (n == 0) return;
  const Factors f = factors_of(a.s);
  const cudaStream_t stream = stream_of(a.device());
  with_float("adamw", a.param.dtype, [&](auto param_tag) {
    with_float("adamw", a.grad.dtype, [&](auto grad_tag) {
      using P = decltype(param_tag);
      using G = decltype(grad_tag);
      P* const param = a.param.ptr<P>();
      const G* const grad = a.grad.ptr<G>();
      float *const m = a.m.ptr<float>(), *const v = a.v.ptr<float>();
      if (flat_fours<P>(a.param) && flat_fours<G>(a.grad) && flat_fours<float>(a.m) && flat_fours<float>(a.v)) {
        adamw_flat<P, G><<<blocks_for(n, kThreads * kFour), kThreads, 0, stream>>>(f, param, grad, m, v, n);
      } else {
        const Strides s{a.param.size, a.param.stride, a.grad.stride, a.m.stride, a.v.stride};
        adamw_strided<P, G><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(f, s, param, grad, m, v, n);
      }
      check_launch("adamw");
    });
  });
}

void sum_squares(const SumSquaresArgs& a) {
  const int64_t n = a.x.numel();
  if (n == 0) return;
  with_float("sum_squares", a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto chunks = static_cast<unsigned>(sum_squares_chunks(n));  // below 2^31 for any memory there is
    sum_squares_kernel<T><<<chunks, kSumThreads, 0, stream_of(a.device())>>>(
        a.x.ptr<T>(), n, aligned<T>(a.x.data, 0), a.partial.ptr<double>(), a.partial.stride[0]);
    check_launch("sum_squares");
  });
}

}  // namespace tally::cuda
