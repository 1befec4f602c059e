// Element-wise kernels on the CPU: blocks of f32 vectors; f64 one number at a time, for gradient tests. Copies and
// fills are elementwise_copy_cpu.cpp's.
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

template <UnaryOp op>
struct UnaryTag {
  static constexpr UnaryOp value = op;
};

// f(UnaryTag<op>): the formula is chosen outside the loops.
template <int i = 0, class F>
TALLY_INLINE void with_unary(UnaryOp op, const F& f) {
  if constexpr (i < kUnaryOps) {
    if (static_cast<int>(op) == i) return f(UnaryTag<static_cast<UnaryOp>(i)>{});
    with_unary<i + 1>(op, f);
  }
}

template <BinaryOp op>
void binary_op(const View (&views)[3]) {
  map_elements<1, 2>(views, [](const auto& in, auto& out) { out[0] = binary_value<op>(in[0], in[1]); });
}

}  // namespace

void unary(const UnaryArgs& a) {
  const View views[2] = {a.out, a.x};
  with_unary(a.op, [&](auto tag) {
    map_elements<1, 1>(views, [&](const auto& in, auto& out) {
      out[0] = unary_value<decltype(tag)::value, CpuMath>(in[0], a.alpha, a.beta);
    });
  });
}

void unary_backward(const UnaryBackwardArgs& a) {
  const View views[3] = {a.dx, a.x, a.grad};
  with_unary(a.op, [&](auto tag) {
    map_elements<1, 2>(views, [&](const auto& in, auto& out) {
      out[0] = unary_gradient<decltype(tag)::value, CpuMath>(in[0], in[1], a.alpha);
    });
  });
}

void binary(const BinaryArgs& a) {
  const View views[3] = {a.out, a.a, a.b};
  switch (a.op) {
    case BinaryOp::kAdd:
      return binary_op<BinaryOp::kAdd>(views);
    case BinaryOp::kSub:
      return binary_op<BinaryOp::kSub>(views);
    case BinaryOp::kMul:
      return binary_op<BinaryOp::kMul>(views);
    case BinaryOp::kDiv:
      return binary_op<BinaryOp::kDiv>(views);
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
