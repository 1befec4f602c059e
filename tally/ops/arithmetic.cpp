#include "tally/ops/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/integer.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"

namespace tally {

namespace {

const char* name_of(BinaryOp op) { return kBinaryRows[static_cast<int>(op)].name; }

// a op b of two floats of one dtype; not recorded.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b, Category category = Category::kActivation,
              double alpha = 1) {
  const Dims size = a.sizes() == b.sizes() ? a.sizes() : broadcast_shape(name_of(op), a.sizes(), b.sizes());
  Tensor out = a.sizes() == size   ? empty_like_layout(a, a.dtype(), category)
               : b.sizes() == size ? empty_like_layout(b, a.dtype(), category)
                                   : Tensor::empty(size, a.dtype(), a.device(), category);
  View views[3] = {out.raw(), broadcast_raw(a, size), broadcast_raw(b, size)};
  order_axes(views);
  launch(&Kernels::binary, BinaryArgs{views[1], views[2], views[0], op, alpha});
  return out;
}

// Contributes the gradient g of the broadcast shape to input i.
void add_summed(Backward& b, int i, Tensor g) {
  if (g.sizes() == b.input(i).size) return b.add(i, std::move(g));
  b.add(i, sum_to(g, b.input(i).size, b.category(i), b.gradient_dtype(i)));
}

// x + s y of two floats.
Tensor plus(const Tensor& x, const Tensor& y, double s) {
  const BinaryOp op = s == 1 ? BinaryOp::kAdd : s == -1 ? BinaryOp::kSub : BinaryOp::kAddScaled;
  Tensor out = binary(op, x, y, Category::kActivation, s);
  record(
      out, {x, y}, {},
      [](Backward& t, double scale) {
        const bool second = t.needs(1);
        if (t.needs(0)) add_summed(t, 0, second ? t.grad() : t.take_grad());
        if (!second) return;
        if (scale == 1) return add_summed(t, 1, t.take_grad());
        add_summed(t, 1, scale == -1 ? neg(t.grad()) : unary(UnaryOp::kMulNumber, t.grad(), scale));
      },
      s);
  return out;
}

// a + alpha b, or a - alpha b.
Tensor sum_or_difference(const char* name, const Operand& a, const Operand& b, Scalar alpha, bool minus) {
  const DType dtype = common_type(name, {a, b});
  if (!is_floating(dtype)) {
    if (minus && dtype == DType::kBool) fail_type("sub: bool has no difference; use logical_xor or bitwise_xor");
    if (alpha.is_float()) fail("{}: alpha must be whole where the result is {}", name, tally::name_of(dtype));
    const IntegerOp op = minus ? IntegerOp::kSub : IntegerOp::kAdd;
    if (alpha.whole() == 1) return integer(op, a, b, dtype);
    if (b.is_tensor()) return integer(op, a, integer(IntegerOp::kMul, b, alpha, dtype), dtype);
    return integer(op, a, integer_value<IntegerOp::kMul>(b.number().whole(), alpha.whole()), dtype);
  }
  const double s = minus ? -alpha.real() : alpha.real();
  if (!b.is_tensor()) return unary(UnaryOp::kAddNumber, *Converted(a.tensor(), dtype), s * b.number().real());
  const Converted y(b.tensor(), dtype);
  if (a.is_tensor()) return plus(*Converted(a.tensor(), dtype), *y, s);
  if (s == 1) return unary(UnaryOp::kAddNumber, *y, a.number().real());
  if (s == -1) return unary(UnaryOp::kSubFrom, *y, a.number().real());
  return affine(*y, s, a.number().real());
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return sum_or_difference("add", a, b, 1, false); }
Tensor sub(const Tensor& a, const Tensor& b) { return sum_or_difference("sub", a, b, 1, true); }
Tensor mul(const Tensor& a, const Tensor& b) { return mul(Operand(a), Operand(b)); }
Tensor div(const Tensor& a, const Tensor& b) { return div(Operand(a), Operand(b)); }
Tensor add(const Operand& a, const Operand& b, Scalar alpha) { return sum_or_difference("add", a, b, alpha, false); }
Tensor sub(const Operand& a, const Operand& b, Scalar alpha) { return sum_or_difference("sub", a, b, alpha, true); }

Tensor mul(const Operand& a, const Operand& b) {
  const DType dtype = common_type("mul", {a, b});
  if (!is_floating(dtype)) return integer(IntegerOp::kMul, a, b, dtype);
  if (!a.is_tensor()) return mul(b, a);
  const Converted first(a.tensor(), dtype);
  if (!b.is_tensor()) return unary(UnaryOp::kMulNumber, *first, b.number().real());
  const Converted second(b.tensor(), dtype);
  const Tensor &x = *first, &y = *second;
  Tensor out = binary(BinaryOp::kMul, x, y);
  record(out, {x, y}, {x, y}, [](Backward& t) {
    for (int i = 0; i < 2; ++i)
      if (t.needs(i)) add_summed(t, i, binary(BinaryOp::kMul, t.grad(), t.saved(1 - i), t.category(i)));
  });
  return out;
}

Tensor div(const Operand& a, const Operand& b) {
  const DType dtype = float_type(common_type("div", {a, b}));
  if (!b.is_tensor()) return unary(UnaryOp::kDivNumber, *Converted(a.tensor(), dtype), b.number().real());
  const Converted second(b.tensor(), dtype);
  const Tensor& y = *second;
  if (!a.is_tensor()) return unary(UnaryOp::kDivInto, y, a.number().real());
  const Converted first(a.tensor(), dtype);
  const Tensor& x = *first;
  Tensor out = binary(BinaryOp::kDiv, x, y);
  record(out, {x, y}, {out, y}, [](Backward& t) {
    // da = g / b; db = -(g / b) * y
    const Tensor da = binary(BinaryOp::kDiv, t.grad(), t.saved(1), t.category(0));
    if (t.needs(1)) add_summed(t, 1, neg(mul(da, t.saved(0))));
    if (t.needs(0)) add_summed(t, 0, da);
  });
  return out;
}

Tensor div(const Operand& a, const Operand& b, Rounding rounding) {
  if (rounding == Rounding::kFloor) return floor_divide(a, b);
  const DType dtype = common_type("div", {a, b});
  return is_floating(dtype) ? trunc(div(a, b)) : integer(IntegerOp::kTruncDiv, a, b, dtype);
}

namespace {

// The operand of a float op as a tensor of `dtype`.
Tensor as_tensor(const Operand& o, DType dtype, const Tensor& beside) {
  return o.is_tensor() ? converted(o.tensor(), dtype) : number_tensor(o.number(), dtype, beside);
}

// Ops with one kernel forward and one for each side's gradient.
Tensor binary_with_kernel(BinaryOp op, const Operand& a, const Operand& b, DType dtype) {
  const Tensor& beside = a.is_tensor() ? a.tensor() : b.tensor();
  const Tensor x = as_tensor(a, dtype, beside), y = as_tensor(b, dtype, beside);
  Tensor out = binary(op, x, y);
  record(
      out, {x, y}, {x, y},
      [](Backward& t, BinaryOp f) {
        const Dims size = t.grad().sizes();
        for (int i = 0; i < 2; ++i) {
          if (!t.needs(i)) continue;
          const Tensor g = Tensor::empty(size, t.grad().dtype(), t.grad().device(), t.category(i));
          launch(&Kernels::binary_backward, BinaryBackwardArgs{t.grad().raw(), broadcast_raw(t.saved(0), size),
                                                               broadcast_raw(t.saved(1), size), g.raw(), f, i == 0});
          add_summed(t, i, g);
        }
      },
      op);
  return out;
}

Tensor power_of_number(const Tensor& x, double exponent) {
  if (exponent == 2) return square(x);
  if (exponent == 3) return unary(UnaryOp::kCube, x);
  if (exponent == 0.5) return sqrt(x);
  if (exponent == -0.5) return rsqrt(x);
  if (exponent == -1) return reciprocal(x);
  return unary(UnaryOp::kPowNumber, x, exponent);
}

Tensor larger_or_smaller(const Operand& a, const Operand& b, bool larger) {
  const DType dtype = common_type(larger ? "maximum" : "minimum", {a, b});
  if (is_floating(dtype)) return binary_with_kernel(larger ? BinaryOp::kMaximum : BinaryOp::kMinimum, a, b, dtype);
  return integer(larger ? IntegerOp::kMaximum : IntegerOp::kMinimum, a, b, dtype);
}

}  // namespace

Tensor pow(const Operand& a, const Operand& b) {
  const DType dtype = common_type("pow", {a, b});
  if (!is_floating(dtype)) {
    if (!b.is_tensor() && b.number().whole() < 0)
      fail("pow: integers to the negative power {} are not whole; convert to a float first", b.number().whole());
    return integer(IntegerOp::kPow, a, b, dtype);
  }
  if (!b.is_tensor()) return power_of_number(converted(a.tensor(), dtype), b.number().real());
  if (a.is_tensor()) return binary_with_kernel(BinaryOp::kPow, a, b, dtype);
  const double base = a.number().real();
  return unary(UnaryOp::kPowBase, converted(b.tensor(), dtype), base, std::log(base));
}

Tensor maximum(const Operand& a, const Operand& b) { return larger_or_smaller(a, b, true); }
Tensor minimum(const Operand& a, const Operand& b) { return larger_or_smaller(a, b, false); }

Tensor floor_divide(const Operand& a, const Operand& b) {
  const DType dtype = common_type("floor_divide", {a, b});
  if (!is_floating(dtype)) return integer(IntegerOp::kFloorDiv, a, b, dtype);
  const Tensor& beside = a.is_tensor() ? a.tensor() : b.tensor();
  const Tensor x = as_tensor(a, dtype, beside), y = as_tensor(b, dtype, beside);
  Tensor out = binary(BinaryOp::kFloorDiv, x, y);
  record(out, {x, y}, {}, [](Backward& t) {  // constant between its steps
    for (int i = 0; i < 2; ++i) {
      if (!t.needs(i)) continue;
      Tensor dx = t.empty(i);
      fill_(dx, 0);
      t.add(i, dx);
    }
  });
  return out;
}

Tensor remainder(const Operand& a, const Operand& b) {
  const DType dtype = common_type("remainder", {a, b});
  if (!is_floating(dtype)) return integer(IntegerOp::kRemainder, a, b, dtype);
  const Tensor& beside = a.is_tensor() ? a.tensor() : b.tensor();
  const Tensor x = as_tensor(a, dtype, beside), y = as_tensor(b, dtype, beside);
  Tensor out = binary(BinaryOp::kRemainder, x, y);
  record(out, {x, y}, {x, y}, [](Backward& t) {  // a - floor(a / b) b
    if (t.needs(1)) add_summed(t, 1, neg(mul(t.grad(), floor_divide(t.saved(0), t.saved(1)))));
    if (t.needs(0)) add_summed(t, 0, t.grad());
  });
  return out;
}

namespace {

Tensor clamp_to_numbers(const Tensor& x, std::optional<Scalar> low, std::optional<Scalar> high) {
  if (!low && !high) fail_value("clamp: at least one of min and max is needed");
  const DType dtype = common_type("clamp", {x, low.value_or(*(low ? low : high)), high.value_or(*(high ? high : low))});
  if (is_floating(dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    if ((low && std::isnan(low->real())) || (high && std::isnan(high->real()))) return mul(converted(x, dtype), kNaN);
    return unary(UnaryOp::kClamp, converted(x, dtype), low ? low->real() : -kInfinity, high ? high->real() : kInfinity);
  }
  const auto within = [dtype](const Scalar& bound) {  // the nearest number that dtype has: -1 is 0 for u8
    if (dtype == DType::kBool || bound.is_bool()) return bound;
    const int bits = static_cast<int>(8 * item_size(dtype));
    const bool is_unsigned = dtype == DType::kU8 || dtype == DType::kU16;
    const int64_t most = is_unsigned ? (int64_t{1} << bits) - 1 : INT64_MAX >> (64 - bits);
    return Scalar(std::clamp(bound.whole(), is_unsigned ? int64_t{0} : -most - 1, most));
  };
  const Tensor y = low ? integer(IntegerOp::kMaximum, x, within(*low), dtype) : converted(x, dtype);
  return high ? integer(IntegerOp::kMinimum, y, within(*high), dtype) : y;
}

}  // namespace

Tensor clamp(const Tensor& x, const std::optional<Operand>& low, const std::optional<Operand>& high) {
  const auto number = [](const std::optional<Operand>& o) { return o ? std::optional(o->number()) : std::nullopt; };
  if ((!low || !low->is_tensor()) && (!high || !high->is_tensor()))
    return clamp_to_numbers(x, number(low), number(high));
  const DType dtype = common_type("clamp", {x, low.value_or(*(low ? low : high)), high.value_or(*(high ? high : low))});
  Tensor y = converted(x, dtype);
  if (low) y = maximum(y, low->is_tensor() ? converted(low->tensor(), dtype) : *low);
  if (high) y = minimum(y, high->is_tensor() ? converted(high->tensor(), dtype) : *high);
  return y;
}

namespace {

Tensor bitwise(IntegerOp op, const Operand& a, const Operand& b) {
  const char* name = kIntegerNames[static_cast<int>(op)];
  const DType dtype = common_type(name, {a, b});
  if (is_floating(dtype)) fail_type("{}: takes integers and bool, not {}", name, tally::name_of(dtype));
  return integer(op, a, b, dtype);
}

}  // namespace

Tensor bitwise_and(const Operand& a, const Operand& b) { return bitwise(IntegerOp::kAnd, a, b); }
Tensor bitwise_or(const Operand& a, const Operand& b) { return bitwise(IntegerOp::kOr, a, b); }
Tensor bitwise_xor(const Operand& a, const Operand& b) { return bitwise(IntegerOp::kXor, a, b); }
Tensor bitwise_left_shift(const Operand& a, const Operand& b) { return bitwise(IntegerOp::kShiftLeft, a, b); }
Tensor bitwise_right_shift(const Operand& a, const Operand& b) { return bitwise(IntegerOp::kShiftRight, a, b); }
Tensor bitwise_not(const Tensor& x) {
  if (x.defined() && x.dtype() == DType::kBool) return bitwise(IntegerOp::kXor, x, true);
  return bitwise(IntegerOp::kXor, x, -1);
}

}  // namespace tally
