#include "tally/ops/integer.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/ledger.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"

namespace tally {

namespace {

bool divides(IntegerOp op) {
  return op == IntegerOp::kFloorDiv || op == IntegerOp::kTruncDiv || op == IntegerOp::kRemainder;
}

// As PyTorch's CPU; a card computes 0 without a look at the numbers, which would make the host wait.
void refuse_zero(IntegerOp op, const Operand& b) {
  bool zero = false;
  if (!b.is_tensor()) {
    zero = b.number().whole() == 0;
  } else if (b.tensor().device().kind == DeviceKind::kCpu && b.tensor().numel() > 0) {
    const std::vector<double> values = b.tensor().to_vector();
    zero = std::find(values.begin(), values.end(), 0.0) != values.end();
  }
  if (zero) fail("ZeroDivisionError: {} of integers by zero", kIntegerNames[static_cast<int>(op)]);
}

}  // namespace

Tensor integer(IntegerOp op, const Operand& a, const Operand& b, DType dtype, const Tensor* into) {
  const char* name = kIntegerNames[static_cast<int>(op)];
  if (divides(op)) refuse_zero(op, b);
  const Tensor& one = a.is_tensor() ? a.tensor() : b.tensor();
  const Tensor& other = b.is_tensor() ? b.tensor() : one;
  const Dims size = broadcast_shape(name, one.sizes(), other.sizes());
  Tensor out = into != nullptr       ? into->detach()
               : one.sizes() == size ? empty_like_layout(one, dtype)
                                     : Tensor::empty(size, dtype, one.device());
  View views[3] = {out.raw(), broadcast_raw(one, size), broadcast_raw(other, size)};
  order_axes(views);
  IntegerArgs args{views[1], views[2], views[0], op, IntegerArgs::kNone, 0};
  if (!a.is_tensor()) args.number = IntegerArgs::kA, args.value = a.number().whole();
  if (!b.is_tensor()) args.number = IntegerArgs::kB, args.value = b.number().whole();
  launch(&Kernels::integer, args);
  return out;
}

Tensor integer(IntegerOp op, const Tensor& x, const Tensor* into) {
  Tensor out = into != nullptr ? into->detach() : empty_like_layout(x, x.dtype());
  View views[2] = {out.raw(), x.raw()};
  order_axes(views);
  launch(&Kernels::integer, IntegerArgs{views[1], views[1], views[0], op, IntegerArgs::kB, 0});
  return out;
}

}  // namespace tally
