// Element-wise kernels on the CPU: blocks of f32 vectors; f64 one number at a time, for gradient tests. Copies and
// fills are elementwise_copy_cpu.cpp's.
#include <type_traits>
#include <utility>

#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

// What alpha and beta are in a formula of N.
template <class N>
using NumberIn = std::conditional_t<std::is_same_v<std::remove_cv_t<N>, double>, double, float>;

template <UnaryOp op>
void unary_op(const UnaryArgs& a) {
  const View views[2] = {a.out, a.x};
  map_elements<1, 1>(views, [alpha = a.alpha, beta = a.beta](const auto& in, auto& out) {
    using A = NumberIn<std::remove_reference_t<decltype(in[0])>>;
    out[0] = unary_value<op, CpuMath>(in[0], static_cast<A>(alpha), static_cast<A>(beta));
  });
}

template <UnaryOp op>
void unary_backward_op(const UnaryBackwardArgs& a) {
  const View views[3] = {a.dx, a.x, a.grad};
  map_elements<1, 2>(views, [alpha = a.alpha, beta = a.beta](const auto& in, auto& out) {
    using A = NumberIn<std::remove_reference_t<decltype(in[0])>>;
    out[0] = unary_gradient<op, CpuMath>(in[0], in[1], static_cast<A>(alpha), static_cast<A>(beta));
  });
}

template <BinaryOp op>
void binary_op(const BinaryArgs& a) {
  const View views[3] = {a.out, a.a, a.b};
  map_elements<1, 2>(views, [alpha = a.alpha](const auto& in, auto& out) {
    using A = NumberIn<std::remove_reference_t<decltype(in[0])>>;
    out[0] = binary_value<op, CpuMath>(in[0], in[1], static_cast<A>(alpha));
  });
}

template <BinaryOp op, bool first>
void binary_backward_op(const BinaryBackwardArgs& a) {
  const View views[4] = {a.out, a.a, a.b, a.grad};
  map_elements<1, 3>(
      views, [](const auto& in, auto& out) { out[0] = binary_gradient<op, first, CpuMath>(in[0], in[1], in[2]); });
}

// The functions of all ops, found by number.
template <int... i>
void call_unary(const UnaryArgs& a, std::integer_sequence<int, i...>) {
  static constexpr void (*kOps[])(const UnaryArgs&) = {unary_op<static_cast<UnaryOp>(i)>...};
  kOps[static_cast<int>(a.op)](a);
}
template <int... i>
void call_unary_backward(const UnaryBackwardArgs& a, std::integer_sequence<int, i...>) {
  static constexpr void (*kOps[])(const UnaryBackwardArgs&) = {unary_backward_op<static_cast<UnaryOp>(i)>...};
  kOps[static_cast<int>(a.op)](a);
}
template <int... i>
void call_binary(const BinaryArgs& a, std::integer_sequence<int, i...>) {
  static constexpr void (*kOps[])(const BinaryArgs&) = {binary_op<static_cast<BinaryOp>(i)>...};
  kOps[static_cast<int>(a.op)](a);
}

}  // namespace

void unary(const UnaryArgs& a) { call_unary(a, std::make_integer_sequence<int, kUnaryOps>()); }

void unary_backward(const UnaryBackwardArgs& a) {
  call_unary_backward(a, std::make_integer_sequence<int, kUnaryBackwards>());
}

void binary(const BinaryArgs& a) { call_binary(a, std::make_integer_sequence<int, kBinaryOps>()); }

void binary_backward(const BinaryBackwardArgs& a) {
  switch (a.op) {
    case BinaryOp::kPow:
      return a.first ? binary_backward_op<BinaryOp::kPow, true>(a) : binary_backward_op<BinaryOp::kPow, false>(a);
    case BinaryOp::kMaximum:
      return a.first ? binary_backward_op<BinaryOp::kMaximum, true>(a)
                     : binary_backward_op<BinaryOp::kMaximum, false>(a);
    default:
      return a.first ? binary_backward_op<BinaryOp::kMinimum, true>(a)
                     : binary_backward_op<BinaryOp::kMinimum, false>(a);
  }
}

void swiglu(const SwigluArgs& a) {
  const View views[3] = {a.out, a.gate, a.up};
  map_elements<1, 2>(views, [](const auto& in, auto& out) { out[0] = in[0] / (1.0f + exp_of(-in[0])) * in[1]; });
}

void swiglu_backward(const SwigluBackwardArgs& a) {
  const View views[5] = {a.dgate, a.dup, a.grad, a.gate, a.up};
  map_elements<2, 3>(views, [](const auto& in, auto& out) {
    const auto g = in[0], x = in[1], u = in[2];
    const auto s = 1.0f / (1.0f + exp_of(-x));
    out[0] = g * u * (s * (1.0f + x * (1.0f - s)));
    out[1] = g * (x * s);
  });
}

}  // namespace tally::TALLY_ISA
