// Losses element by element with their gradients, the likelihood of classes, and the check of class numbers.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// Of a prediction x, a target t and, kBce, a weight w of positive examples:
//   kMse     (x - t)^2
//   kBce     (1 - t) x + (1 + (w - 1) t) softplus(-x), x logits; softplus(-x) = max(-x, 0) + log(1 + exp(-|x|))
//   kKl      t log(t) - t x, x log-probabilities; t log(t) is 0 where t is 0
//   kKlLog   exp(t) (t - x), both log-probabilities
enum class LossOp : uint8_t { kMse, kBce, kKl, kKlLog };
struct LossFlops {
  int forward, input, target;  // of the value and the gradients
};
TALLY_INLINE constexpr LossFlops loss_flops(LossOp op) {
  return op == LossOp::kMse   ? LossFlops{2, 3, 3}
         : op == LossOp::kBce ? LossFlops{13, 10, 10}
         : op == LossOp::kKl  ? LossFlops{5, 1, 5}
                              : LossFlops{3, 2, 5};
}

// out = the loss of every element; all views of one shape and dtype. w counts for kBce only.
struct LossArgs {
  static constexpr const char* name = "loss";
  View x, target, weight, out;
  LossOp op;
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, loss_flops(op).forward * out.numel(),
            x.bytes() + target.bytes() + (op == LossOp::kBce ? weight.bytes() : 0), out.bytes(), 0};
  }
};

// d = grad * the derivative by x, or by the target.
struct LossBackwardArgs {
  static constexpr const char* name = "loss_backward";
  View grad, x, target, weight, d;
  LossOp op;
  bool by_target;
  Device device() const { return d.device; }
  Cost cost() const {
    const LossFlops n = loss_flops(op);
    return {0, (by_target ? n.target : n.input) * d.numel(),
            grad.bytes() + x.bytes() + target.bytes() + (op == LossOp::kBce ? weight.bytes() : 0), d.bytes(), 0};
  }
};

// logp (.., V), any strides, the rows counted as one axis; targets (rows) i32 or i64, contiguous, in [0, V) or ignored:
// losses (rows, f32, f64 for f64) = -(1 - smoothing) logp[target] - smoothing / V * sum(logp), 0 where ignored; count
// (1): the number of targets not ignored. Counted with smoothing: an addition an element, 3 operations a row.
struct NllArgs {
  static constexpr const char* name = "nll";
  View logp, targets, losses, count;
  int64_t ignore_index;
  double smoothing;
  Device device() const { return losses.device; }
  Cost cost() const {
    const int64_t rows = targets.numel();
    const bool smooth = smoothing > 0;
    return {0, smooth ? logp.numel() + 3 * rows : 0,
            (smooth ? logp.bytes() : rows * item_size(logp.dtype)) + targets.bytes(), losses.bytes() + count.bytes(),
            0};
  }
};

// dlogp = -grad * smoothing / V, less grad * (1 - smoothing) at the target; 0 in ignored rows. grad (rows), contiguous.
// Counted a row: two products and a sum.
struct NllBackwardArgs {
  static constexpr const char* name = "nll_backward";
  View grad, targets, dlogp;
  int64_t ignore_index;
  double smoothing;
  Device device() const { return dlogp.device; }
  Cost cost() const { return {0, 3 * targets.numel(), grad.bytes() + targets.bytes(), dlogp.bytes(), 0}; }
};

// out (1), i64: the first place of index (n, contiguous, i32 or i64) whose number is neither in [0, limit) nor
// `allowed`; -1 when there is none.
struct FindOutsideArgs {
  static constexpr const char* name = "find_outside";
  View index, out;
  int64_t limit, allowed;
  Device device() const { return out.device; }
  Cost cost() const { return {0, 0, index.bytes(), out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void loss(const LossArgs&);
void loss_backward(const LossBackwardArgs&);
void nll(const NllArgs&);
void nll_backward(const NllBackwardArgs&);
void find_outside(const FindOutsideArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
