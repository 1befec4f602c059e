#include "tally/ops/norm.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

View raw_or_none(const Tensor& t) { return t.defined() ? t.raw() : View{}; }

void check_parameter(const char* op, const char* what, const Tensor& x, const Tensor& p) {
  if (!p.defined()) return;
  require_float(op, p);
  if (p.sizes() != Dims(x.size(-1)))
    fail("{}: {} of shape {} does not fit the last axis of {}", op, what, str(p.sizes()), str(x.sizes()));
  if (p.device() != x.device()) fail("{}: devices {} and {} differ", op, name_of(x.device()), name_of(p.device()));
  if (p.dtype() != x.dtype() && !(is_half(x.dtype()) && p.dtype() == DType::kF32))
    fail("{}: {} of dtype {} does not go with {}", op, what, name_of(p.dtype()), name_of(x.dtype()));
}

void check_input(const char* op, const Tensor& x, double eps) {
  require_float(op, x);
  if (x.dim() == 0) fail("{}: takes at least one axis", op);
  if (!(eps >= 0)) fail("{}: eps {} is not a number from 0 on", op, eps);
}

void check_residual(const char* op, const Tensor& x, const Tensor& residual) {
  require_same(op, x, residual);
  if (residual.sizes() != x.sizes())
    fail("{}: a residual of shape {} for a tensor of {}", op, str(residual.sizes()), str(x.sizes()));
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

// ---- one function for a norm with and without a residual: a tensor that is undefined is not there

ResidualNorm outputs_of(const Tensor& x, const Tensor& residual) {
  ResidualNorm out;
  if (residual.defined()) out.sum = Tensor::empty(x.sizes(), x.dtype(), x.device());
  out.y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  return out;
}

enum Inputs { kX, kResidual, kWeight, kBias };

template <class F>
void record_norm(ResidualNorm& out, TensorRefs inputs, std::initializer_list<Tensor> saved, F f) {
  if (out.sum.defined()) return record({&out.y, &out.sum}, inputs, saved, f, true);
  record(out.y, inputs, saved, f, false);
}

// The gradients of a norm's outputs and the tensors for those of its inputs.
struct NormGradients {
  Tensor grad, grad_sum, dx, dweight, dbias, scratch;
  bool add_weight = false, add_bias = false;
};

// rows: a tensor of one number a row.
NormGradients gradients_of(Backward& b, bool residual, const Tensor& rows, int64_t d) {
  NormGradients g;
  g.grad = b.grad(0);
  if (b.needs(kX) || (residual && b.needs(kResidual))) {
    const int to = b.needs(kX) ? kX : kResidual;
    if (residual) g.grad_sum = b.take_grad(1);
    // In place where nobody else has it.
    const bool own = g.grad_sum.defined() && g.grad_sum.unique_storage() && g.grad_sum.is_contiguous() &&
                     g.grad_sum.category() == b.category(to);
    g.dx = own || !g.grad.defined() ? g.grad_sum : b.empty(to);
  }
  if (!g.grad.defined()) return g;
  if (b.needs(kWeight)) g.dweight = b.target(kWeight, g.add_weight);
  if (b.needs(kBias)) g.dbias = b.target(kBias, g.add_bias);
  g.scratch = group_sums(rows, g.dweight.defined() + g.dbias.defined(), d);
  return g;
}

void add_gradients(Backward& b, bool residual, NormGradients g) {
  if (residual) b.add(kResidual, g.dx);
  b.add(kX, std::move(g.dx));
  if (!g.grad.defined()) return;
  b.add(kWeight, std::move(g.dweight), g.add_weight);
  b.add(kBias, std::move(g.dbias), g.add_bias);
}

// A tensor that may be missing in f32.
Tensor in_f32(const Tensor& t) { return t.defined() ? to(t, DType::kF32) : t; }

ResidualNorm layer_norm_of(const char* op, const Tensor& x, const Tensor& residual, const Tensor& weight,
                           const Tensor& bias, double eps) {
  check_input(op, x, eps);
  check_parameter(op, "weight", x, weight);
  check_parameter(op, "bias", x, bias);
  if (widens_f16(x)) {
    const Tensor sum = residual.defined() ? add(x, residual) : x;
    return {sum, to(layer_norm_of(op, in_f32(sum), {}, in_f32(weight), in_f32(bias), eps).y, x.dtype())};
  }
  ResidualNorm out = outputs_of(x, residual);
  const Tensor mean = row_numbers(x), rstd = row_numbers(x);
  launch(&Kernels::layer_norm, LayerNormArgs{x.raw(), raw_or_none(weight), raw_or_none(bias), out.y.raw(), mean.raw(),
                                             rstd.raw(), eps, raw_or_none(residual), raw_or_none(out.sum)});
  record_norm(out, {x, residual, weight, bias}, {residual.defined() ? out.sum : x, weight, mean, rstd},
              [](Backward& b, bool has_residual) {
                NormGradients g = gradients_of(b, has_residual, b.saved(3), b.saved(0).size(-1));
                if (g.grad.defined())
                  launch(&Kernels::layer_norm_backward,
                         LayerNormBackwardArgs{g.grad.raw(), b.saved(0).raw(), raw_or_none(b.saved(1)),
                                               b.saved(2).raw(), b.saved(3).raw(), raw_or_none(g.dx),
                                               raw_or_none(g.dweight), raw_or_none(g.dbias), raw_or_none(g.scratch),
                                               g.add_weight, g.add_bias, raw_or_none(g.grad_sum)});
                add_gradients(b, has_residual, std::move(g));
              });
  return out;
}

ResidualNorm rms_norm_of(const char* op, const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  check_input(op, x, eps);
  check_parameter(op, "weight", x, weight);
  if (widens_f16(x)) {
    const Tensor sum = residual.defined() ? add(x, residual) : x;
    return {sum, to(rms_norm_of(op, in_f32(sum), {}, in_f32(weight), eps).y, x.dtype())};
  }
  ResidualNorm out = outputs_of(x, residual);
  const Tensor rstd = row_numbers(x), no_bias;
  launch(&Kernels::rms_norm, RmsNormArgs{x.raw(), raw_or_none(weight), out.y.raw(), rstd.raw(), eps,
                                         raw_or_none(residual), raw_or_none(out.sum)});
  record_norm(out, {x, residual, weight, no_bias}, {residual.defined() ? out.sum : x, weight, rstd},
              [](Backward& b, bool has_residual) {
                NormGradients g = gradients_of(b, has_residual, b.saved(2), b.saved(0).size(-1));
                if (g.grad.defined())
                  launch(&Kernels::rms_norm_backward,
                         RmsNormBackwardArgs{g.grad.raw(), b.saved(0).raw(), raw_or_none(b.saved(1)), b.saved(2).raw(),
                                             raw_or_none(g.dx), raw_or_none(g.dweight), raw_or_none(g.scratch),
                                             g.add_weight, raw_or_none(g.grad_sum)});
                add_gradients(b, has_residual, std::move(g));
              });
  return out;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return layer_norm_of("layer_norm", x, {}, weight, bias, eps).y;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return rms_norm_of("rms_norm", x, {}, weight, eps).y;
}

ResidualNorm residual_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                 double eps) {
  check_residual("residual_layer_norm", x, residual);
  return layer_norm_of("residual_layer_norm", x, residual, weight, bias, eps);
}

ResidualNorm residual_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  check_residual("residual_rms_norm", x, residual);
  return rms_norm_of("residual_rms_norm", x, residual, weight, eps);
}

}  // namespace tally
