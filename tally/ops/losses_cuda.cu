// Losses on CUDA: formulas by the element-wise kernel, and rows of log-probabilities, a warp each.
#include "tally/ops/device_rows.cuh"
#include "tally/ops/elementwise_cuda.cuh"
#include "tally/ops/losses_kernels.h"

namespace tally::cuda {

namespace {

// log(1 + exp(-x))
__device__ __forceinline__ float softplus_of_minus(float x) { return fmaxf(-x, 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ __forceinline__ float log_or_zero(float t) { return t == 0.0f ? 0.0f : logf(t); }

template <LossOp op>
struct Loss {  // of (x, target, weight)
  static constexpr int kBlocks = 2;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[1]) const {
    const float x = in[0], t = in[1], w = in[2];
    if constexpr (op == LossOp::kMse) out[0] = (x - t) * (x - t);
    if constexpr (op == LossOp::kBce) out[0] = (1.0f - t) * x + (1.0f + (w - 1.0f) * t) * softplus_of_minus(x);
    if constexpr (op == LossOp::kKl) out[0] = t * log_or_zero(t) - t * x;
    if constexpr (op == LossOp::kKlLog) out[0] = expf(t) * (t - x);
  }
};

template <LossOp op, bool kByTarget>
struct LossGradient {  // of (x, target, weight, grad)
  static constexpr int kBlocks = 2;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[4], float (&out)[1]) const {
    const float x = in[0], t = in[1], w = in[2], g = in[3];
    if constexpr (op == LossOp::kMse) out[0] = 2.0f * (kByTarget ? t - x : x - t) * g;
    if constexpr (op == LossOp::kBce) {
      out[0] = kByTarget ? g * ((w - 1.0f) * softplus_of_minus(x) - x)
                         : g * ((1.0f - t) - (1.0f + (w - 1.0f) * t) * (1.0f / (1.0f + expf(x))));
    }
    if constexpr (op == LossOp::kKl) out[0] = kByTarget ? g * (log_or_zero(t) + 1.0f - x) : -(g * t);
    if constexpr (op == LossOp::kKlLog) out[0] = kByTarget ? g * expf(t) * (t - x + 1.0f) : -(g * expf(t));
  }
};

template <LossOp kOp>
struct LossTag {
  static constexpr LossOp op = kOp;
};
template <class F>
void with_loss(LossOp op, const F& f) {
  switch (op) {
    case LossOp::kMse:
      return f(LossTag<LossOp::kMse>{});
    case LossOp::kBce:
      return f(LossTag<LossOp::kBce>{});
    case LossOp::kKl:
      return f(LossTag<LossOp::kKl>{});
    case LossOp::kKlLog:
      return f(LossTag<LossOp::kKlLog>{});
  }
}

// ---- rows of log-probabilities

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    nll_kernel(const __grid_constant__ Rows logp, const I* targets, float* losses, int64_t rows, int64_t n,
               int64_t ignore, float share) {
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t step = int64_t{gridDim.x} * (kThreads / kWarp);
  for (int64_t r = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp; r < rows; r += step) {
    const int64_t target = targets[r];
    const bool inside = target >= 0 && target < n;
    float loss = 0;
    if (target != ignore) {
      const T* x = row_at<T>(logp, r);
      loss = inside ? -load_one(x + target * logp.step) : NAN;  // a wrong number must not read elsewhere
      if (share > 0) {
        float total = 0;
        for (int64_t i = lane; i < n; i += kWarp) total += load_one(x + i * logp.step);
        loss = (1.0f - share) * loss - share / static_cast<float>(n) * warp_sum(total);
      }
    }
    if (lane == 0) losses[r] = loss;
  }
}

// One block.
template <class I>
__global__ void __launch_bounds__(kThreads) count_kernel(const I* targets, int64_t rows, int64_t ignore, float* count) {
  __shared__ long long shared[kThreads];
  let_next_start();
  wait_for_previous();
  long long valid = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) valid += targets[r] != ignore;
  shared[threadIdx.x] = valid;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *count = static_cast<float>(shared[0]);
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    nll_gradient_kernel(const __grid_constant__ Rows d, const I* targets, const float* grad, int64_t rows, int64_t n,
                        int64_t ignore, float share) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < rows * n; k += step) {
    const int64_t r = k / n, i = k - r * n, target = targets[r];
    const float g = grad[r], even = -(g * (share / static_cast<float>(n)));
    const float v = target == ignore ? 0.0f : i == target ? even - g * (1.0f - share) : even;
    store_one(row_at<T>(d, r) + i * d.step, v);
  }
}

// One block.
template <class I>
__global__ void __launch_bounds__(kThreads)
    outside_kernel(const I* index, int64_t n, int64_t limit, int64_t allowed, int64_t* out) {
  __shared__ long long shared[kThreads];
  let_next_start();
  wait_for_previous();
  long long first = n;
  for (int64_t i = threadIdx.x; i < n && first == n; i += kThreads) {
    const int64_t x = index[i];
    if ((x < 0 || x >= limit) && x != allowed) first = i;
  }
  shared[threadIdx.x] = first;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    const int t = static_cast<int>(threadIdx.x);
    if (t < half) shared[t] = shared[t] < shared[t + half] ? shared[t] : shared[t + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = shared[0] < n ? shared[0] : -1;
}

}  // namespace

void loss(const LossArgs& a) {
  const View* const views[4] = {&a.out, &a.x, &a.target, &a.weight};
  require_f32_or_bf16(LossArgs::name, views);
  with_loss(a.op, [&](auto tag) { map<1, 3>(LossArgs::name, a.device(), views, Loss<decltype(tag)::op>{}); });
}

void loss_backward(const LossBackwardArgs& a) {
  const View* const views[5] = {&a.d, &a.x, &a.target, &a.weight, &a.grad};
  require_f32_or_bf16(LossBackwardArgs::name, views);
  with_loss(a.op, [&](auto tag) {
    constexpr LossOp kOp = decltype(tag)::op;
    if (a.by_target) {
      map<1, 4>(LossBackwardArgs::name, a.device(), views, LossGradient<kOp, true>{});
    } else {
      map<1, 4>(LossBackwardArgs::name, a.device(), views, LossGradient<kOp, false>{});
    }
  });
}

void nll(const NllArgs& a) {
  const int64_t rows = a.targets.numel(), n = row_length(a.logp);
  const Rows logp = rows_of(a.logp);
  const float share = static_cast<float>(a.smoothing);
  with_index(NllArgs::name, a.targets.dtype, [&](auto index) {
    using I = decltype(index);
    const I* targets = a.targets.ptr<I>();
    launch_after(NllArgs::name, count_kernel<I>, {1, kThreads}, a.device(), targets, rows, a.ignore_index,
                 a.count.ptr<float>());
    if (rows == 0) return;
    with_float(NllArgs::name, a.logp.dtype, [&](auto tag) {
      launch_after(NllArgs::name, nll_kernel<decltype(tag), I>, {blocks_for(rows, kThreads / kWarp, 1 << 20), kThreads},
                   a.device(), logp, targets, a.losses.ptr<float>(), rows, n, a.ignore_index, share);
    });
  });
}

void nll_backward(const NllBackwardArgs& a) {
  const int64_t rows = a.targets.numel(), n = row_length(a.dlogp);
  if (rows * n == 0) return;
  const Rows d = rows_of(a.dlogp);
  with_index(NllBackwardArgs::name, a.targets.dtype, [&](auto index) {
    using I = decltype(index);
    const I* targets = a.targets.ptr<I>();
    const float* grad = a.grad.ptr<float>();
    with_float(NllBackwardArgs::name, a.dlogp.dtype, [&](auto tag) {
      launch_after(NllBackwardArgs::name, nll_gradient_kernel<decltype(tag), I>,
                   {blocks_for(rows * n, kThreads, 1 << 20), kThreads}, a.device(), d, targets, grad, rows, n,
                   a.ignore_index, static_cast<float>(a.smoothing));
    });
  });
}

void find_outside(const FindOutsideArgs& a) {
  with_index(FindOutsideArgs::name, a.index.dtype, [&](auto index) {
    using I = decltype(index);
    const I* numbers = a.index.ptr<I>();
    launch_after(FindOutsideArgs::name, outside_kernel<I>, {1, kThreads}, a.device(), numbers, a.index.numel(), a.limit,
                 a.allowed, a.out.ptr<int64_t>());
  });
}

}  // namespace tally::cuda
