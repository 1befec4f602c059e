// The list of element-wise functions, shared by CPU and GPU. A new activation is one row here: an enum value, its name,
// its FLOPs forward and backward, and the two formulas. Formulas are templates over the number type; `M::exp` and
// friends are the device's own (CpuMath of ops/simd_math.h).
#pragma once

#include "tally/core/view.h"

namespace tally {

enum class UnaryOp : uint8_t {
  kRelu,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kSigmoid,
  kTanh,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kNeg,
  kSquare,
  kAffine
};
constexpr int kUnaryOps = 13;
enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv };

struct UnaryRow {
  const char* name;
  int flops, backward_flops;
};
constexpr UnaryRow kUnaryRows[kUnaryOps] = {
    {"relu", 1, 1}, {"gelu", 5, 11},  {"gelu_tanh", 9, 19}, {"silu", 3, 8}, {"sigmoid", 3, 6},
    {"tanh", 1, 4}, {"exp", 1, 2},    {"log", 1, 1},        {"sqrt", 1, 3}, {"rsqrt", 2, 4},
    {"neg", 1, 1},  {"square", 1, 2}, {"affine", 2, 1},
};
TALLY_INLINE constexpr int unary_flops(UnaryOp op) { return kUnaryRows[static_cast<int>(op)].flops; }
TALLY_INLINE constexpr int unary_backward_flops(UnaryOp op) { return kUnaryRows[static_cast<int>(op)].backward_flops; }

constexpr float kInvSqrt2 = 0.70710678118654752f;
constexpr float kInvSqrt2Pi = 0.39894228040143268f;
constexpr float kGeluTanhScale = 0.79788456080286536f;  // sqrt(2 / pi)
constexpr float kGeluTanhCubic = 0.044715f;

// (1 + tanh(u)) / 2 of GELU's tanh form, as 1 / (1 + e^-2u): no digits are lost where tanh is near -1.
template <class M, class N>
TALLY_INLINE N gelu_tanh_gate(N x) {
  return 1.0f / (1.0f + M::exp(-2.0f * kGeluTanhScale * (x + kGeluTanhCubic * x * x * x)));
}

// f(x). N is a number or a vector of numbers, M the device's functions.
template <UnaryOp op, class M, class N>
TALLY_INLINE N unary_value(N x, float alpha, float beta) {
  if constexpr (op == UnaryOp::kRelu) return x > 0.0f ? x : (x != x ? x : N{});  // NaN stays NaN
  if constexpr (op == UnaryOp::kGeluErf) return 0.5f * x * (1.0f + M::erf(x * kInvSqrt2));
  if constexpr (op == UnaryOp::kGeluTanh) return x * gelu_tanh_gate<M>(x);
  if constexpr (op == UnaryOp::kSilu) return x / (1.0f + M::exp(-x));
  if constexpr (op == UnaryOp::kSigmoid) return 1.0f / (1.0f + M::exp(-x));
  if constexpr (op == UnaryOp::kTanh) return M::tanh(x);
  if constexpr (op == UnaryOp::kExp) return M::exp(x);
  if constexpr (op == UnaryOp::kLog) return M::log(x);
  if constexpr (op == UnaryOp::kSqrt) return M::sqrt(x);
  if constexpr (op == UnaryOp::kRsqrt) return 1.0f / M::sqrt(x);
  if constexpr (op == UnaryOp::kNeg) return -x;
  if constexpr (op == UnaryOp::kSquare) return x * x;
  if constexpr (op == UnaryOp::kAffine) return alpha * x + beta;
}

// g * f'(x)
template <UnaryOp op, class M, class N>
TALLY_INLINE N unary_gradient(N x, N g, float alpha) {
  if constexpr (op == UnaryOp::kRelu) return x > 0.0f ? g : N{};
  if constexpr (op == UnaryOp::kGeluErf)
    return g * (0.5f * (1.0f + M::erf(x * kInvSqrt2)) + x * kInvSqrt2Pi * M::exp(-0.5f * x * x));
  if constexpr (op == UnaryOp::kGeluTanh) {
    const N gate = gelu_tanh_gate<M>(x);
    const N slope = (2.0f * kGeluTanhScale) * (1.0f + 3.0f * kGeluTanhCubic * x * x);
    return g * gate * (1.0f + x * (1.0f - gate) * slope);
  }
  if constexpr (op == UnaryOp::kSilu) {
    const N s = 1.0f / (1.0f + M::exp(-x));
    return g * s * (1.0f + x * (1.0f - s));
  }
  if constexpr (op == UnaryOp::kSigmoid) {
    const N s = 1.0f / (1.0f + M::exp(-x));
    return g * s * (1.0f - s);
  }
  if constexpr (op == UnaryOp::kTanh) {
    const N t = M::tanh(x);
    return g * (1.0f - t * t);
  }
  if constexpr (op == UnaryOp::kExp) return g * M::exp(x);
  if constexpr (op == UnaryOp::kLog) return g / x;
  if constexpr (op == UnaryOp::kSqrt) return g * 0.5f / M::sqrt(x);
  if constexpr (op == UnaryOp::kRsqrt) return g * -0.5f / (x * M::sqrt(x));
  if constexpr (op == UnaryOp::kNeg) return -g;
  if constexpr (op == UnaryOp::kSquare) return 2.0f * x * g;
  if constexpr (op == UnaryOp::kAffine) return alpha * g;
}

template <BinaryOp op, class N>
TALLY_INLINE N binary_value(N a, N b) {
  if constexpr (op == BinaryOp::kAdd) return a + b;
  if constexpr (op == BinaryOp::kSub) return a - b;
  if constexpr (op == BinaryOp::kMul) return a * b;
  if constexpr (op == BinaryOp::kDiv) return a / b;
}

}  // namespace tally
