#include "tally/ops/optim_step.h"

#include <algorithm>
#include <cmath>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

void check_adamw(const AdamwTensors& t) {
  for (const Tensor* x : {&t.param, &t.grad, &t.m, &t.v}) require_float("adamw_step", *x);
  for (const Tensor* x : {&t.param, &t.grad}) refuse_f16("adamw_step", *x);
  const bool f64 = t.param.dtype() == DType::kF64;
  const DType state = f64 ? DType::kF64 : DType::kF32;
  if (t.m.dtype() != state || t.v.dtype() != state || (t.grad.dtype() == DType::kF64) != f64)
    fail("adamw_step: param {}, gradient {}, m {}, v {}: m and v must be {}", name_of(t.param.dtype()),
         name_of(t.grad.dtype()), name_of(t.m.dtype()), name_of(t.v.dtype()), name_of(state));
  if (t.master.defined() && (t.param.dtype() != DType::kBF16 || t.master.dtype() != DType::kF32))
    fail("adamw_step: a master of {} for a parameter of {}: it is f32, for bf16", name_of(t.master.dtype()),
         name_of(t.param.dtype()));
  for (const Tensor* x : {&t.grad, &t.m, &t.v, &t.master}) {
    if (!x->defined()) continue;  // no master
    if (x->sizes() != t.param.sizes())
      fail("adamw_step: shapes {} and {} differ", str(t.param.sizes()), str(x->sizes()));
    if (x->device() != t.param.device())
      fail("adamw_step: devices {} and {} differ", name_of(t.param.device()), name_of(x->device()));
  }
}

}  // namespace

std::array<double, 3> AdamwScalars::rates() const { return {lr, lr / correction1, 1 / std::sqrt(correction2)}; }

void adamw_step(const std::vector<AdamwTensors>& all, const AdamwScalars& scalars, const Tensor& rates,
                const Tensor& grad_scale) {
  for (const Tensor* t : {&rates, &grad_scale})
    if (!t->defined() || t->dtype() != DType::kF64 || !t->is_contiguous() || t->numel() != (t == &rates ? 3 : 1))
      fail("adamw_step: rates are 3 numbers and grad_scale is one, all f64");
  for (const AdamwTensors& t : all) {
    check_adamw(t);
    if (t.param.device() != rates.device() || t.param.device() != grad_scale.device())
      fail("adamw_step: devices {} and {} differ", name_of(t.param.device()), name_of(rates.device()));
  }
  for (size_t first = 0; first < all.size(); first += kMostOptimTensors) {
    AdamwArgs args{};
    args.beta1 = scalars.beta1, args.beta2 = scalars.beta2, args.eps = scalars.eps;
    args.rates = rates.raw(), args.grad_scale = grad_scale.raw();
    args.count = static_cast<int>(std::min<size_t>(kMostOptimTensors, all.size() - first));
    for (int i = 0; i < args.count; ++i) {
      const AdamwTensors& t = all[first + static_cast<size_t>(i)];
      AdamwItem& item = args.items[i];
      item = {t.param.raw(), t.grad.raw(), t.m.raw(), t.v.raw(), {}, t.weight_decay, t.master.defined()};
      if (item.has_master) item.master = t.master.raw();
      for (const Tensor* changed : {&t.param, &t.m, &t.v, &t.master}) bump_version(*changed);
    }
    launch(&Kernels::adamw, args);
  }
}

void adamw_step(const std::vector<AdamwTensors>& all, const AdamwScalars& scalars) {
  if (all.empty()) return;
  require_float("adamw_step", all[0].param);
  const std::array<double, 3> rates = scalars.rates();
  const Tensor numbers = Tensor::empty({4}, DType::kF64, all[0].param.device(), Category::kWorkspace);
  const double values[4] = {rates[0], rates[1], rates[2], scalars.grad_scale};
  copy_bytes(numbers.raw().data, numbers.device(), values, kCpu, sizeof values);
  adamw_step(all, scalars, slice(numbers, 0, 0, 3), slice(numbers, 0, 3, 4));
}

void adamw_step(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
                const AdamwScalars& scalars) {
  adamw_step({{param, grad, m, v, {}, scalars.weight_decay}}, scalars);
}

Tensor squares_of(const std::vector<Tensor>& all) {
  TALLY_ASSERT(!all.empty());
  int64_t chunks = 0;
  for (const Tensor& x : all) {
    require_float("sum_squares", x);
    refuse_f16("sum_squares", x);
    if (x.device() != all[0].device())
      fail("sum_squares: devices {} and {} differ", name_of(x.device()), name_of(all[0].device()));
    chunks += sum_squares_chunks(x.numel());
  }
  const Device device = all[0].device();
  const Tensor partial = Tensor::empty({chunks}, DType::kF64, device, Category::kWorkspace);
  int64_t done = 0;
  for (size_t first = 0; first < all.size(); first += kMostOptimTensors) {
    SumSquaresArgs args{};
    args.count = static_cast<int>(std::min<size_t>(kMostOptimTensors, all.size() - first));
    std::vector<Tensor> dense;  // what is not contiguous, until the launch
    int64_t n = 0;
    for (int i = 0; i < args.count; ++i) {
      Tensor x = all[first + static_cast<size_t>(i)].detach();
      if (!x.is_contiguous()) {
        dense.push_back(Tensor::empty(x.sizes(), x.dtype(), device, Category::kWorkspace));
        copy_(dense.back(), x);
        x = dense.back();
      }
      args.x[i] = x.raw();
      n += sum_squares_chunks(x.numel());
    }
    args.partial = partial.alias(Dims(n), Dims(1), done).raw();
    done += n;
    launch(&Kernels::sum_squares, args);
  }
  return partial;
}

void step_totals(const Tensor& squares, const Tensor& losses, double max_norm, const Tensor& totals) {
  require_float("step_totals", losses);
  TALLY_ASSERT(squares.dtype() == DType::kF64 && totals.dtype() == DType::kF64 && totals.is_contiguous() &&
               totals.numel() == 3 && squares.dim() == 1 && losses.dim() == 1 && !is_half(losses.dtype()));
  launch(&Kernels::step_totals, StepTotalsArgs{squares.raw(), losses.raw(), totals.raw(), max_norm});
}

double sum_squares(const Tensor& x) {
  const Tensor partial = squares_of({x});
  double sum = 0;
  if (x.device().kind != DeviceKind::kMeta)
    for (const double part : partial.to_vector()) sum += part;
  return sum;
}

}  // namespace tally
