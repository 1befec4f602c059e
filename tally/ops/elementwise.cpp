#include "tally/ops/elementwise.h"

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/ops/integer.h"
#include "tally/ops/launch.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

void require_float(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: an input is missing", op);
  if (!is_float(x.dtype())) fail("{}: takes a float tensor, not {}", op, name_of(x.dtype()));
}

void require_same(const char* op, const Tensor& a, const Tensor& b) {
  require_float(op, a);
  require_float(op, b);
  if (a.dtype() != b.dtype()) fail("{}: dtypes {} and {} differ", op, name_of(a.dtype()), name_of(b.dtype()));
  if (a.device() != b.device()) fail("{}: devices {} and {} differ", op, name_of(a.device()), name_of(b.device()));
}

void refuse_f16(const char* op, const Tensor& x) {
  if (x.defined() && x.dtype() == DType::kF16)
    fail_type("{}: takes f64, f32 and bf16, not f16; convert with to(x, bf16) or to(x, f32)", op);
}

bool widens_f16(const Tensor& x) { return x.dtype() == DType::kF16 && target_of(x.device()) == DeviceKind::kCuda; }

Tensor sum_to(const Tensor& gradient, const Dims& size, Category category, DType dtype) {
  if (gradient.sizes() == size) return gradient;
  Dims padded;
  padded.rank = gradient.dim();
  for (int i = 1; i <= padded.rank; ++i) padded[padded.rank - i] = i <= size.rank ? size[size.rank - i] : 1;
  Tensor out = Tensor::empty(padded, dtype, gradient.device(), category);
  reduce_(ReduceOp::kSum, gradient, out);
  return out.alias(size, contiguous_strides(size), 0);
}

namespace {

// What the gradient of f(x) = s x, x + s, ... is: the output's own, scaled. Nothing is kept.
void record_scaled(Tensor& y, const Tensor& x, UnaryOp op, double alpha) {
  switch (op) {
    case UnaryOp::kAddNumber:
      return record(y, {x}, {}, [](Backward& b) { b.add(0, b.take_grad()); });
    case UnaryOp::kSubFrom:
      return record(y, {x}, {}, [](Backward& b) { b.add(0, neg(b.grad())); });
    case UnaryOp::kMulNumber:
    case UnaryOp::kDivNumber:
      return record(
          y, {x}, {}, [](Backward& b, UnaryOp f, double a) { b.add(0, unary(f, b.grad(), a)); }, op, alpha);
    case UnaryOp::kDivInto:  // -(y / x) g
      return record(y, {x}, {y, x}, [](Backward& b) { b.add(0, neg(mul(b.grad(), div(b.saved(0), b.saved(1))))); });
    default:  // constant between its steps
      return record(y, {x}, {}, [](Backward& b) {
        Tensor dx = b.empty(0);
        fill_(dx, 0);
        b.add(0, dx);
      });
  }
}

// The gradient's tensor: beside a leaf, to which it stays, contiguous; else of x's own layout.
Tensor gradient_of(Backward& b, const Tensor& x) {
  if (b.category(0) == Category::kGradient) return b.empty(0);
  return empty_like_layout(x, x.dtype());
}

}  // namespace

Tensor unary(UnaryOp op, const Tensor& given, double alpha, double beta) {
  require_computable(kUnaryRows[static_cast<int>(op)].name, given);
  const Converted in_float(given, float_type(given.dtype()));
  const Tensor& x = *in_float;
  Tensor y = empty_like_layout(x, x.dtype());
  View views[2] = {y.raw(), x.raw()};
  order_axes(views);
  launch(&Kernels::unary, UnaryArgs{views[1], views[0], op, alpha, beta});
  if (static_cast<int>(op) >= kUnaryBackwards) {
    record_scaled(y, x, op, alpha);
    return y;
  }
  record(
      y, {x}, {x},
      [](Backward& b, UnaryOp f, double p, double q) {
        Tensor dx = gradient_of(b, b.saved(0));
        View v[3] = {dx.raw(), b.grad().raw(), b.saved(0).raw()};
        order_axes(v);
        launch(&Kernels::unary_backward, UnaryBackwardArgs{v[1], v[2], v[0], f, p, q});
        b.add(0, dx);
      },
      op, alpha, beta);
  return y;
}

Tensor gelu(const Tensor& x) { return unary(UnaryOp::kGeluErf, x); }
Tensor gelu_tanh(const Tensor& x) { return unary(UnaryOp::kGeluTanh, x); }
Tensor silu(const Tensor& x) { return unary(UnaryOp::kSilu, x); }
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::kSigmoid, x); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::kTanh, x); }
Tensor exp(const Tensor& x) { return unary(UnaryOp::kExp, x); }
Tensor expm1(const Tensor& x) { return unary(UnaryOp::kExpm1, x); }
Tensor log(const Tensor& x) { return unary(UnaryOp::kLog, x); }
Tensor log1p(const Tensor& x) { return unary(UnaryOp::kLog1p, x); }
Tensor sqrt(const Tensor& x) { return unary(UnaryOp::kSqrt, x); }
Tensor rsqrt(const Tensor& x) { return unary(UnaryOp::kRsqrt, x); }
Tensor reciprocal(const Tensor& x) { return unary(UnaryOp::kReciprocal, x); }
Tensor sin(const Tensor& x) { return unary(UnaryOp::kSin, x); }
Tensor cos(const Tensor& x) { return unary(UnaryOp::kCos, x); }
Tensor erf(const Tensor& x) { return unary(UnaryOp::kErf, x); }
Tensor affine(const Tensor& x, double scale, double shift) { return unary(UnaryOp::kAffine, x, scale, shift); }

// ---- functions that keep integers

namespace {

bool whole(const Tensor& x) { return x.defined() && !is_floating(x.dtype()); }

Tensor rounding(UnaryOp op, const Tensor& x) {
  return whole(x) ? integer(IntegerOp::kOr, x, 0, x.dtype()) : unary(op, x);  // integers: a copy
}

}  // namespace

Tensor relu(const Tensor& x) { return whole(x) ? maximum(x, 0) : unary(UnaryOp::kRelu, x); }
Tensor neg(const Tensor& x) {
  if (whole(x) && x.dtype() == DType::kBool) fail("neg: a bool tensor has no negative; use logical_not");
  return whole(x) ? integer(IntegerOp::kSub, 0, x, x.dtype()) : unary(UnaryOp::kNeg, x);
}
Tensor abs(const Tensor& x) { return whole(x) ? integer(IntegerOp::kAbs, x) : unary(UnaryOp::kAbs, x); }
Tensor sign(const Tensor& x) { return whole(x) ? integer(IntegerOp::kSign, x) : unary(UnaryOp::kSign, x); }
Tensor square(const Tensor& x) { return whole(x) ? pow(x, 2) : unary(UnaryOp::kSquare, x); }
Tensor floor(const Tensor& x) { return rounding(UnaryOp::kFloor, x); }
Tensor ceil(const Tensor& x) { return rounding(UnaryOp::kCeil, x); }
Tensor round(const Tensor& x) { return rounding(UnaryOp::kRound, x); }
Tensor trunc(const Tensor& x) { return rounding(UnaryOp::kTrunc, x); }

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  require_same("swiglu", gate, up);
  if (gate.sizes() != up.sizes()) fail("swiglu: shapes {} and {} differ", str(gate.sizes()), str(up.sizes()));
  Tensor y = Tensor::empty(gate.sizes(), gate.dtype(), gate.device());
  launch(&Kernels::swiglu, SwigluArgs{gate.raw(), up.raw(), y.raw()});
  record(y, {gate, up}, {gate, up}, [](Backward& b) {
    Tensor dgate = b.empty(0), dup = b.empty(1);
    launch(&Kernels::swiglu_backward,
           SwigluBackwardArgs{b.grad().raw(), b.saved(0).raw(), b.saved(1).raw(), dgate.raw(), dup.raw()});
    b.add(0, dgate);
    b.add(1, dup);
  });
  return y;
}

namespace {

// copy_() into a tensor that nobody has seen yet, or as a part of copy_().
void move_values(const Tensor& into, const Tensor& from, bool saturate) {
  if (into.dtype() != from.dtype() && (into.dtype() == DType::kF4E2M1x2 || from.dtype() == DType::kF4E2M1x2))
    fail_type("copy: {} to {}: a byte of f4e2m1x2 holds two codes; use quantize and dequantize", name_of(from.dtype()),
              name_of(into.dtype()));
  if (into.sizes() != from.sizes()) fail("copy: shapes {} and {} differ", str(into.sizes()), str(from.sizes()));
  if (into.device() == from.device()) return launch(&Kernels::copy, CopyArgs{from.raw(), into.raw(), saturate});
  // Between devices bytes are moved between contiguous tensors of one dtype; the kernels of both ends do the rest.
  if (!from.is_contiguous() || from.dtype() != into.dtype()) {
    const Tensor dense = Tensor::empty(from.sizes(), into.dtype(), from.device(), Category::kWorkspace);
    move_values(dense, from, saturate);
    return move_values(into, dense, true);
  }
  if (!into.is_contiguous()) {
    const Tensor dense = Tensor::empty(into.sizes(), into.dtype(), into.device(), Category::kWorkspace);
    move_values(dense, from, true);
    return move_values(into, dense, true);
  }
  copy_bytes(into.raw().data, into.device(), from.raw().data, from.device(), from.numel() * from.element_size());
}

}  // namespace

void copy_(const Tensor& into, const Tensor& from, bool saturate) {
  bump_version(into);
  move_values(into, from, saturate);
}

Tensor to(const Tensor& x, Device device, bool non_blocking) {
  if (x.device() == device) return x;
  const bool to_host = device.kind == DeviceKind::kCpu, from_host = x.device().kind == DeviceKind::kCpu;
  const bool at_once = non_blocking && x.is_contiguous() && (!from_host || x.is_pinned());
  Tensor y = at_once && to_host ? Tensor::empty_pinned(x.sizes(), x.dtype(), x.category())
                                : Tensor::empty(x.sizes(), x.dtype(), device, x.category());
  if (at_once) {
    copy_bytes_async(y.raw().data, device, x.raw().data, x.device(), x.numel() * x.element_size());
  } else {
    move_values(y, x, true);
  }
  return y;
}

Tensor pin_memory(const Tensor& x) {
  if (x.device().kind != DeviceKind::kCpu)
    fail("pin_memory: takes a tensor of the CPU, not of {}", name_of(x.device()));
  if (x.is_pinned()) return x;
  Tensor y = Tensor::empty_pinned(x.sizes(), x.dtype(), x.category());
  move_values(y, x, true);
  return y;
}

}  // namespace tally
