#include "tally/ops/optim_step.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"

namespace tally {

void adamw_step(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
                const AdamwScalars& scalars) {
  for (const Tensor* t : {&param, &grad, &m, &v}) require_float("adamw_step", *t);
  const bool f64 = param.dtype() == DType::kF64;
  const DType state = f64 ? DType::kF64 : DType::kF32;
  if (m.dtype() != state || v.dtype() != state || (grad.dtype() == DType::kF64) != f64)
    fail("adamw_step: param {}, gradient {}, m {}, v {}: m and v must be {}", name_of(param.dtype()),
         name_of(grad.dtype()), name_of(m.dtype()), name_of(v.dtype()), name_of(state));
  for (const Tensor* t : {&grad, &m, &v}) {
    if (t->sizes() != param.sizes()) fail("adamw_step: shapes {} and {} differ", str(param.sizes()), str(t->sizes()));
    if (t->device() != param.device())
      fail("adamw_step: devices {} and {} differ", name_of(param.device()), name_of(t->device()));
  }
  launch(&Kernels::adamw, AdamwArgs{param.raw(), grad.raw(), m.raw(), v.raw(), scalars});
}

double sum_squares(const Tensor& x) {
  require_float("sum_squares", x);
  Tensor dense = x.detach();
  if (!x.is_contiguous()) {
    dense = Tensor::empty(x.sizes(), x.dtype(), x.device(), Category::kWorkspace);
    copy_(dense, x);
  }
  const Tensor partial = Tensor::empty({sum_squares_chunks(x.numel())}, DType::kF64, x.device(), Category::kWorkspace);
  launch(&Kernels::sum_squares, SumSquaresArgs{dense.raw(), partial.raw()});
  if (x.device().kind == DeviceKind::kMeta) return 0;
  double sum = 0;
  for (const double part : partial.to_vector()) sum += part;
  return sum;
}

}  // namespace tally
