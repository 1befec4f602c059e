// Sum, mean and max over axes.
#pragma once

#include "tally/core/cost.h"

namespace tally {

enum class ReduceOp : uint8_t { kSum, kMax };

// True where the last axis of x longer than 1 is not reduced: neighbours in memory belong to different outputs.
TALLY_INLINE bool keeps_last_axis(const View& x, const View& out) {
  for (int axis = x.size.rank - 1; axis >= 0; --axis)
    if (x.size.v[axis] != 1) return out.size.v[axis] == x.size.v[axis];
  return false;
}
// Shares that the elements of each output are cut into, one after the other, when there are very many of them and the
// last axis is kept, as for the gradient of a bias: on a card one block could not read as fast as the memory gives.
// By their number only. One share needs no scratch.
TALLY_INLINE constexpr int64_t reduce_shares(int64_t elements) {
  constexpr int64_t kAlone = 4096, kShare = 256, kMost = 256;
  if (elements <= kAlone) return 1;
  const int64_t shares = (elements + kShare - 1) / kShare;
  return shares < kMost ? shares : kMost;
}
// Numbers of f32 that hold the shares' results, (shares, outputs), on the kind of device that computes.
TALLY_INLINE int64_t reduce_scratch(const View& x, const View& out, DeviceKind target) {
  const int64_t outputs = out.numel();
  if (target != DeviceKind::kCuda || outputs == 0 || x.dtype == DType::kF64 || !keeps_last_axis(x, out)) return 0;
  const int64_t shares = reduce_shares(x.numel() / outputs);
  return shares > 1 ? shares * outputs : 0;
}

// out has x's rank; its axes of size 1 where x's are larger are reduced. out = scale * sum, or the maximum (NaN if
// any); out has x's dtype, or is the f32 sum of a bf16 x. Each output is summed in f32 (f64 for f64) in 16 interleaved
// parts over the reduced elements in logical order, so it depends on neither threads, strides nor the other outputs.
struct ReduceArgs {
  static constexpr const char* name = "reduce";
  View x, out;
  ReduceOp op;
  double scale;
  View scratch;  // (reduce_scratch()) f32
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
