// Reductions of floats on CUDA that are neither sums nor maxima (those: reduce_cuda.cu), and gradients by a formula.
// What is joined is asked at run time, a uniform branch, which leaves one kernel a type.
#include "tally/ops/elementwise_cuda.cuh"
#include "tally/ops/reduce_kernels.h"
#include "tally/ops/reduce_lanes.cuh"

namespace tally::cuda {

namespace {

struct Mapped {
  Outputs o;
  const void *x, *shift;
  void* out;
  Space shift_at;
  ReduceOp op;
  bool wide_shift, narrow_out;  // f32 where x is bf16; bf16, else x's own or f32
  double scale, power;
};

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ double load_one(const double* p) { return *p; }
__device__ __forceinline__ float load_one(const float* p) { return *p; }
__device__ __forceinline__ float load_one(const bf16* p) { return to_float(*p); }

template <class N>
__device__ __forceinline__ N map_one(ReduceOp op, N x, N shift, double power) {
  switch (op) {
    case ReduceOp::kSumDeviations:
      return (x - shift) * (x - shift);
    case ReduceOp::kSumExp:
      return exp_of(x - shift);
    case ReduceOp::kSumAbs:
    case ReduceOp::kMaxAbs:
      return fabs(x);
    case ReduceOp::kSumSquares:
      return x * x;
    case ReduceOp::kSumPower:
      if (power == 0) return x != 0 ? N(1) : N(0);
      return static_cast<N>(pow(fabs(static_cast<double>(x)), power));
    default:
      return x;
  }
}
template <class N>
__device__ __forceinline__ N join_two(ReduceOp op, N a, N b) {
  switch (op) {
    case ReduceOp::kMin:
      return b < a || b != b ? b : a;
    case ReduceOp::kMax:
    case ReduceOp::kMaxAbs:
      return b > a || b != b ? b : a;
    case ReduceOp::kProd:
      return a * b;
    default:
      return a + b;
  }
}

template <class T, class N>
__global__ void __launch_bounds__(kReduceThreads) mapped_kernel(const __grid_constant__ Mapped a) {
  __shared__ N shared[kReduceThreads];
  let_next_start();
  wait_for_previous();
  const N neutral = a.op == ReduceOp::kMin    ? static_cast<N>(INFINITY)
                    : a.op == ReduceOp::kMax  ? static_cast<N>(-INFINITY)
                    : a.op == ReduceOp::kProd ? N(1)
                                              : N(0);
  const T* x = static_cast<const T*>(a.x);
  const bool shifted = has_shift(a.op);
  over_outputs<N>(
      a.o, neutral, shared,
      [&](N value, int64_t at, int64_t, int64_t k) {
        N shift = 0;
        if (shifted) {
          const int64_t from = offset_in(a.shift_at, k);
          shift = a.wide_shift ? static_cast<N>(static_cast<const float*>(a.shift)[from])
                               : load_one(static_cast<const T*>(a.shift) + from);
          if (a.op == ReduceOp::kSumExp && fabs(shift) == static_cast<N>(INFINITY)) shift = 0;
        }
        return join_two(a.op, value, map_one(a.op, static_cast<N>(load_one(x + at)), shift, a.power));
      },
      [&](N p, N q) { return join_two(a.op, p, q); },
      [&](int64_t, int64_t at, N value) {
        value *= static_cast<N>(a.scale);
        if (a.narrow_out) {
          store_one(static_cast<bf16*>(a.out) + at, static_cast<float>(value));
        } else {
          static_cast<N*>(a.out)[at] = value;
        }
      });
}

// ---- gradients by a formula, of (grad, x, y)

struct Gradient {
  static constexpr int kBlocks = 2;
  static constexpr bool kMoves = false;
};
struct DeviationGradient : Gradient {
  float scale;
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[1]) const {
    out[0] = in[0] * (in[1] - in[2]) * scale;
  }
};
struct ExpGradient : Gradient {
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[1]) const {
    out[0] = in[0] * expf(in[1] - (fabsf(in[2]) == INFINITY ? 0.0f : in[2]));
  }
};
struct AbsGradient : Gradient {
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[1]) const {
    out[0] = in[1] == 0.0f ? 0.0f : in[0] * copysignf(1.0f, in[1]);
  }
};
struct NormGradient : Gradient {
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[1]) const {
    out[0] = in[2] == 0.0f ? 0.0f : in[0] * (in[1] / in[2]);
  }
};
struct PowerGradient : Gradient {
  double power;  // less 1
  __device__ __forceinline__ void run(const float (&in)[3], float (&out)[1]) const {
    const float slope = static_cast<float>(pow(static_cast<double>(fabsf(in[1]) / in[2]), power));
    out[0] = in[1] == 0.0f ? 0.0f : in[0] * slope * copysignf(1.0f, in[1]);
  }
};

}  // namespace

void reduce_mapped(const ReduceArgs& a) {
  Mapped m = {};
  m.o = outputs_of(a.x, a.out);
  m.x = a.x.data, m.out = a.out.data, m.op = a.op, m.scale = a.scale, m.power = a.power;
  m.narrow_out = a.out.dtype == DType::kBF16;
  if (has_shift(a.op)) {
    m.shift = a.shift.data, m.shift_at = space_of(a.shift, ~0u);
    m.wide_shift = a.shift.dtype == DType::kF32;
  }
  const Launch l{blocks_of(m.o), kReduceThreads};
  if (a.x.dtype == DType::kF64) return launch_after(ReduceArgs::name, mapped_kernel<double, double>, l, a.device(), m);
  with_float(ReduceArgs::name, a.x.dtype, [&](auto type) {
    launch_after(ReduceArgs::name, mapped_kernel<decltype(type), float>, l, a.device(), m);
  });
}

void reduce_backward(const ReduceBackwardArgs& a) {
  const View* const views[4] = {&a.dx, &a.grad, &a.x, &a.y};
  require_f32_or_bf16(ReduceBackwardArgs::name, views);
  const auto run = [&](const auto& f) { map<1, 3>(ReduceBackwardArgs::name, a.device(), views, f); };
  switch (a.op) {
    case ReduceOp::kSumDeviations:
      return run(DeviationGradient{{}, static_cast<float>(a.scale)});
    case ReduceOp::kSumExp:
      return run(ExpGradient{});
    case ReduceOp::kSumAbs:
      return run(AbsGradient{});
    case ReduceOp::kSumSquares:
      return run(NormGradient{});
    default:
      return run(PowerGradient{{}, a.power - 1});
  }
}

}  // namespace tally::cuda
