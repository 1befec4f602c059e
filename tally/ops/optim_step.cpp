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

std::vector<double> sums_of_squares(const std::vector<Tensor>& all) {
  if (all.empty()) return {};
  int64_t chunks = 0;
  for (const Tensor& x : all) {
    require_float("sum_squares", x);
    if (x.device() != all[0].device())
      fail("sum_squares: devices {} and {} differ", name_of(x.device()), name_of(all[0].device()));
    chunks += sum_squares_chunks(x.numel());
  }
  const Device device = all[0].device();
  const Tensor partial = Tensor::empty({chunks}, DType::kF64, device, Category::kWorkspace);
  int64_t first = 0;
  for (const Tensor& x : all) {
    Tensor dense = x.detach();
    if (!x.is_contiguous()) {
      dense = Tensor::empty(x.sizes(), x.dtype(), device, Category::kWorkspace);
      copy_(dense, x);
    }
    const int64_t n = sum_squares_chunks(x.numel());
    launch(&Kernels::sum_squares, SumSquaresArgs{dense.raw(), partial.alias(Dims(n), Dims(1), first).raw()});
    first += n;
  }
  std::vector<double> sums(all.size());
  if (device.kind == DeviceKind::kMeta) return sums;
  const std::vector<double> parts = partial.to_vector();
  size_t at = 0;
  for (size_t i = 0; i < all.size(); ++i)
    for (int64_t n = sum_squares_chunks(all[i].numel()); n > 0; --n) sums[i] += parts[at++];
  return sums;
}

double sum_squares(const Tensor& x) { return sums_of_squares({x})[0]; }

}  // namespace tally
