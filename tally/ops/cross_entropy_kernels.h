// Cross-entropy of logits (..., V) against target classes, over rows that need not be stored as probabilities.
#pragma once

#include "tally/core/cost.h"

namespace tally {

enum class Reduction : uint8_t { kMean, kSum, kNone };

// A row's loss is log(sum(exp(x - max))) - (x[target] - max), 0 where the target is ignore_index.
// targets (rows) i32 or i64, contiguous, all in [0, V) or ignored; stats (rows, 2): max and sum, for the backward;
// count (1): the number of targets not ignored; out (rows) for kNone, else one number, with losses (rows) as scratch.
// stats, count, losses and out are f32, f64 for f64 logits. The mean over no target is 0 / 0 = NaN, as in PyTorch.
// Counted an element: comparison, subtraction, exp, addition; a row: log and two subtractions, one addition unless
// kNone; one division for kMean. Ignored rows count as the others, because a cost cannot depend on data.
struct CrossEntropyArgs {
  static constexpr const char* name = "cross_entropy";
  View logits, targets, stats, count, losses, out;
  int64_t ignore_index;
  Reduction reduction;
  Device device() const { return out.device; }
  Cost cost() const {
    const int64_t rows = targets.numel();
    return {0, 4 * logits.numel() + (reduction == Reduction::kNone ? 3 : 4) * rows + (reduction == Reduction::kMean),
            logits.bytes() + targets.bytes(), stats.bytes() + count.bytes() + out.bytes(), 0};
  }
};

// dlogits = g * (exp(x - max) / sum - [column = target]), zero in ignored rows; g is the row's gradient (kNone), the
// one gradient (kSum) or that divided by count (kMean). dlogits may be logits. Counted an element: subtraction, exp,
// multiplication; a row: one division and one subtraction; one division for kMean.
struct CrossEntropyBackwardArgs {
  static constexpr const char* name = "cross_entropy_backward";
  View grad, logits, targets, stats, count, dlogits;
  int64_t ignore_index;
  Reduction reduction;
  Device device() const { return dlogits.device; }
  Cost cost() const {
    return {0, 3 * logits.numel() + 2 * targets.numel() + (reduction == Reduction::kMean),
            grad.bytes() + logits.bytes() + targets.bytes() + stats.bytes() +
                (reduction == Reduction::kMean ? count.bytes() : 0),
            dlogits.bytes(), 0};
  }
};

// Both at once, for training: the losses of the rows and the gradient of their sum, with the numbers of the two kernels
// above (kNone; kSum with a gradient of 1). A row is read from memory once, as its gradient is made while it is near.
// losses (rows), count (1); dlogits may be logits. Counted as the two.
struct CrossEntropyFusedArgs {
  static constexpr const char* name = "cross_entropy_fused";
  View logits, targets, count, losses, dlogits;
  int64_t ignore_index;
  Device device() const { return dlogits.device; }
  Cost cost() const {
    return {0, 7 * logits.numel() + 5 * targets.numel(), logits.bytes() + targets.bytes(),
            count.bytes() + losses.bytes() + dlogits.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void cross_entropy(const CrossEntropyArgs&);
void cross_entropy_backward(const CrossEntropyBackwardArgs&);
void cross_entropy_fused(const CrossEntropyFusedArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
