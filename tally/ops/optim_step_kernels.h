// Optimizer kernels: the AdamW update (Loshchilov and Hutter 2019) and sums of squares for the global gradient norm.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// The host's numbers of one AdamW step. correction1 = 1 - beta1^t, correction2 = 1 - beta2^t; grad_scale multiplies the
// gradient first (clipping).
struct AdamwScalars {
  double lr, beta1, beta2, eps, weight_decay, correction1, correction2, grad_scale;
};

// In place, all of one shape, m and v f32 (f64 for an f64 param):
//   g = grad * grad_scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g
//   param = param (1 - lr weight_decay) - (lr / correction1) (m / (sqrt(v) (1 / sqrt(correction2)) + eps))
// Counted: 15 an element (1 + 3 + 4 + 7); what depends on host numbers only is free.
struct AdamwArgs {
  static constexpr const char* name = "adamw";
  View param, grad, m, v;
  AdamwScalars s;
  Device device() const { return param.device; }
  Cost cost() const {
    const int64_t state = m.bytes() + v.bytes();
    return {0, param.numel() * 15, param.bytes() + grad.bytes() + state, param.bytes() + state, 0};
  }
};

constexpr int64_t kSumSquaresChunk = 65536;  // elements
TALLY_INLINE constexpr int64_t sum_squares_chunks(int64_t numel) {
  return (numel + kSumSquaresChunk - 1) / kSumSquaresChunk;
}

// partial[c] (f64) = sum of squares of elements [c, c + 1) * kSumSquaresChunk of contiguous x, in f64, so that squares
// of f32 neither overflow nor round. Counted: a product and a sum an element.
struct SumSquaresArgs {
  static constexpr const char* name = "sum_squares";
  View x, partial;
  Device device() const { return x.device; }
  Cost cost() const { return {0, x.numel() * 2, x.bytes(), partial.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void adamw(const AdamwArgs&);
void sum_squares(const SumSquaresArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
