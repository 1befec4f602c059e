#include "tally/ops/reduce.h"

#include <cmath>
#include <limits>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/reduce_plain.h"
#include "tally/ops/view.h"

namespace tally {

int scalar_axis(int axis, int rank, const char* op) {
  if (rank == 0 && (axis == 0 || axis == -1)) return 0;
  return normalize_axis(axis, rank, op);
}

int reduced_axes(const char* op, const Tensor& x, const Dims& axes) {
  if (!x.defined()) fail("{}: an input is missing", op);
  if (axes.rank == 0) return (1 << x.dim()) - 1;
  int mask = 0;
  for (int i = 0; i < axes.rank; ++i) {
    const int axis = scalar_axis(static_cast<int>(axes[i]), x.dim(), op), bit = 1 << axis;
    if (mask & bit) fail("{}: dim {} appears multiple times in the list of dims {}", op, axis, str(axes));
    mask |= bit;
  }
  return mask & ((1 << x.dim()) - 1);
}

Dims reduced_size(const Dims& size, int mask, bool keepdim) {
  Dims out;
  for (int i = 0; i < size.rank; ++i) {
    const bool reduced = (mask >> i & 1) != 0;
    if (!reduced || keepdim) out[out.rank++] = reduced ? 1 : size[i];
  }
  return out;
}

namespace {

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

// A fresh tensor of reduced axes of size 1, and the same elements in the result's shape.
Tensor empty_reduced(const Tensor& x, int mask, DType dtype) {
  return Tensor::empty(reduced_size(x.sizes(), mask, true), dtype, x.device());
}
Tensor without_axes(const Tensor& t, const Dims& size, int mask, bool keepdim) {
  const Dims out = reduced_size(size, mask, keepdim);
  return t.alias(out, contiguous_strides(out), 0);
}

int64_t reduced_count(const Tensor& x, int mask) {
  int64_t n = 1;
  for (int i = 0; i < x.dim(); ++i)
    if (mask >> i & 1) n *= x.sizes()[i];
  return n;
}

// What inner results are kept in, so that they are rounded once.
DType wide(DType t) { return t == DType::kF64 ? t : DType::kF32; }

Tensor rounded_to(const Tensor& t, DType dtype) {
  NoGrad quiet;
  return to(t, dtype);
}

Tensor scaled_sum(const Tensor& x, int mask, bool keepdim, double scale) {
  const Tensor out = empty_reduced(x, mask, x.dtype());
  reduce_(ReduceOp::kSum, x, out, scale);
  Tensor y = without_axes(out, x.sizes(), mask, keepdim);
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

void require_elements(const char* op, const Tensor& x, int mask, bool every) {
  if (every && x.numel() == 0)
    fail(
        "{}: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
        "argument: shape {}",
        op, str(x.sizes()));
  for (int i = 0; i < x.dim(); ++i)
    if ((mask >> i & 1) && x.sizes()[i] == 0)
      fail_index("{}: Expected reduction dim {} to have non-zero size: shape {}", op, i, str(x.sizes()));
}

// Integers and bool as they are summed.
Tensor converted(const Tensor& x, std::optional<DType> dtype) { return dtype ? to(x, *dtype) : x; }

bool is_whole(DType t) { return is_integer(t) || t == DType::kBool; }

Tensor extreme(const char* op, ReduceOp kind, const Tensor& x, const Dims& axes, bool keepdim) {
  const int mask = reduced_axes(op, x, axes);
  require_elements(op, x, mask, axes.rank == 0);
  if (is_whole(x.dtype())) {
    const Tensor out = empty_reduced(x, mask, x.dtype());
    reduce_plain_(kind == ReduceOp::kMax ? PlainOp::kMax : PlainOp::kMin, x, out);
    return without_axes(out, x.sizes(), mask, keepdim);
  }
  require_float(op, x);
  if (widens_f16(x)) return to(extreme(op, kind, to(x, DType::kF32), axes, keepdim), x.dtype());
  const Tensor out = empty_reduced(x, mask, x.dtype());
  reduce_(kind, x, out);
  Tensor y = without_axes(out, x.sizes(), mask, keepdim);
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

// The gradient by a formula of x and y, which has reduced axes of size 1, as g may have or not.
void formula_backward(Backward& b, ReduceOp op, const Tensor& x, const Tensor& y, const Tensor& grad, int mask,
                      bool keepdim, double scale, double power) {
  const Dims& size = b.input(0).size;
  const Tensor g = with_axes(grad, size, mask, keepdim, true), seen = with_axes(y, size, mask, true, true);
  Tensor dx = b.empty(0);
  launch(&Kernels::reduce_backward, ReduceBackwardArgs{g.raw(), x.raw(), seen.raw(), dx.raw(), op, scale, power});
  b.add(0, std::move(dx));
}

// 1 / (n - correction), infinite when that is not positive.
double variance_scale(const Tensor& x, int mask, double correction) {
  const double n = static_cast<double>(reduced_count(x, mask)) - correction;
  return n > 0 ? 1.0 / n : std::numeric_limits<double>::infinity();
}

// Mean and variance in f32 (f64 for f64), reduced axes of size 1.
struct Moments {
  Tensor mean, variance;
};
Moments moments(const Tensor& x, int mask, double scale) {
  Moments m{empty_reduced(x, mask, wide(x.dtype())), empty_reduced(x, mask, wide(x.dtype()))};
  reduce_(ReduceOp::kSum, x, m.mean, 1.0 / static_cast<double>(reduced_count(x, mask)));
  reduce_(ReduceOp::kSumDeviations, x, m.variance, scale, m.mean);
  return m;
}

void require_floating(const char* op, const Tensor& x) {
  if (x.defined() && is_whole(x.dtype()))
    fail("{}: only supports floating point dtypes, not {}", op, name_of(x.dtype()));
  require_float(op, x);
}

}  // namespace

void reduce_(ReduceOp op, const Tensor& x, const Tensor& out, double scale, const Tensor& shift, double power) {
  if (widens_f16(x)) {
    const Tensor x32 = to(x.detach(), DType::kF32), shift32 = shift.defined() ? to(shift, DType::kF32) : shift;
    if (out.dtype() == DType::kF32) return reduce_(op, x32, out, scale, shift32, power);
    const Tensor wide = Tensor::empty(out.sizes(), DType::kF32, out.device(), Category::kWorkspace);
    reduce_(op, x32, wide, scale, shift32, power);
    return copy_(out, wide);
  }
  ReduceArgs args{x.raw(), out.raw(), op, scale, {}};
  if (shift.defined()) args.shift = shift.raw();
  args.power = power;
  Tensor scratch;
  const bool shared = op == ReduceOp::kSum || op == ReduceOp::kMax;  // the others' kernels need none
  if (const int64_t n = shared ? reduce_scratch(args.x, args.out, target_of(x.device())) : 0; n > 0) {
    scratch = Tensor::empty(Dims(n), DType::kF32, x.device(), Category::kWorkspace);
    args.scratch = scratch.raw();
  }
  launch(&Kernels::reduce, args);
}

Tensor sum(const Tensor& x, const Dims& axes, bool keepdim, std::optional<DType> dtype) {
  const int mask = reduced_axes("sum", x, axes);
  const Tensor from = converted(x, dtype);
  if (is_whole(from.dtype())) {
    const Tensor out = empty_reduced(from, mask, DType::kI64);
    reduce_plain_(PlainOp::kSum, from, out);
    return rounded_to(without_axes(out, x.sizes(), mask, keepdim), dtype.value_or(DType::kI64));
  }
  require_float("sum", from);
  return scaled_sum(from, mask, keepdim, 1.0);
}

Tensor mean(const Tensor& x, const Dims& axes, bool keepdim, std::optional<DType> dtype) {
  const int mask = reduced_axes("mean", x, axes);
  if (is_whole(dtype.value_or(x.dtype())))
    fail("mean: could not infer output dtype: the input dtype must be floating point, not {}; give dtype=",
         name_of(dtype.value_or(x.dtype())));
  const Tensor from = converted(x, dtype);
  require_float("mean", from);
  return scaled_sum(from, mask, keepdim, 1.0 / static_cast<double>(reduced_count(from, mask)));
}

Tensor prod(const Tensor& x, const Dims& axes, bool keepdim, std::optional<DType> dtype) {
  const int mask = reduced_axes("prod", x, axes);
  const Tensor from = converted(x, dtype);
  if (is_whole(from.dtype())) {
    const Tensor out = empty_reduced(from, mask, DType::kI64);
    reduce_plain_(PlainOp::kProd, from, out);
    return rounded_to(without_axes(out, x.sizes(), mask, keepdim), dtype.value_or(DType::kI64));
  }
  require_float("prod", from);
  if (from.dtype() == DType::kF16 && needs_grad({from}))  // the gradient has no kernel for it
    return to(prod(to(from, DType::kF32), axes, keepdim), DType::kF16);
  const Tensor out = empty_reduced(from, mask, from.dtype());
  reduce_(ReduceOp::kProd, from, out);
  Tensor y = without_axes(out, x.sizes(), mask, keepdim);
  record(
      y, {from}, {from},
      [](Backward& b, int bits, bool keep) {
        const Tensor grad = with_axes(b.grad(), b.input(0).size, bits, keep, false);
        Tensor dx = b.empty(0);
        launch(&Kernels::prod_backward, ProdBackwardArgs{grad.raw(), b.saved(0).raw(), dx.raw()});
        b.add(0, std::move(dx));
      },
      mask, keepdim);
  return y;
}

Tensor amax(const Tensor& x, const Dims& axes, bool keepdim) {
  return extreme("amax", ReduceOp::kMax, x, axes, keepdim);
}
Tensor amin(const Tensor& x, const Dims& axes, bool keepdim) {
  return extreme("amin", ReduceOp::kMin, x, axes, keepdim);
}
Tensor max(const Tensor& x, const Dims& axes, bool keepdim) { return extreme("max", ReduceOp::kMax, x, axes, keepdim); }
Tensor min(const Tensor& x, const Dims& axes, bool keepdim) { return extreme("min", ReduceOp::kMin, x, axes, keepdim); }

Tensor var(const Tensor& x, const Dims& axes, double correction, bool keepdim) {
  require_floating("var", x);
  const int mask = reduced_axes("var", x, axes);
  const double scale = variance_scale(x, mask, correction);
  const Moments m = moments(x, mask, scale);
  Tensor y = rounded_to(without_axes(m.variance, x.sizes(), mask, keepdim), x.dtype());
  record(
      y, {x}, {x, m.mean},
      [](Backward& b, int bits, bool keep, double by) {
        formula_backward(b, ReduceOp::kSumDeviations, b.saved(0), b.saved(1), b.grad(), bits, keep, 2 * by, 0);
      },
      mask, keepdim, scale);
  return y;
}

Tensor std(const Tensor& x, const Dims& axes, double correction, bool keepdim) {
  require_floating("std", x);
  const int mask = reduced_axes("std", x, axes);
  const double scale = variance_scale(x, mask, correction);
  const Moments m = moments(x, mask, scale);
  Tensor root;
  {
    NoGrad quiet;
    root = sqrt(m.variance);
  }
  Tensor y = rounded_to(without_axes(root, x.sizes(), mask, keepdim), x.dtype());
  record(
      y, {x}, {x, m.mean, root},
      [](Backward& b, int bits, bool keep, double by) {
        // grad / std, 0 where std is 0; then that times (x - mean) / (n - correction).
        const Tensor& deviation = b.saved(2);
        const Tensor g = with_axes(b.grad(), b.input(0).size, bits, keep, false);
        Tensor one = Tensor::empty(Dims(1), deviation.dtype(), deviation.device());
        fill_(one, 1.0);
        const Tensor ratio = Tensor::empty(deviation.sizes(), deviation.dtype(), deviation.device());
        const Dims& size = deviation.sizes();
        Dims still;
        still.rank = size.rank;
        launch(&Kernels::reduce_backward, ReduceBackwardArgs{g.raw(), one.alias(size, still, 0).raw(), deviation.raw(),
                                                             ratio.raw(), ReduceOp::kSumSquares, 1.0, 0.0});
        formula_backward(b, ReduceOp::kSumDeviations, b.saved(0), b.saved(1), ratio, bits, true, by, 0);
      },
      mask, keepdim, scale);
  return y;
}

Tensor logsumexp(const Tensor& input, const Dims& axes, bool keepdim) {
  const int mask = reduced_axes("logsumexp", input, axes);
  const Tensor x = is_whole(input.dtype()) ? to(input, DType::kF32) : input;
  require_float("logsumexp", x);
  const DType sums = wide(x.dtype());
  const Tensor most = empty_reduced(x, mask, sums), total = empty_reduced(x, mask, sums);
  Tensor all;
  {
    NoGrad quiet;
    reduce_(ReduceOp::kMax, x, most);
    reduce_(ReduceOp::kSumExp, x, total, 1.0, most);
    all = add(log(total), most);
  }
  Tensor y = rounded_to(without_axes(all, x.sizes(), mask, keepdim), x.dtype());
  record(
      y, {x}, {x, all},
      [](Backward& b, int bits, bool keep) {
        formula_backward(b, ReduceOp::kSumExp, b.saved(0), b.saved(1), b.grad(), bits, keep, 1, 0);
      },
      mask, keepdim);
  return y;
}

namespace {

ReduceOp norm_op(double p) {
  if (p == 1) return ReduceOp::kSumAbs;
  if (p == 2) return ReduceOp::kSumSquares;
  return std::isinf(p) ? ReduceOp::kMaxAbs : ReduceOp::kSumPower;
}

void norm_backward(Backward& b, int bits, bool keep, double p) {
  const Tensor &x = b.saved(0), &y = b.saved(1);
  if (!std::isinf(p)) return formula_backward(b, norm_op(p), x, y, b.grad(), bits, keep, 1, p);
  const Tensor grad = with_axes(b.grad(), b.input(0).size, bits, keep, false);
  Tensor dx = b.empty(0);
  launch(&Kernels::max_backward, MaxBackwardArgs{grad.raw(), x.raw(), y.raw(), dx.raw(), true});
  b.add(0, std::move(dx));
}

}  // namespace

Tensor norm(const Tensor& x, double p, const Dims& axes, bool keepdim) {
  require_floating("norm", x);
  if (!(p >= 0)) fail_value("norm: p is {}; it must be 0 or more", p);
  const int mask = reduced_axes("norm", x, axes);
  const ReduceOp op = norm_op(p);
  if (op == ReduceOp::kMaxAbs) require_elements("norm", x, mask, axes.rank == 0);
  // The largest magnitude is one of x's numbers, so that it can be found again.
  Tensor all = empty_reduced(x, mask, op == ReduceOp::kMaxAbs ? x.dtype() : wide(x.dtype()));
  reduce_(op, x, all, 1.0, {}, p);
  if (op == ReduceOp::kSumSquares || op == ReduceOp::kSumPower) {
    NoGrad quiet;
    if (op == ReduceOp::kSumSquares) all = sqrt(all);
    if (op == ReduceOp::kSumPower && p != 0) {  // s^(1/p) is a sum of one power
      const Tensor root = Tensor::empty(all.sizes(), all.dtype(), all.device());
      reduce_(ReduceOp::kSumPower, all, root, 1.0, {}, 1 / p);
      all = root;
    }
  }
  Tensor y = rounded_to(without_axes(all, x.sizes(), mask, keepdim), x.dtype());
  if (p == 0) return y;  // constant almost everywhere
  record(
      y, {x}, {x, all}, [](Backward& b, int bits, bool keep, double power) { norm_backward(b, bits, keep, power); },
      mask, keepdim, p);
  return y;
}

}  // namespace tally
