// The list of element-wise functions, shared by CPU and GPU. A new activation is one row here: an enum value, its name,
// its FLOPs forward and backward, and the two formulas. Formulas are templates over the number type; `M::exp` and
// friends are the device's own (CpuMath of ops/simd_math.h). Numbers are floats, doubles or vectors of floats; alpha
// and beta come as what a number is made of (float or double).
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
  kAffine,
  kAbs,
  kSin,
  kCos,
  kErf,
  kReciprocal,
  kLog1p,
  kExpm1,
  kCube,
  kClamp,      // to [alpha, beta]; NaN stays
  kPowNumber,  // x^alpha
  kPowBase,    // alpha^x
  // From here on the gradient is none, the output's own or scaled by a number: no backward kernel.
  kAddNumber,  // x + alpha
  kSubFrom,    // alpha - x
  kMulNumber,  // x * alpha
  kDivNumber,  // x / alpha
  kDivInto,    // alpha / x: composed backward
  kSign,
  kFloor,
  kCeil,
  kRound,  // halves to even
  kTrunc
};
constexpr int kUnaryOps = 34;
constexpr int kUnaryBackwards = static_cast<int>(UnaryOp::kAddNumber);  // the first ones have a kernel
// kAddScaled: a + alpha * b. The quotients and remainders are Python's: floor(a / b), and a remainder of b's sign.
enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kAddScaled, kPow, kMaximum, kMinimum, kFloorDiv, kRemainder };
constexpr int kBinaryOps = 10;

struct UnaryRow {
  const char* name;
  int flops, backward_flops;
};
constexpr UnaryRow kUnaryRows[kUnaryOps] = {
    {"relu", 1, 1},   {"gelu", 5, 11}, {"gelu_tanh", 9, 19}, {"silu", 3, 8},  {"sigmoid", 3, 6}, {"tanh", 1, 4},
    {"exp", 1, 2},    {"log", 1, 1},   {"sqrt", 1, 3},       {"rsqrt", 2, 4}, {"neg", 1, 1},     {"square", 1, 2},
    {"affine", 2, 1}, {"abs", 1, 2},   {"sin", 1, 2},        {"cos", 1, 2},   {"erf", 1, 4},     {"reciprocal", 1, 2},
    {"log1p", 1, 2},  {"expm1", 1, 2}, {"cube", 2, 3},       {"clamp", 2, 2}, {"pow", 1, 3},     {"pow", 1, 3},
    {"add", 1, 0},    {"sub", 1, 0},   {"mul", 1, 0},        {"div", 1, 0},   {"div", 1, 0},     {"sign", 2, 0},
    {"floor", 1, 0},  {"ceil", 1, 0},  {"round", 1, 0},      {"trunc", 1, 0},
};
TALLY_INLINE constexpr int unary_flops(UnaryOp op) { return kUnaryRows[static_cast<int>(op)].flops; }
TALLY_INLINE constexpr int unary_backward_flops(UnaryOp op) { return kUnaryRows[static_cast<int>(op)].backward_flops; }

struct BinaryRow {
  const char* name;
  int flops, backward_flops;  // the latter of one side, where there is a kernel
};
constexpr BinaryRow kBinaryRows[kBinaryOps] = {
    {"add", 1, 0}, {"sub", 1, 0},     {"mul", 1, 0},     {"div", 1, 0},          {"add", 2, 0},
    {"pow", 1, 5}, {"maximum", 1, 3}, {"minimum", 1, 3}, {"floor_divide", 1, 0}, {"remainder", 1, 0},
};

constexpr float kInvSqrt2 = 0.70710678118654752f;
constexpr float kInvSqrt2Pi = 0.39894228040143268f;
constexpr float kTwoInvSqrtPi = 1.12837916709551257f;   // 2 / sqrt(pi)
constexpr float kGeluTanhScale = 0.79788456080286536f;  // sqrt(2 / pi)
constexpr float kGeluTanhCubic = 0.044715f;

// (1 + tanh(u)) / 2 of GELU's tanh form, as 1 / (1 + e^-2u): no digits are lost where tanh is near -1.
template <class M, class N>
TALLY_INLINE N gelu_tanh_gate(N x) {
  return 1.0f / (1.0f + M::exp(-2.0f * kGeluTanhScale * (x + kGeluTanhCubic * x * x * x)));
}

// f(x). N is a number or a vector of numbers, M the device's functions.
template <UnaryOp op, class M, class N, class A>
TALLY_INLINE N unary_value(N x, A alpha, A beta) {
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
  if constexpr (op == UnaryOp::kAbs) return M::abs(x);
  if constexpr (op == UnaryOp::kSin) return M::sin(x);
  if constexpr (op == UnaryOp::kCos) return M::cos(x);
  if constexpr (op == UnaryOp::kErf) return M::erf(x);
  if constexpr (op == UnaryOp::kReciprocal) return 1.0f / x;
  if constexpr (op == UnaryOp::kLog1p) return M::log1p(x);
  if constexpr (op == UnaryOp::kExpm1) return M::expm1(x);
  if constexpr (op == UnaryOp::kCube) return x * x * x;
  if constexpr (op == UnaryOp::kClamp) {
    const N low = alpha - N{}, high = beta - N{};
    const N y = x < low ? low : x;
    return y > high ? high : y;
  }
  if constexpr (op == UnaryOp::kPowNumber) return M::pow(x, alpha - N{});
  if constexpr (op == UnaryOp::kPowBase) return M::pow(alpha - N{}, x);
  if constexpr (op == UnaryOp::kAddNumber) return x + alpha;
  if constexpr (op == UnaryOp::kSubFrom) return alpha - x;
  if constexpr (op == UnaryOp::kMulNumber) return x * alpha;
  if constexpr (op == UnaryOp::kDivNumber) return x / alpha;
  if constexpr (op == UnaryOp::kDivInto) return alpha / x;
  if constexpr (op == UnaryOp::kSign) {
    const N one = N{} + 1.0f;
    return x > 0.0f ? one : (x < 0.0f ? -one : N{});  // of NaN: 0
  }
  if constexpr (op == UnaryOp::kFloor) return M::floor(x);
  if constexpr (op == UnaryOp::kCeil) return M::ceil(x);
  if constexpr (op == UnaryOp::kRound) return M::round(x);
  if constexpr (op == UnaryOp::kTrunc) return M::trunc(x);
}

// g * f'(x)
template <UnaryOp op, class M, class N, class A>
TALLY_INLINE N unary_gradient(N x, N g, A alpha, A beta) {
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
  if constexpr (op == UnaryOp::kAbs) return x > 0.0f ? g : (x < 0.0f ? -g : N{});
  if constexpr (op == UnaryOp::kSin) return g * M::cos(x);
  if constexpr (op == UnaryOp::kCos) return -(g * M::sin(x));
  if constexpr (op == UnaryOp::kErf) return g * kTwoInvSqrtPi * M::exp(-(x * x));
  if constexpr (op == UnaryOp::kReciprocal) return -(g / (x * x));
  if constexpr (op == UnaryOp::kLog1p) return g / (1.0f + x);
  if constexpr (op == UnaryOp::kExpm1) return g * M::exp(x);
  if constexpr (op == UnaryOp::kCube) return 3.0f * x * x * g;
  if constexpr (op == UnaryOp::kClamp) {
    const N low = alpha - N{}, high = beta - N{};
    return x > low ? (x < high ? g : N{}) : N{};  // none at the bounds, as PyTorch
  }
  // alpha = 0 is a constant, whose gradient is 0 where x^-1 is not finite too.
  if constexpr (op == UnaryOp::kPowNumber) return alpha == 0 ? N{} : g * (alpha * M::pow(x, (alpha - 1) - N{}));
  if constexpr (op == UnaryOp::kPowBase)  // beta: log(alpha), made by the host
    return alpha == 0 ? N{} : g * (M::pow(alpha - N{}, x) * beta);
}

template <BinaryOp op, class M, class N, class A>
TALLY_INLINE N binary_value(N a, N b, A alpha) {
  if constexpr (op == BinaryOp::kAdd) return a + b;
  if constexpr (op == BinaryOp::kSub) return a - b;
  if constexpr (op == BinaryOp::kMul) return a * b;
  if constexpr (op == BinaryOp::kDiv) return a / b;
  if constexpr (op == BinaryOp::kAddScaled) return a + alpha * b;
  if constexpr (op == BinaryOp::kPow) return M::pow(a, b);
  if constexpr (op == BinaryOp::kMaximum) return a > b ? a : (a != a ? a : b);  // NaN where one is
  if constexpr (op == BinaryOp::kMinimum) return a < b ? a : (a != a ? a : b);
  if constexpr (op == BinaryOp::kFloorDiv) return M::floor_divide(a, b);
  if constexpr (op == BinaryOp::kRemainder) return M::remainder(a, b);
}

// g * d(a op b)/da (first) or db, of the ops whose rows have backward FLOPs. Equal numbers share a maximum's gradient.
template <BinaryOp op, bool first, class M, class N>
TALLY_INLINE N binary_gradient(N a, N b, N g) {
  if constexpr (op == BinaryOp::kPow) {
    const N zero{};
    if constexpr (first) {
      const N slope = g * (b * M::pow(a, b - 1.0f));
      return b == zero ? zero : slope;
    } else {  // 0^b does not change with b > 0
      const N slope = g * (M::pow(a, b) * M::log(a));
      return a == zero ? (b >= zero ? zero : slope) : slope;
    }
  }
  if constexpr (op == BinaryOp::kMaximum || op == BinaryOp::kMinimum) {
    const N half = g * 0.5f, none{};
    const N x = (op == BinaryOp::kMaximum) == first ? a : b, y = (op == BinaryOp::kMaximum) == first ? b : a;
    return x == y ? half : (x < y ? none : g);
  }
}

// Python's quotient and remainder of two floats, by way of fmod, which is exact: PyTorch's c10/util/generic_math.h.
template <class M, class T>
TALLY_INLINE T remainder_of_numbers(T a, T b) {
  const T r = M::fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
template <class M, class T>
TALLY_INLINE T floor_divide_numbers(T a, T b) {
  if (b == 0) return a / b;
  const T r = M::fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return M::with_sign(T(0), a / b);
  const T whole = M::floor(q);
  return q - whole > T(0.5) ? whole + 1 : whole;
}

}  // namespace tally
