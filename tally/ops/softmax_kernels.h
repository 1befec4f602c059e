// Softmax and its logarithm over the last axis of views with any strides (the op moves its axis to the end).
#pragma once

#include "tally/core/cost.h"

namespace tally {

// out = exp(x - max) / sum. A row that is -inf throughout gives zeros. `log` (CPU): out = x - max - log(sum), NaN
// there. Counted an element: comparison, subtraction, exp, addition, division (subtraction); a log a row.
struct SoftmaxArgs {
  static constexpr const char* name = "softmax";
  View x, out;
  bool log = false;
  Device device() const { return out.device; }
  Cost cost() const {
    const int64_t n = x.numel();
    return {0, 5 * n + (log && n > 0 ? n / x.size.v[x.size.rank - 1] : 0), x.bytes(), out.bytes(), 0};
  }
};

// dx = y * (grad - sum(grad * y)), y the result of the forward. Counted an element: 2 for the sum, 2.
// log: dx = grad - exp(y) * sum(grad), 4 an element too.
struct SoftmaxBackwardArgs {
  static constexpr const char* name = "softmax_backward";
  View grad, y, dx;
  bool log = false;
  Device device() const { return dx.device; }
  Cost cost() const { return {0, 4 * dx.numel(), grad.bytes() + y.bytes(), dx.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void softmax(const SoftmaxArgs&);
void softmax_backward(const SoftmaxBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
