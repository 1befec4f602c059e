// Optimizer kernels: the AdamW update (Loshchilov and Hutter 2019) and sums of squares for the global gradient norm.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// A launch takes up to so many tensors: a model has hundreds of them, most small.
constexpr int kMostOptimTensors = 64;

// In place, all of one shape, m and v f32 (f64 for an f64 param):
//   g = grad * grad_scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g
//   param = param (1 - lr weight_decay) - (lr / correction1) (m / (sqrt(v) (1 / sqrt(correction2)) + eps))
// with correction1 = 1 - beta1^t, correction2 = 1 - beta2^t. What changes from step to step is read on the device, so
// that a step can be repeated by a card alone. Nothing is changed when grad_scale is not finite.
// With a master (f32, has_master) that is what steps, and param (bf16) becomes its rounded copy, unread.
// Counted: 15 an element (1 + 3 + 4 + 7); what depends on the step's numbers only is free.
struct AdamwItem {
  View param, grad, m, v, master;
  double weight_decay;
  bool has_master;
};
struct AdamwArgs {
  static constexpr const char* name = "adamw";
  AdamwItem items[kMostOptimTensors];
  int count;  // at least 1, all of one device
  double beta1, beta2, eps;
  View rates;       // (3) f64, contiguous: lr, lr / correction1, 1 / sqrt(correction2)
  View grad_scale;  // one f64
  Device device() const { return items[0].param.device; }
  Cost cost() const {
    Cost all;
    all.bytes_read = rates.bytes() + grad_scale.bytes();
    for (int i = 0; i < count; ++i) {
      const AdamwItem& t = items[i];
      const int64_t state = t.m.bytes() + t.v.bytes() + (t.has_master ? t.master.bytes() : 0);
      all.other_flops += t.param.numel() * 15;
      all.bytes_read += (t.has_master ? 0 : t.param.bytes()) + t.grad.bytes() + state;
      all.bytes_written += t.param.bytes() + state;
    }
    return all;
  }
};

constexpr int64_t kSumSquaresChunk = 65536;  // elements
TALLY_INLINE constexpr int64_t sum_squares_chunks(int64_t numel) {
  return (numel + kSumSquaresChunk - 1) / kSumSquaresChunk;
}

// The chunks of x[0], then those of x[1], ...: a number of partial (f64, in one axis) each, the sum of squares of
// elements [c, c + 1) * kSumSquaresChunk of the contiguous tensor, in f64, so that squares of f32 neither overflow nor
// round. Counted: a product and a sum an element.
struct SumSquaresArgs {
  static constexpr const char* name = "sum_squares";
  View x[kMostOptimTensors], partial;
  int count;  // of x
  Device device() const { return partial.device; }
  Cost cost() const {
    Cost all{0, 0, 0, partial.bytes(), 0};
    for (int i = 0; i < count; ++i) all.other_flops += x[i].numel() * 2, all.bytes_read += x[i].bytes();
    return all;
  }
};

// The numbers of a step from its parts: totals (3) f64, contiguous = (mean of losses, norm, factor); norm = the root of
// the sum of squares (f64), factor = min(1, max_norm / (norm + 1e-6)), 1 for a max_norm of 0, NaN when the loss or the
// norm is not finite. losses (n) f32 or f64. Counted: an addition each; division, root, sum, division, minimum.
struct StepTotalsArgs {
  static constexpr const char* name = "step_totals";
  View squares, losses, totals;
  double max_norm;
  Device device() const { return totals.device; }
  Cost cost() const {
    return {0, squares.numel() + losses.numel() + 5, squares.bytes() + losses.bytes(), totals.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void adamw(const AdamwArgs&);
void sum_squares(const SumSquaresArgs&);
void step_totals(const StepTotalsArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
