// Optimizer kernels: the AdamW update (Loshchilov and Hutter 2019) and sums of squares for the global gradient norm.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// The host's numbers of one AdamW step. correction1 = 1 - beta1^t, correction2 = 1 - beta2^t; grad_scale multiplies the
// gradient first (clipping).
struct AdamwScalars {
  double lr, beta1, beta2, eps, weight_decay, correction1, correction2, grad_scale;
};

// A launch takes up to so many tensors: a model has hundreds of them, most small.
constexpr int kMostOptimTensors = 64;

// In place, all of one shape, m and v f32 (f64 for an f64 param):
//   g = grad * grad_scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g
//   param = param (1 - lr weight_decay) - (lr / correction1) (m / (sqrt(v) (1 / sqrt(correction2)) + eps))
// With a master (f32, has_master) that is what steps, and param (bf16) becomes its rounded copy, unread.
// Counted: 15 an element (1 + 3 + 4 + 7); what depends on host numbers only is free.
struct AdamwItem {
  View param, grad, m, v, master;
  double weight_decay;  // in place of the scalars'
  bool has_master;
};
struct AdamwArgs {
  static constexpr const char* name = "adamw";
  AdamwItem items[kMostOptimTensors];
  int count;  // at least 1, all of one device
  AdamwScalars s;
  Device device() const { return items[0].param.device; }
  Cost cost() const {
    Cost all;
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

#ifdef TALLY_ISA
namespace TALLY_ISA {
void adamw(const AdamwArgs&);
void sum_squares(const SumSquaresArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
