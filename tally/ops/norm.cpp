#include "tally/ops/norm.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"

namespace tally {

namespace {

View raw_or_none(const Tensor& t) { return t.defined() ? t.raw() : View{}; }

void check_parameter(const char* op, const char* what, const Tensor& x, const Tensor& p) {
  if (!p.defined()) return;
  require_float(op, p);
  if (p.sizes() != Dims(x.size(-1)))
    fail("{}: {} of shape {} does not fit the last axis of {}", op, what, str(p.sizes()), str(x.sizes()));
  if (p.device() != x.device()) fail("{}: devices {} and {} differ", op, name_of(x.device()), name_of(p.device()));
  if (p.dtype() != x.dtype() && !(x.dtype() == DType::kBF16 && p.dtype() == DType::kF32))
    fail("{}: {} of dtype {} does not go with {}", op, what, name_of(p.dtype()), name_of(x.dtype()));
}

void check_input(const char* op, const Tensor& x, double eps) {
  require_float(op, x);
  if (x.dim() == 0) fail("{}: takes at least one axis", op);
  if (!(eps >= 0)) fail("{}: eps {} is not a number from 0 on", op, eps);
}

// One number a row.
Tensor row_numbers(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.sizes()[i];
  return Tensor::empty(Dims(rows), x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32, x.device());
}

Tensor group_sums(const Tensor& rows, int planes, int64_t d) {
  if (planes == 0) return {};
  return Tensor::empty(Dims(planes, norm_groups(rows.numel()), d), DType::kF32, rows.device(), Category::kWorkspace);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_input("layer_norm", x, eps);
  check_parameter("layer_norm", "weight", x, weight);
  check_parameter("layer_norm", "bias", x, bias);
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  Tensor mean = row_numbers(x), rstd = row_numbers(x);
  launch(&Kernels::layer_norm,
         LayerNormArgs{x.raw(), raw_or_none(weight), raw_or_none(bias), y.raw(), mean.raw(), rstd.raw(), eps});
  record(y, {x, weight, bias}, {x, weight, mean, rstd}, [](Backward& b) {
    Tensor dx, dweight, dbias;
    bool add_weight = false, add_bias = false;
    if (b.needs(0)) dx = b.empty(0);
    if (b.needs(1)) dweight = b.target(1, add_weight);
    if (b.needs(2)) dbias = b.target(2, add_bias);
    const Tensor scratch = group_sums(b.saved(3), b.needs(1) + b.needs(2), b.saved(0).size(-1));
    launch(&Kernels::layer_norm_backward,
           LayerNormBackwardArgs{b.grad().raw(), b.saved(0).raw(), raw_or_none(b.saved(1)), b.saved(2).raw(),
                                 b.saved(3).raw(), raw_or_none(dx), raw_or_none(dweight), raw_or_none(dbias),
                                 raw_or_none(scratch), add_weight, add_bias});
    b.add(0, std::move(dx));
    b.add(1, std::move(dweight), add_weight);
    b.add(2, std::move(dbias), add_bias);
  });
  return y;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_input("rms_norm", x, eps);
  check_parameter("rms_norm", "weight", x, weight);
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  Tensor rstd = row_numbers(x);
  launch(&Kernels::rms_norm, RmsNormArgs{x.raw(), raw_or_none(weight), y.raw(), rstd.raw(), eps});
  record(y, {x, weight}, {x, weight, rstd}, [](Backward& b) {
    Tensor dx, dweight;
    bool add_weight = false;
    if (b.needs(0)) dx = b.empty(0);
    if (b.needs(1)) dweight = b.target(1, add_weight);
    const Tensor scratch = group_sums(b.saved(2), b.needs(1), b.saved(0).size(-1));
    launch(&Kernels::rms_norm_backward,
           RmsNormBackwardArgs{b.grad().raw(), b.saved(0).raw(), raw_or_none(b.saved(1)), b.saved(2).raw(),
                               raw_or_none(dx), raw_or_none(dweight), raw_or_none(scratch), add_weight});
    b.add(0, std::move(dx));
    b.add(1, std::move(dweight), add_weight);
  });
  return y;
}

}  // namespace tally
