#include "tally/ops/softmax.h"

#include <utility>

#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// The axis exchanged with the last one; kernels work on the last.
View with_last(const Tensor& x, int axis) {
  View v = x.raw();
  std::swap(v.size[axis], v.size[v.rank() - 1]);
  std::swap(v.stride[axis], v.stride[v.rank() - 1]);
  return v;
}

Tensor softmax_of(const Tensor& x, int axis, bool log) {
  if (x.dim() == 0) return reshape(softmax_of(reshape(x, Dims(1)), 0, log), Dims());
  if (widens_f16(x)) return to(softmax_of(to(x, DType::kF32), axis, log), x.dtype());
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  launch(&Kernels::softmax, SoftmaxArgs{with_last(x, axis), with_last(y, axis), log});
  record(
      y, {x}, {y},
      [](Backward& b, int i, bool of_log) {
        Tensor dx = b.empty(0);
        launch(&Kernels::softmax_backward,
               SoftmaxBackwardArgs{with_last(b.grad(), i), with_last(b.saved(0), i), with_last(dx, i), of_log});
        b.add(0, std::move(dx));
      },
      axis, log);
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) {
  require_float("softmax", x);
  return softmax_of(x, scalar_axis(axis, x.dim(), "softmax"), false);
}

// A kernel of its own on the CPU only: cards compose it.
Tensor log_softmax(const Tensor& x, int axis) {
  require_float("log_softmax", x);
  axis = scalar_axis(axis, x.dim(), "log_softmax");
  if (x.numel() == 0 || target_of(x.device()) == DeviceKind::kCpu) return softmax_of(x, axis, true);
  const Tensor less = sub(x, amax(x.detach(), Dims(axis), true));
  return sub(less, logsumexp(less, Dims(axis), true));
}

}  // namespace tally
