#include "tally/ops/reduce_plain.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/order_keys.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

void require_ordered(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: an input is missing", op);
  if (!is_ordered(x.dtype())) fail("{}: does not take {}", op, name_of(x.dtype()));
}

// Places along an axis; the axis has size 1 in the result.
Tensor places(const char* op, const Tensor& x, int axis, bool least) {
  if (x.sizes()[axis] == 0 && x.dim() > 0)
    fail_index("{}: Expected reduction dim {} to have non-zero size: shape {}", op, axis, str(x.sizes()));
  Dims size = x.sizes();
  if (size.rank > 0) size[axis] = 1;
  const Tensor out = Tensor::empty(size, DType::kI64, x.device());
  launch(&Kernels::arg_reduce, ArgReduceArgs{x.raw(), out.raw(), axis, least});
  return out;
}

Tensor shaped(const Tensor& t, const Dims& size) { return t.alias(size, contiguous_strides(size), 0); }

Tensor arg(const char* op, const Tensor& x, std::optional<int> axis, bool keepdim, bool least) {
  require_ordered(op, x);
  NoGrad quiet;
  if (!axis || x.dim() == 0) {
    if (axis) scalar_axis(*axis, 0, op);
    if (x.numel() == 0)
      fail_index("{}: Expected reduction dim to be specified for input.numel() == 0: shape {}", op, str(x.sizes()));
    const Tensor at = places(op, reshape(x, Dims(x.numel())), 0, least);
    return shaped(at, reduced_size(x.sizes(), (1 << x.dim()) - 1, keepdim));
  }
  const int i = normalize_axis(*axis, x.dim(), op);
  return shaped(places(op, x, i, least), reduced_size(x.sizes(), 1 << i, keepdim));
}

ValuesIndices extreme(const char* op, const Tensor& x, int axis, bool keepdim, bool least) {
  require_ordered(op, x);
  const int i = scalar_axis(axis, x.dim(), op);
  if (x.dim() == 0) {
    const ValuesIndices one = extreme(op, reshape(x, Dims(1)), 0, false, least);
    return one;
  }
  Tensor at = places(op, x, i, least);
  Tensor values = take_along_axis(x, at, i);
  if (keepdim) return {values, at};
  return {squeeze(values, i), squeeze(at, i)};
}

Tensor truth(const char* op, PlainOp kind, const Tensor& x, const Dims& axes, bool keepdim) {
  require_ordered(op, x);
  const int mask = reduced_axes(op, x, axes);
  const Tensor out = Tensor::empty(reduced_size(x.sizes(), mask, true), DType::kBool, x.device());
  reduce_plain_(kind, x, out);
  return shaped(out, reduced_size(x.sizes(), mask, keepdim));
}

}  // namespace

void reduce_plain_(PlainOp op, const Tensor& x, const Tensor& out) {
  launch(&Kernels::reduce_plain, ReducePlainArgs{x.raw(), out.raw(), op});
}

Tensor argmax(const Tensor& x, std::optional<int> axis, bool keepdim) { return arg("argmax", x, axis, keepdim, false); }
Tensor argmin(const Tensor& x, std::optional<int> axis, bool keepdim) { return arg("argmin", x, axis, keepdim, true); }
ValuesIndices max(const Tensor& x, int axis, bool keepdim) { return extreme("max", x, axis, keepdim, false); }
ValuesIndices min(const Tensor& x, int axis, bool keepdim) { return extreme("min", x, axis, keepdim, true); }
Tensor any(const Tensor& x, const Dims& axes, bool keepdim) { return truth("any", PlainOp::kAny, x, axes, keepdim); }
Tensor all(const Tensor& x, const Dims& axes, bool keepdim) { return truth("all", PlainOp::kAll, x, axes, keepdim); }

}  // namespace tally
