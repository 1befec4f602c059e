// Element-wise kernels on the CPU: blocks of f32 vectors; f64 one number at a time, for gradient tests.
#include <type_traits>
#include <utility>

#include "tally/core/number.h"
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

// Same dtype: bits are moved. size is the element's.
template <class T>
void move_bits(const CopyArgs& a) {
  const View views[2] = {a.out, a.x};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    T* out = a.out.ptr<T>() + at[0];
    const T* x = a.x.ptr<T>() + at[1];
    if (step[0] == 1 && step[1] == 1) {
      __builtin_memcpy(out, x, static_cast<uint64_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) out[i * step[0]] = x[i * step[1]];
    }
  });
}

bool is_f32_or_bf16(DType t) { return t == DType::kF32 || t == DType::kBF16; }

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

void fill(const FillArgs& a) {
  const View views[1] = {a.out};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    if (a.out.dtype == DType::kF32) {
      for (int64_t i = 0; i < n; ++i) a.out.ptr<float>()[at[0] + i * step[0]] = static_cast<float>(a.value);
    } else {
      for (int64_t i = 0; i < n; ++i) write_number(a.out.data, a.out.dtype, at[0] + i * step[0], a.value);
    }
  });
}

void copy(const CopyArgs& a) {
  const View views[2] = {a.out, a.x};
  if (a.x.dtype == a.out.dtype) {
    switch (item_size(a.x.dtype)) {
      case 8:
        return move_bits<uint64_t>(a);
      case 4:
        return move_bits<uint32_t>(a);
      case 2:
        return move_bits<uint16_t>(a);
      default:
        return move_bits<uint8_t>(a);
    }
  }
  if (is_f32_or_bf16(a.x.dtype) && is_f32_or_bf16(a.out.dtype))
    return map_elements<1, 1>(views, [](const auto& in, auto& out) { out[0] = in[0]; });
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    for (int64_t i = 0; i < n; ++i)
      write_number(a.out.data, a.out.dtype, at[0] + i * step[0], read_number(a.x.data, a.x.dtype, at[1] + i * step[1]));
  });
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
