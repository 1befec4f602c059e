// Element-wise kernels on the CPU: blocks of f32 vectors; f64 one number at a time, for gradient tests.
#include "tally/core/number.h"
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
