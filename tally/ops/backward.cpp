#include "tally/ops/backward.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"

namespace tally {

namespace {

// In place when nobody else holds the storage (an input that is a view of another gradient must not change).
void accumulate(Tensor& into, Tensor g) {
  if (!into.defined()) {  // the first gradient of a bf16 parameter, from a kernel that writes bf16
    into = Tensor::empty(g.sizes(), DType::kF32, g.device(), Category::kGradient);
    return copy_(into, g);
  }
  if (into.unique_storage() && into.is_contiguous()) return add_(into, g);
  if (g.unique_storage() && g.is_contiguous() && g.category() == into.category() && g.dtype() == into.dtype()) {
    add_(g, into);
    into = std::move(g);
    return;
  }
  Tensor sum = Tensor::empty(into.sizes(), into.dtype(), into.device(), into.category());
  launch(&Kernels::binary, BinaryArgs{into.raw(), g.raw(), sum.raw(), BinaryOp::kAdd});
  into = std::move(sum);
}

}  // namespace

void backward(const Tensor& loss) {
  if (loss.numel() != 1) fail("backward: a loss of shape {} needs a gradient of its shape", str(loss.sizes()));
  Tensor one = Tensor::empty(loss.sizes(), loss.dtype(), loss.device());
  fill_(one, 1.0);
  backward(loss, std::move(one));
}

void backward(const Tensor& loss, const Tensor& gradient) {
  NoGrad quiet;
  run_backward(loss, gradient, accumulate);
}

}  // namespace tally
