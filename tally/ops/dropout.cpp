#include "tally/ops/dropout.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

void apply(const Tensor& x, const Tensor& out, float p, uint64_t seed, uint64_t stream, const Tensor& step) {
  const float scale = p < 1.0f ? static_cast<float>(1.0 / (1.0 - static_cast<double>(p))) : 0.0f;
  launch(&Kernels::dropout,
         DropoutArgs{x.raw(), out.raw(), step.defined() ? step.raw() : View{}, p, scale, seed, stream});
}

}  // namespace

Tensor dropout(const Tensor& x, float p, uint64_t seed, uint64_t stream, const Tensor& step) {
  require_float("dropout", x);
  if (!(p >= 0.0f && p <= 1.0f)) fail("dropout: p = {} is not in [0, 1]", p);
  if (step.defined() && (step.dtype() != DType::kI64 || step.numel() != 1 || step.device() != x.device()))
    fail("dropout: step is one i64 on {}", name_of(x.device()));
  if (p == 0.0f) return x;
  if (x.dtype() == DType::kF16) return to(dropout(to(x, DType::kF32), p, seed, stream, step), x.dtype());
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  apply(x, y, p, seed, stream, step);
  record(
      y, {x}, {step},
      [](Backward& b, float probability, uint64_t key, uint64_t purpose) {
        Tensor dx = b.empty(0);
        apply(b.grad(), dx, probability, key, purpose, b.saved(0));
        b.add(0, dx);
      },
      p, seed, stream);
  return y;
}

}  // namespace tally
