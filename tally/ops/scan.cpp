#include "tally/ops/scan.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Tensor scan_of(const char* op, ScanOp kind, const Tensor& input, int axis, std::optional<DType> dtype) {
  if (!input.defined()) fail("{}: an input is missing", op);
  axis = scalar_axis(axis, input.dim(), op);
  const Tensor x = dtype ? to(input, *dtype) : input;
  if (x.dim() == 0) return reshape(scan_of(op, kind, reshape(x, Dims(1)), 0, {}), Dims());
  if (is_integer(x.dtype()) || x.dtype() == DType::kBool) {
    const Tensor out = Tensor::empty(x.sizes(), DType::kI64, x.device());
    launch(&Kernels::scan, ScanArgs{x.raw(), out.raw(), axis, kind, false});
    NoGrad quiet;
    return to(out, dtype.value_or(DType::kI64));
  }
  require_float(op, x);
  if (kind == ScanOp::kProd && x.dtype() == DType::kF16 && needs_grad({x}))  // the gradient has no kernel for it
    return to(scan_of(op, kind, to(x, DType::kF32), axis, {}), DType::kF16);
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  launch(&Kernels::scan, ScanArgs{x.raw(), y.raw(), axis, kind, false});
  if (kind == ScanOp::kSum) {
    record(
        y, {x}, {},
        [](Backward& b, int i) {
          const Tensor g = b.grad();
          Tensor dx = b.empty(0);
          launch(&Kernels::scan, ScanArgs{g.raw(), dx.raw(), i, ScanOp::kSum, true});
          b.add(0, std::move(dx));
        },
        axis);
  } else {
    record(
        y, {x}, {x, y},
        [](Backward& b, int i) {
          Tensor dx = b.empty(0);
          launch(&Kernels::cumprod_backward,
                 CumprodBackwardArgs{b.grad().raw(), b.saved(0).raw(), b.saved(1).raw(), dx.raw(), i});
          b.add(0, std::move(dx));
        },
        axis);
  }
  return y;
}

}  // namespace

Tensor cumsum(const Tensor& x, int axis, std::optional<DType> dtype) {
  return scan_of("cumsum", ScanOp::kSum, x, axis, dtype);
}
Tensor cumprod(const Tensor& x, int axis, std::optional<DType> dtype) {
  return scan_of("cumprod", ScanOp::kProd, x, axis, dtype);
}

}  // namespace tally
