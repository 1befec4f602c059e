// Optimizer kernels on CUDA. A launch takes many tensors: a block finds its own in a table that travels as an argument.
// AdamW: a thread takes four elements at a time, in 16-byte accesses to f32 and 8-byte ones to bf16,
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

// What the launch knows, and where the device finds the rest.
struct Numbers {
  float beta1, rest1, beta2, rest2, eps;
  const double *rates, *grad_scale;
};
struct Factors {
  float beta1, rest1, beta2, rest2, step, inverse_root, eps, grad_scale;
};

Numbers numbers_of(const AdamwArgs& a) {
  const auto f = [](double x) { return static_cast<float>(x); };
  return {f(a.beta1),
          f(1 - a.beta1),
          f(a.beta2),
          f(1 - a.beta2),
          f(a.eps),
          a.rates.ptr<double>(),
          a.grad_scale.ptr<double>()};
}
// False: the step is off.
__device__ __forceinline__ bool read_factors(const Numbers& n, double weight_decay, Factors& f, float& decay) {
  const double scale = *n.grad_scale;
  if (!isfinite(scale)) return false;
  f = {n.beta1,
       n.rest1,
       n.beta2,
       n.rest2,
       static_cast<float>(n.rates[1]),
       static_cast<float>(n.rates[2]),
       n.eps,
       static_cast<float>(scale)};
  decay = static_cast<float>(__dsub_rn(1.0, __dmul_rn(n.rates[0], weight_decay)));
  return true;
}

__device__ __forceinline__ void update(const Factors& f, float decay, float& param, float grad, float& m, float& v) {
  const float g = __fmul_rn(grad, f.grad_scale);
  m = __fmaf_rn(m, f.beta1, __fmul_rn(g, f.rest1));
  v = __fmaf_rn(v, f.beta2, __fmul_rn(__fmul_rn(g, g), f.rest2));
  const float by = __fadd_rn(__fmul_rn(__fsqrt_rn(v), f.inverse_root), f.eps);
  param = __fsub_rn(__fmul_rn(param, decay), __fmul_rn(__fdiv_rn(m, by), f.step));
}

// Contiguous tensors and the blocks that work on them: tensor i has blocks [first[i], first[i + 1]).
constexpr int kBlockFours = 4 * kThreads;  // a block's share, in fours
struct Flat {
  void* param[kMostOptimTensors];
  const void* grad[kMostOptimTensors];
  float *m[kMostOptimTensors], *v[kMostOptimTensors], *master[kMostOptimTensors];
  int64_t n[kMostOptimTensors];
  double weight_decay[kMostOptimTensors];
  uint32_t first[kMostOptimTensors + 1];
  int count;
};

// The last i with first[i] <= block.
__device__ __forceinline__ int tensor_of(const uint32_t* first, int count, uint32_t block) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first[middle] <= block ? low : high) = middle;
  }
  return low;
}

// kMaster: the f32 master steps and param becomes its rounded copy.
template <class P, class G, bool kMaster>
__global__ void __launch_bounds__(kThreads) adamw_flat(const Numbers numbers, const __grid_constant__ Flat t) {
  const int i = tensor_of(t.first, t.count, blockIdx.x);
  Factors f;
  float decay;
  if (!read_factors(numbers, t.weight_decay[i], f, decay)) return;
  P* const param = static_cast<P*>(t.param[i]);
  const G* const grad = static_cast<const G*>(t.grad[i]);
  float *const m = t.m[i], *const v = t.v[i], *const master = t.master[i];
  const int64_t n = t.n[i], fours = n / kFour;
  const int64_t begin = int64_t{blockIdx.x - t.first[i]} * kBlockFours + threadIdx.x;
#pragma unroll 2
  for (int64_t k = begin; k < begin + kBlockFours; k += kThreads) {
    if (k < fours) {
      float p4[kFour], g4[kFour], m4[kFour], v4[kFour];
      if constexpr (kMaster) {
        load_four(master + k * kFour, p4);
      } else {
        load_four(param + k * kFour, p4);
      }
      load_four(grad + k * kFour, g4);
      load_four(m + k * kFour, m4);
      load_four(v + k * kFour, v4);
#pragma unroll
      for (int j = 0; j < kFour; ++j) update(f, decay, p4[j], g4[j], m4[j], v4[j]);
      if constexpr (kMaster) store_four(master + k * kFour, p4);
      store_four(param + k * kFour, p4);
      store_four(m + k * kFour, m4);
      store_four(v + k * kFour, v4);
    } else if (k == fours) {  // one thread has the rest, at most three
      for (int64_t at = k * kFour; at < n; ++at) {
        float p = kMaster ? master[at] : load_one(param + at);
        update(f, decay, p, load_one(grad + at), m[at], v[at]);
        if constexpr (kMaster) master[at] = p;
        store_one(param + at, p);
      }
    }
  }
}

struct Strides {
  Dims size, param, grad, m, v, master;
};

template <class P, class G>
__global__ void __launch_bounds__(kThreads)
    adamw_strided(const Numbers numbers, double weight_decay, const __grid_constant__ Strides s, P* param,
                  const G* grad, float* m, float* v, float* master, int64_t n) {
  Factors f;
  float decay;
  if (!read_factors(numbers, weight_decay, f, decay)) return;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < n; k += step) {
    int64_t rest = k, param_at = 0, grad_at = 0, m_at = 0, v_at = 0, master_at = 0;
    for (int axis = s.size.rank - 1; axis >= 0; --axis) {
      const int64_t above = rest / s.size.v[axis], i = rest - above * s.size.v[axis];
      param_at += i * s.param.v[axis], grad_at += i * s.grad.v[axis];
      m_at += i * s.m.v[axis], v_at += i * s.v.v[axis], master_at += i * s.master.v[axis];
      rest = above;
    }
    float p = master != nullptr ? master[master_at] : load_one(param + param_at);
    update(f, decay, p, load_one(grad + grad_at), m[m_at], v[v_at]);
    if (master != nullptr) master[master_at] = p;
    store_one(param + param_at, p);
  }
}

template <class T>
bool flat_fours(const View& v) {
  return v.contiguous() && reinterpret_cast<uintptr_t>(v.data) % (kFour * sizeof(T)) == 0;
}

template <class P, class G>
bool is_flat(const AdamwItem& t) {
  return flat_fours<P>(t.param) && flat_fours<G>(t.grad) && flat_fours<float>(t.m) && flat_fours<float>(t.v) &&
         (!t.has_master || flat_fours<float>(t.master)) && t.param.numel() / kFour / kBlockFours < (int64_t{1} << 24);
}

// The contiguous items of these dtypes in one launch, the others each in their own.
template <class P, class G, bool kMaster>
void adamw_items(const AdamwArgs& a, const Numbers& f, DType param, DType grad) {
  const cudaStream_t stream = stream_of(a.device());
  Flat flat{};
  for (int i = 0; i < a.count; ++i) {
    const AdamwItem& t = a.items[i];
    const int64_t n = t.param.numel();
    if (t.param.dtype != param || t.grad.dtype != grad || t.has_master != kMaster || n == 0) continue;
    if (!is_flat<P, G>(t)) {
      const Strides s{t.param.size, t.param.stride, t.grad.stride, t.m.stride, t.v.stride, t.master.stride};
      adamw_strided<P, G><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
          f, t.weight_decay, s, t.param.ptr<P>(), t.grad.ptr<G>(), t.m.ptr<float>(), t.v.ptr<float>(),
          kMaster ? t.master.ptr<float>() : nullptr, n);
      check_launch("adamw");
      continue;
    }
    const int k = flat.count++;
    flat.param[k] = t.param.data, flat.grad[k] = t.grad.data;
    flat.m[k] = t.m.ptr<float>(), flat.v[k] = t.v.ptr<float>();
    flat.master[k] = kMaster ? t.master.ptr<float>() : nullptr;
    flat.n[k] = n, flat.weight_decay[k] = t.weight_decay;
    flat.first[k + 1] = flat.first[k] + static_cast<uint32_t>(n / kFour / kBlockFours + 1);
  }
  if (flat.count == 0) return;
  adamw_flat<P, G, kMaster><<<flat.first[flat.count], kThreads, 0, stream>>>(f, flat);
  check_launch("adamw");
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

struct Squares {
  const void* x[kMostOptimTensors];
  int64_t n[kMostOptimTensors];
  uint32_t first[kMostOptimTensors + 1];  // chunks, as Flat's blocks
  int count;
};

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_squares_kernel(const __grid_constant__ Squares t, double* partial, int64_t partial_stride) {
  const int i = tensor_of(t.first, t.count, blockIdx.x);
  const T* const x = static_cast<const T*>(t.x[i]);
  const int64_t n = t.n[i];
  const bool vectors = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  constexpr int kV = kVector<T>, kStep = kV * kSumThreads;
  __shared__ double shared[kSumThreads / kWarp];
  const int64_t first = int64_t{blockIdx.x - t.first[i]} * kSumSquaresChunk;
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

// One block: the sums are few.
constexpr int kTotalThreads = 512;
template <class T>
__global__ void __launch_bounds__(kTotalThreads)
    totals_kernel(const double* squares, int64_t n, int64_t stride, const T* losses, int64_t count, int64_t loss_stride,
                  double max_norm, double* totals) {
  __shared__ double shared[kTotalThreads];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kTotalThreads) sum += squares[i * stride];
  shared[threadIdx.x] = sum;
  for (int w = kTotalThreads / 2; w > 0; w /= 2) {
    __syncthreads();
    if (threadIdx.x < w) shared[threadIdx.x] += shared[threadIdx.x + w];
  }
  if (threadIdx.x != 0) return;
  double loss = 0;
  for (int64_t i = 0; i < count; ++i) loss += losses[i * loss_stride];
  loss /= static_cast<double>(count);
  const double norm = sqrt(shared[0]), clip = max_norm / (norm + 1e-6);
  totals[0] = loss, totals[1] = norm;
  totals[2] = !isfinite(norm) || !isfinite(loss) ? NAN : max_norm > 0 && clip < 1 ? clip : 1.0;
}

}  // namespace

void step_totals(const StepTotalsArgs& a) {
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    totals_kernel<T><<<1, kTotalThreads, 0, stream_of(a.device())>>>(
        a.squares.ptr<double>(), a.squares.numel(), a.squares.stride[0], a.losses.ptr<T>(), a.losses.numel(),
        a.losses.stride[0], a.max_norm, a.totals.ptr<double>());
  };
  a.losses.dtype == DType::kF64 ? run(double{}) : run(float{});
  check_launch("step_totals");
}

void adamw(const AdamwArgs& a) {
  const Numbers f = numbers_of(a);
  for (int i = 0; i < a.count; ++i) {
    with_float("adamw", a.items[i].param.dtype, [](auto) {});
    with_float("adamw", a.items[i].grad.dtype, [](auto) {});
  }
  adamw_items<float, float, false>(a, f, DType::kF32, DType::kF32);
  adamw_items<float, bf16, false>(a, f, DType::kF32, DType::kBF16);
  adamw_items<bf16, bf16, false>(a, f, DType::kBF16, DType::kBF16);
  adamw_items<bf16, float, false>(a, f, DType::kBF16, DType::kF32);
  adamw_items<bf16, bf16, true>(a, f, DType::kBF16, DType::kBF16);
  adamw_items<bf16, float, true>(a, f, DType::kBF16, DType::kF32);
}

void sum_squares(const SumSquaresArgs& a) {
  // Neighbours of one dtype go together.
  int64_t done = 0;
  for (int i = 0; i < a.count;) {
    Squares t{};
    const DType dtype = a.x[i].dtype;
    for (; i < a.count && a.x[i].dtype == dtype; ++i) {
      const int k = t.count++;
      t.x[k] = a.x[i].data, t.n[k] = a.x[i].numel();
      t.first[k + 1] = t.first[k] + static_cast<uint32_t>(sum_squares_chunks(t.n[k]));
    }
    const uint32_t chunks = t.first[t.count];
    if (chunks > 0)
      with_float("sum_squares", dtype, [&](auto tag) {
        using T = decltype(tag);
        sum_squares_kernel<T><<<chunks, kSumThreads, 0, stream_of(a.device())>>>(
            t, a.partial.ptr<double>() + done * a.partial.stride[0], a.partial.stride[0]);
        check_launch("sum_squares");
      });
    done += chunks;
  }
}

}  // namespace tally::cuda
