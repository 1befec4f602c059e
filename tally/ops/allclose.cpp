#include "tally/ops/allclose.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"

namespace tally {

namespace {

void require_values(const char* op, const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) fail("{}: an input is missing", op);
  if (a.device() != b.device()) fail("{}: devices {} and {} differ", op, name_of(a.device()), name_of(b.device()));
  if (a.device().kind == DeviceKind::kMeta) fail("{}: a {} tensor has no values", op, name_of(a.device()));
}

// a and b of one shape
int64_t count_unequal(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  Tensor count = Tensor::empty(Dims(), DType::kI64, a.device(), Category::kWorkspace);
  fill_(count, 0);
  const DType common = is_floating(a.dtype()) ? a.dtype() : b.dtype();
  launch(&Kernels::count_unequal, CountUnequalArgs{a.raw(), b.raw(), count.raw(), common, rtol, atol, equal_nan});
  return count.item<int64_t>();
}

}  // namespace

bool equal(const Tensor& a, const Tensor& b) {
  require_values("equal", a, b);
  return a.sizes() == b.sizes() && count_unequal(a, b, 0, 0, false) == 0;
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  require_values("allclose", a, b);
  if (!(rtol >= 0) || !(atol >= 0)) fail("allclose: rtol = {} and atol = {} must not be negative", rtol, atol);
  NoGrad quiet;
  const Dims size = broadcast_shape("allclose", a.sizes(), b.sizes());
  return count_unequal(broadcast_view(a, size), broadcast_view(b, size), rtol, atol, equal_nan) == 0;
}

}  // namespace tally
