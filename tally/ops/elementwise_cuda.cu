// Formulas of element-wise ops on CUDA: unary, binary and SwiGLU with their gradients (elementwise_cuda.cuh has the
// kernel; elementwise_copy_cuda.cu copies and fills).
#include "tally/ops/elementwise_cuda.cuh"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/elementwise_more_cuda.h"

namespace tally::cuda {

namespace {

// ---- the gates' quick arithmetic: exact functions and quotients would keep the arithmetic units busier than memory

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
  float alpha, beta;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    if constexpr (kGate<op>) {
      out[0] = unary_gradient<op, QuickMath>(Quick(in[0]), Quick(in[1]), alpha, beta).v;
    } else {
      out[0] = unary_gradient<op, CudaMath>(in[0], in[1], alpha, beta);
    }
  }
};

template <BinaryOp op>
struct Binary {
  static constexpr int kBlocks = op == BinaryOp::kDiv ? 3 : 4;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    out[0] = binary_value<op, CudaMath>(in[0], in[1], 1.0f);
  }
};

struct Swiglu {  // of (gate, up)
  static constexpr int kBlocks = 4;
  static constexpr bool kMoves = false;
  __device__ __forceinline__ void run(const float (&in)[2], float (&out)[1]) const {
    out[0] = swiglu_value(in[0], in[1]);
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

template <UnaryOp op>
struct UnaryTag {
  static constexpr UnaryOp value = op;
};

template <int i = 0, class F>
void with_unary(UnaryOp op, const F& f) {
  if constexpr (i < kFirstMore) {
    if (static_cast<int>(op) == i) return f(UnaryTag<static_cast<UnaryOp>(i)>{});
    with_unary<i + 1>(op, f);
  }
}

}  // namespace

void unary(const UnaryArgs& a) {
  const View* const views[2] = {&a.out, &a.x};
  require_f32_or_bf16(UnaryArgs::name, views);
  if (static_cast<int>(a.op) >= kFirstMore) return unary_more(a);
  with_unary(a.op, [&](auto tag) {
    map<1, 1>(UnaryArgs::name, a.device(), views,
              Unary<decltype(tag)::value>{static_cast<float>(a.alpha), static_cast<float>(a.beta)});
  });
}

void unary_backward(const UnaryBackwardArgs& a) {
  const View* const views[3] = {&a.dx, &a.x, &a.grad};
  require_f32_or_bf16(UnaryBackwardArgs::name, views);
  if (static_cast<int>(a.op) >= kFirstMore) return unary_backward_more(a);
  with_unary(a.op, [&](auto tag) {
    map<1, 2>(UnaryBackwardArgs::name, a.device(), views,
              UnaryGradient<decltype(tag)::value>{static_cast<float>(a.alpha), static_cast<float>(a.beta)});
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
    default:
      return binary_more(a);
  }
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
