// Sum, mean and max over axes.
#pragma once

#include "tally/core/cost.h"

namespace tally {

enum class ReduceOp : uint8_t { kSum, kMax };

// out has x's rank; its axes of size 1 where x's are larger are reduced. out = scale * sum, or the maximum (NaN if
// any); out has x's dtype, or is the f32 sum of a bf16 x. Each output is summed in f32 (f64 for f64) in 16 interleaved
// parts over the reduced elements in logical order, so it depends on neither threads, strides nor the other outputs.
struct ReduceArgs {
  static constexpr const char* name = "reduce";
  View x, out;
  ReduceOp op;
  double scale;
  Device device() const { return out.device; }
  // n - 1 operations join n numbers; counted as n (the first joins the neutral element). A scale is one more an output.
  Cost cost() const { return {0, x.numel() + (scale != 1.0 ? out.numel() : 0), x.bytes(), out.bytes(), 0}; }
};

// dx = grad / (number of elements of x equal to their maximum) where x equals the maximum, else 0.
// grad and max have the reduced shape (axes of size 1), x and dx the full one.
// Counted an element: comparison, addition (of 0 or 1), product (with 0 or 1); one division an output.
struct MaxBackwardArgs {
  static constexpr const char* name = "max_backward";
  View grad, x, max, dx;
  Device device() const { return dx.device; }
  Cost cost() const { return {0, 3 * x.numel() + max.numel(), grad.bytes() + x.bytes() + max.bytes(), dx.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void reduce(const ReduceArgs&);
void max_backward(const MaxBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
