#include "tally/ops/inplace.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/changes.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/integer.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"
#include "tally/ops/view.h"
#include "tally/ops/where.h"

namespace tally {

namespace {

bool recorded(const Tensor& x, const Operand* y = nullptr) {
  if (NoGrad::active()) return false;
  if (y != nullptr && y->is_tensor() && y->tensor().requires_grad()) {
    require_recorded_view("in place", x);
    return true;
  }
  return x.requires_grad();
}

Tensor clone(const Tensor& x) {
  Tensor y = empty_like_layout(x, x.dtype(), x.category());
  copy_(y, x);
  return y;
}

void require_result(const char* op, const Tensor& x, const Dims& size, DType dtype) {
  if (x.sizes() != size)
    fail("{}: a tensor of shape {} doesn't match the broadcast shape {}", op, str(x.sizes()), str(size));
  if (!can_cast(dtype, x.dtype()))
    fail("{}: result type {} can't be cast to the desired output type {}; convert the tensor first", op, name_of(dtype),
         name_of(x.dtype()));
}

// x takes the values of y and, where gradients are recorded, its place in the tape.
void take(const char* op, Tensor& x, const Tensor& y) {
  require_result(op, x, y.sizes(), y.dtype());
  const Tensor z = converted(y, x.dtype());
  const Operand from(z);
  const bool on_tape = recorded(x, &from);
  copy_(x, z);
  wrote(x);
  if (!on_tape) return;
  x.set_node(z.node(), z.output_index());
  publish(x);
}

// x = compute(x) by way of a new tensor. Backwards may keep their input: they get a copy of the old values.
template <class F>
void through_copy(const char* op, Tensor& x, const F& compute, const Operand* y = nullptr) {
  if (!recorded(x, y)) return take(op, x, compute(static_cast<const Tensor&>(x)));
  Tensor old = clone(x);
  old.set_node(x.node(), x.output_index());
  take(op, x, compute(static_cast<const Tensor&>(old)));
}

// y as an operand of a kernel that writes x at once, or nothing where x must be computed apart.
bool fits(const Tensor& x, const Operand& y) {
  if (recorded(x, &y)) return false;
  if (!y.is_tensor()) return true;
  const Tensor& t = y.tensor();
  if (!t.defined() || t.device() != x.device()) return false;
  const bool alike =
      t.dtype() == x.dtype() || (x.dtype() == DType::kF32 && is_float(t.dtype()) && item_size(t.dtype()) == 2);
  return alike && t.dim() <= x.dim() && broadcast_shape("in place", x.sizes(), t.sizes()) == x.sizes() &&
         !overlap_partly(x, t);
}

void write_unary(Tensor& x, UnaryOp op, double alpha, double beta) {
  View views[1] = {x.raw()};
  order_axes(views);
  launch(&Kernels::unary, UnaryArgs{views[0], views[0], op, alpha, beta});
  wrote(x);
}

void write_binary(Tensor& x, BinaryOp op, const Tensor& y, double alpha) {
  View views[2] = {x.raw(), broadcast_raw(y, x.sizes())};
  order_axes(views);
  launch(&Kernels::binary, BinaryArgs{views[0], views[1], views[0], op, alpha});
  wrote(x);
}

// x = x op y at once where nothing stands against it: a float op or its form with a number.
bool write_float(Tensor& x, BinaryOp op, const Operand& y, UnaryOp with_number, double alpha = 1, double number = 0) {
  if (!is_float(x.dtype()) || !fits(x, y)) return false;
  if (y.is_tensor()) {
    write_binary(x, op, y.tensor(), alpha);
  } else {
    write_unary(x, with_number, number, 0);
  }
  return true;
}

bool write_integer(const char* name, Tensor& x, IntegerOp op, const Operand& y) {
  if (is_floating(x.dtype()) || !fits(x, y) || common_type(name, {x, y}) != x.dtype()) return false;
  integer(op, x, y, x.dtype(), &x);
  wrote(x);
  return true;
}

void add_or_sub(const char* name, Tensor& x, const Operand& y, Scalar alpha, bool minus) {
  require_writable(name, x);
  const double s = minus ? -alpha.real() : alpha.real();
  const BinaryOp op = s == 1 ? BinaryOp::kAdd : s == -1 ? BinaryOp::kSub : BinaryOp::kAddScaled;
  if (write_float(x, op, y, UnaryOp::kAddNumber, s, y.is_tensor() ? 0 : s * y.number().real())) return;
  const bool plain = !alpha.is_float() && alpha.whole() == 1 && !(minus && x.dtype() == DType::kBool);
  if (plain && write_integer(name, x, minus ? IntegerOp::kSub : IntegerOp::kAdd, y)) return;
  through_copy(
      name, x, [&](const Tensor& old) { return minus ? sub(old, y, alpha) : add(old, y, alpha); }, &y);
}

// A function of one tensor: at once for floats.
void apply(const char* name, Tensor& x, UnaryOp op, Tensor (*f)(const Tensor&)) {
  require_writable(name, x);
  if (is_float(x.dtype()) && !recorded(x)) return write_unary(x, op, 1, 0);
  through_copy(name, x, f);
}

}  // namespace

void add_(Tensor& x, const Operand& y, Scalar alpha) { add_or_sub("add_", x, y, alpha, false); }
void sub_(Tensor& x, const Operand& y, Scalar alpha) { add_or_sub("sub_", x, y, alpha, true); }

void mul_(Tensor& x, const Operand& y) {
  require_writable("mul_", x);
  if (write_float(x, BinaryOp::kMul, y, UnaryOp::kMulNumber, 1, y.number().real())) return;
  if (write_integer("mul_", x, IntegerOp::kMul, y)) return;
  through_copy(
      "mul_", x, [&](const Tensor& old) { return mul(old, y); }, &y);
}

void div_(Tensor& x, const Operand& y) {
  require_writable("div_", x);
  if (write_float(x, BinaryOp::kDiv, y, UnaryOp::kDivNumber, 1, y.number().real())) return;
  through_copy(
      "div_", x, [&](const Tensor& old) { return div(old, y); }, &y);
}

void pow_(Tensor& x, const Operand& exponent) {
  require_writable("pow_", x);
  through_copy(
      "pow_", x, [&](const Tensor& old) { return pow(old, exponent); }, &exponent);
}
void floor_divide_(Tensor& x, const Operand& y) {
  require_writable("floor_divide_", x);
  through_copy(
      "floor_divide_", x, [&](const Tensor& old) { return floor_divide(old, y); }, &y);
}
void remainder_(Tensor& x, const Operand& y) {
  require_writable("remainder_", x);
  through_copy(
      "remainder_", x, [&](const Tensor& old) { return remainder(old, y); }, &y);
}
void clamp_(Tensor& x, const std::optional<Operand>& low, const std::optional<Operand>& high) {
  require_writable("clamp_", x);
  const bool first = low && low->is_tensor() && low->tensor().requires_grad();
  const Operand* const bound = first ? &*low : high ? &*high : nullptr;  // one that may be recorded
  through_copy(
      "clamp_", x, [&](const Tensor& old) { return clamp(old, low, high); }, bound);
}

namespace {
void bitwise_in_place(const char* name, Tensor& x, const Operand& y, IntegerOp op,
                      Tensor (*f)(const Operand&, const Operand&)) {
  require_writable(name, x);
  if (write_integer(name, x, op, y)) return;
  through_copy(
      name, x, [&](const Tensor& old) { return f(old, y); }, &y);
}
}  // namespace

void bitwise_and_(Tensor& x, const Operand& y) { bitwise_in_place("bitwise_and_", x, y, IntegerOp::kAnd, bitwise_and); }
void bitwise_or_(Tensor& x, const Operand& y) { bitwise_in_place("bitwise_or_", x, y, IntegerOp::kOr, bitwise_or); }
void bitwise_xor_(Tensor& x, const Operand& y) { bitwise_in_place("bitwise_xor_", x, y, IntegerOp::kXor, bitwise_xor); }

void relu_(Tensor& x) { apply("relu_", x, UnaryOp::kRelu, relu); }
void sigmoid_(Tensor& x) { apply("sigmoid_", x, UnaryOp::kSigmoid, sigmoid); }
void tanh_(Tensor& x) { apply("tanh_", x, UnaryOp::kTanh, tanh); }
void exp_(Tensor& x) { apply("exp_", x, UnaryOp::kExp, exp); }
void log_(Tensor& x) { apply("log_", x, UnaryOp::kLog, log); }
void sqrt_(Tensor& x) { apply("sqrt_", x, UnaryOp::kSqrt, sqrt); }
void rsqrt_(Tensor& x) { apply("rsqrt_", x, UnaryOp::kRsqrt, rsqrt); }
void reciprocal_(Tensor& x) { apply("reciprocal_", x, UnaryOp::kReciprocal, reciprocal); }
void sin_(Tensor& x) { apply("sin_", x, UnaryOp::kSin, sin); }
void cos_(Tensor& x) { apply("cos_", x, UnaryOp::kCos, cos); }
void erf_(Tensor& x) { apply("erf_", x, UnaryOp::kErf, erf); }
void neg_(Tensor& x) { apply("neg_", x, UnaryOp::kNeg, neg); }
void abs_(Tensor& x) { apply("abs_", x, UnaryOp::kAbs, abs); }
void sign_(Tensor& x) { apply("sign_", x, UnaryOp::kSign, sign); }
void square_(Tensor& x) { apply("square_", x, UnaryOp::kSquare, square); }
void floor_(Tensor& x) { apply("floor_", x, UnaryOp::kFloor, floor); }
void ceil_(Tensor& x) { apply("ceil_", x, UnaryOp::kCeil, ceil); }
void round_(Tensor& x) { apply("round_", x, UnaryOp::kRound, round); }
void trunc_(Tensor& x) { apply("trunc_", x, UnaryOp::kTrunc, trunc); }

void fill_(Tensor& x, Scalar value) {
  require_writable("fill_", x);
  launch(&Kernels::fill, FillArgs{x.raw(), value.real()});
  constexpr int64_t kExact = int64_t{1} << 53;  // beyond, a f64 does not hold every i64
  if (x.dtype() == DType::kI64 && (value.whole() > kExact || value.whole() < -kExact)) {
    integer(IntegerOp::kAnd, x, 0, x.dtype(), &x);
    integer(IntegerOp::kOr, x, value, x.dtype(), &x);
  }
  wrote(x);
  if (!recorded(x)) return;
  Tensor y = x.detach();  // constant: its old values get no gradient
  record(y, {x}, {}, [](Backward& b) {
    Tensor dx = b.empty(0);
    fill_(dx, 0);
    b.add(0, dx);
  });
  x.set_node(y.node(), y.output_index());
  publish(x);
}

void zero_(Tensor& x) { fill_(x, 0); }

void masked_fill_(Tensor& x, const Tensor& mask, const Operand& value) {
  require_writable("masked_fill_", x);
  const bool at_once = !value.is_tensor() && !recorded(x) && mask.defined() && mask.dtype() == DType::kBool &&
                       mask.device() == x.device() && mask.dim() <= x.dim() && !overlap_partly(x, mask) &&
                       broadcast_shape("masked_fill_", x.sizes(), mask.sizes()) == x.sizes();
  if (!at_once)
    return through_copy(
        "masked_fill_", x, [&](const Tensor& old) { return masked_fill(old, mask, value); }, &value);
  choose(mask, value, x, x.dtype(), x.category(), &x);
  wrote(x);
}

void assign_(Tensor& x, const Tensor& y) {
  require_writable("copy_", x);
  if (!y.defined()) fail("copy_: an input is missing");
  require_result("copy_", x, broadcast_shape("copy_", x.sizes(), y.sizes()), x.dtype());
  Tensor from = converted(y.device() == x.device() ? y : to(y, x.device()), x.dtype());
  if (overlap_partly(x, from)) from = clone(from);
  take("copy_", x, expand(from, x.sizes()));
}

}  // namespace tally
