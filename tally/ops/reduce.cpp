#include "tally/ops/reduce.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// One bit an axis that is reduced.
int axes_mask(const char* op, const Tensor& x, const Dims& axes) {
  require_float(op, x);
  if (axes.rank == 0) return (1 << x.dim()) - 1;
  int mask = 0;
  for (int i = 0; i < axes.rank; ++i) {
    const int bit = 1 << normalize_axis(static_cast<int>(axes[i]), x.dim(), op);
    if (mask & bit) fail("{}: axis {} is given twice", op, axes[i]);
    mask |= bit;
  }
  return mask;
}

// `size` with reduced axes of size 1 (keepdim) or without them.
Dims reduced_size(const Dims& size, int mask, bool keepdim) {
  Dims out;
  for (int i = 0; i < size.rank; ++i) {
    const bool reduced = (mask >> i & 1) != 0;
    if (!reduced || keepdim) out[out.rank++] = reduced ? 1 : size[i];
  }
  return out;
}

// A reduced tensor of either form seen with x's axes: of x's size (`full`, strides of 0) or with axes of size 1.
Tensor with_axes(const Tensor& t, const Dims& size, int mask, bool keepdim, bool full) {
  Dims seen = size, stride;
  stride.rank = size.rank;
  int from = 0;
  for (int i = 0; i < size.rank; ++i) {
    const bool reduced = (mask >> i & 1) != 0;
    if (reduced && !full) seen[i] = 1;
    stride[i] = reduced ? 0 : t.strides()[from];
    from += !reduced || keepdim;
  }
  return t.alias(seen, stride, t.storage_offset());
}

// The values; not recorded.
Tensor reduced(ReduceOp op, const Tensor& x, int mask, bool keepdim, double scale) {
  Tensor out = Tensor::empty(reduced_size(x.sizes(), mask, true), x.dtype(), x.device());
  reduce_(op, x, out, scale);
  const Dims size = reduced_size(x.sizes(), mask, keepdim);
  return out.alias(size, contiguous_strides(size), 0);
}

int64_t reduced_count(const Tensor& x, int mask) {
  int64_t n = 1;
  for (int i = 0; i < x.dim(); ++i)
    if (mask >> i & 1) n *= x.sizes()[i];
  return n;
}

Tensor scaled_sum(const Tensor& x, int mask, bool keepdim, double scale) {
  Tensor y = reduced(ReduceOp::kSum, x, mask, keepdim, scale);
  record(
      y, {x}, {},
      [](Backward& b, int axes, bool keep, double factor) {
        Tensor g = b.take_grad();
        if (factor != 1.0) {  // a reduction over no axis, on the smaller side
          Tensor scaled = Tensor::empty(g.sizes(), g.dtype(), g.device());
          reduce_(ReduceOp::kSum, g, scaled, factor);
          g = scaled;
        }
        Tensor dx = b.empty(0);
        copy_(dx, with_axes(g, b.input(0).size, axes, keep, true));
        b.add(0, std::move(dx));
      },
      mask, keepdim, scale);
  return y;
}

}  // namespace

void reduce_(ReduceOp op, const Tensor& x, const Tensor& out, double scale) {
  if (widens_f16(x)) {
    const Tensor x32 = to(x.detach(), DType::kF32);
    if (out.dtype() == DType::kF32) return reduce_(op, x32, out, scale);
    const Tensor wide = Tensor::empty(out.sizes(), DType::kF32, out.device(), Category::kWorkspace);
    reduce_(op, x32, wide, scale);
    return copy_(out, wide);
  }
  ReduceArgs args{x.raw(), out.raw(), op, scale, {}};
  Tensor scratch;
  if (const int64_t n = reduce_scratch(args.x, args.out, target_of(x.device())); n > 0) {
    scratch = Tensor::empty(Dims(n), DType::kF32, x.device(), Category::kWorkspace);
    args.scratch = scratch.raw();
  }
  launch(&Kernels::reduce, args);
}

Tensor sum(const Tensor& x, const Dims& axes, bool keepdim) {
  return scaled_sum(x, axes_mask("sum", x, axes), keepdim, 1.0);
}

Tensor mean(const Tensor& x, const Dims& axes, bool keepdim) {
  const int mask = axes_mask("mean", x, axes);
  const int64_t n = reduced_count(x, mask);
  if (n == 0) fail("mean: no elements to average in shape {}", str(x.sizes()));
  return scaled_sum(x, mask, keepdim, 1.0 / static_cast<double>(n));
}

Tensor max(const Tensor& x, const Dims& axes, bool keepdim) {
  const int mask = axes_mask("max", x, axes);
  if (widens_f16(x)) return to(max(to(x, DType::kF32), axes, keepdim), x.dtype());
  if (reduced_count(x, mask) == 0) fail("max: no elements to compare in shape {}", str(x.sizes()));
  Tensor y = reduced(ReduceOp::kMax, x, mask, keepdim, 1.0);
  record(
      y, {x}, {x, y},
      [](Backward& b, int bits, bool keep) {
        const Dims& size = b.input(0).size;
        const Tensor grad = with_axes(b.grad(), size, bits, keep, false);
        const Tensor most = with_axes(b.saved(1), size, bits, keep, false);
        Tensor dx = b.empty(0);
        launch(&Kernels::max_backward, MaxBackwardArgs{grad.raw(), b.saved(0).raw(), most.raw(), dx.raw()});
        b.add(0, std::move(dx));
      },
      mask, keepdim);
  return y;
}

}  // namespace tally
