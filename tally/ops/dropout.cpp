#include "tally/ops/dropout.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"

namespace tally {

namespace {

void apply(const Tensor& x, const Tensor& out, float p, uint64_t seed, uint64_t stream) {
  const float scale = p < 1.0f ? static_cast<float>(1.0 / (1.0 - static_cast<double>(p))) : 0.0f;
  launch(&Kernels::dropout, DropoutArgs{x.raw(), out.raw(), p, scale, seed, stream});
}

}  // namespace

Tensor dropout(const Tensor& x, float p, uint64_t seed, uint64_t stream) {
  require_float("dropout", x);
  if (!(p >= 0.0f && p <= 1.0f)) fail("dropout: p = {} is not in [0, 1]", p);
  if (p == 0.0f) return x;
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  apply(x, y, p, seed, stream);
  record(
      y, {x}, {},
      [](Backward& b, float probability, uint64_t key, uint64_t purpose) {
        Tensor dx = b.empty(0);
        apply(b.grad(), dx, probability, key, purpose);
        b.add(0, dx);
      },
      p, seed, stream);
  return y;
}

}  // namespace tally
