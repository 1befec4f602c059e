#include "tally/ops/sort.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/sort_kernels.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

int checked_axis(const char* op, const Tensor& x, int axis) {
  if (!x.defined()) fail("{}: an input is missing", op);
  if (!is_ordered(x.dtype())) fail("{}: does not take {}", op, name_of(x.dtype()));
  return scalar_axis(axis, x.dim(), op);
}

Tensor scratch_of(int64_t bytes, Device device) {
  return bytes > 0 ? Tensor::empty(Dims(bytes), DType::kU8, device, Category::kWorkspace) : Tensor{};
}

// values[.., j, ..] = x[.., indices[.., j, ..], ..]: the gradient goes back to where the values came from.
void record_picked(Tensor& values, const Tensor& x, const Tensor& indices, int axis) {
  if (!is_float(x.dtype())) return;
  record(
      values, {x}, {indices},
      [](Backward& b, int along) {
        const InputMeta& meta = b.input(0);
        const DType sums = meta.dtype == DType::kF64 ? meta.dtype : DType::kF32;
        const bool narrow = b.gradient_dtype(0) != sums;
        Tensor dx = Tensor::empty(meta.size, sums, meta.device, narrow ? Category::kWorkspace : b.category(0));
        launch(&Kernels::gather_backward, GatherBackwardArgs{b.grad().raw(), b.saved(0).raw(), dx.raw(), along});
        if (narrow) {
          Tensor rounded = b.empty(0);
          copy_(rounded, dx);
          dx = rounded;
        }
        b.add(0, std::move(dx));
      },
      axis);
}

ValuesIndices scalar(const ValuesIndices& one) { return {reshape(one.values, Dims()), reshape(one.indices, Dims())}; }

}  // namespace

ValuesIndices sort(const Tensor& x, int axis, bool descending, bool) {
  axis = checked_axis("sort", x, axis);
  if (x.dim() == 0) return scalar(sort(reshape(x, Dims(1)), 0, descending));
  ValuesIndices y{Tensor::empty(x.sizes(), x.dtype(), x.device()), Tensor::empty(x.sizes(), DType::kI64, x.device())};
  const int64_t rows = rows_beside(x.raw(), axis);
  const Tensor scratch = scratch_of(sort_scratch(x.dtype(), rows, x.sizes()[axis], target_of(x.device())), x.device());
  launch(&Kernels::sort, SortArgs{x.raw(), y.values.raw(), y.indices.raw(), scratch.defined() ? scratch.raw() : View{},
                                  axis, descending});
  record_picked(y.values, x, y.indices, axis);
  return y;
}

Tensor argsort(const Tensor& x, int axis, bool descending, bool stable) {
  NoGrad quiet;
  return sort(x, axis, descending, stable).indices;
}

ValuesIndices topk(const Tensor& x, int64_t k, int axis, bool largest, bool) {
  axis = checked_axis("topk", x, axis);
  if (x.dim() == 0) {
    if (k < 0 || k > 1) fail("topk: k is {}, and a tensor without axes has one element", k);
    if (k == 1) return scalar(topk(reshape(x, Dims(1)), 1, 0, largest));
    return topk(reshape(x, Dims(1)), 0, 0, largest);
  }
  const int64_t n = x.sizes()[axis];
  if (k < 0 || k > n) fail("topk: k is {}, and axis {} of shape {} has {} elements", k, axis, str(x.sizes()), n);
  if (k > kMostSelected || (n > 64 && 2 * k > n)) {
    const ValuesIndices all = sort(x, axis, largest);
    return {contiguous(slice(all.values, axis, 0, k)), contiguous(slice(all.indices, axis, 0, k))};
  }
  Dims size = x.sizes();
  size[axis] = k;
  ValuesIndices y{Tensor::empty(size, x.dtype(), x.device()), Tensor::empty(size, DType::kI64, x.device())};
  const int64_t rows = rows_beside(x.raw(), axis);
  const Tensor scratch = scratch_of(select_scratch(x.dtype(), rows, n, k, target_of(x.device())), x.device());
  launch(&Kernels::topk,
         TopkArgs{x.raw(), y.values.raw(), y.indices.raw(), scratch.defined() ? scratch.raw() : View{}, axis, largest});
  record_picked(y.values, x, y.indices, axis);
  return y;
}

}  // namespace tally
