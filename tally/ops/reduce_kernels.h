// Sums, products, extremes and norms over axes of floats.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// What is joined of an output's elements x, with a number c an output (`shift`) or p:
//   kSum x   kMax x   kMin x   kProd x   kSumDeviations (x - c)^2   kSumExp exp(x - c)   kSumAbs |x|   kMaxAbs |x|
//   kSumSquares x^2   kSumPower |x|^p (p = 0: how many are not 0)
enum class ReduceOp : uint8_t {
  kSum,
  kMax,
  kMin,
  kProd,
  kSumDeviations,
  kSumExp,
  kSumAbs,
  kMaxAbs,
  kSumSquares,
  kSumPower
};
// Operations an element, the join included (n - 1 join n numbers; counted as n: the first joins the neutral one).
TALLY_INLINE constexpr int reduce_flops(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kMin:
    case ReduceOp::kProd:
      return 1;
    case ReduceOp::kSumDeviations:
    case ReduceOp::kSumExp:
    case ReduceOp::kSumPower:
      return 3;
    default:
      return 2;
  }
}
TALLY_INLINE constexpr bool has_shift(ReduceOp op) { return op == ReduceOp::kSumDeviations || op == ReduceOp::kSumExp; }

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

// out has x's rank; its axes of size 1 where x's are larger are reduced. out = scale * join of the elements (max and
// min: NaN if any); out has x's dtype, or is the f32 result for a bf16 x. Joined in f32 (f64 for f64) in an order by
// the elements' numbers in logical order, so a result depends on neither threads, strides nor the other outputs.
struct ReduceArgs {
  static constexpr const char* name = "reduce";
  View x, out;
  ReduceOp op;
  double scale;
  View scratch;      // (reduce_scratch()) f32
  View shift = {};   // of out's shape, for has_shift(op); an infinite one counts as 0 with kSumExp
  double power = 0;  // of kSumPower
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, reduce_flops(op) * x.numel() + (scale != 1.0 ? out.numel() : 0),
            x.bytes() + (has_shift(op) ? shift.bytes() : 0), out.bytes(), 0};
  }
};

// dx = grad / (number of elements of x equal to their maximum) where x equals the maximum, else 0.
// grad and max have the reduced shape (axes of size 1), x and dx the full one. magnitudes: of |x|, with x's sign.
// Counted an element: comparison, addition (of 0 or 1), product (with 0 or 1); one division an output.
struct MaxBackwardArgs {
  static constexpr const char* name = "max_backward";
  View grad, x, max, dx;
  bool magnitudes = false;
  Device device() const { return dx.device; }
  Cost cost() const { return {0, 3 * x.numel() + max.numel(), grad.bytes() + x.bytes() + max.bytes(), dx.bytes(), 0}; }
};

// The gradient of what an output's elements are joined by, all views of x's shape (y and grad with strides of 0):
//   kSumDeviations scale * grad * (x - y)   kSumExp grad * exp(x - y), y infinite: 0   kSumAbs grad * sign(x)
//   kSumSquares grad * x / y                kSumPower grad * sign(x) * (|x| / y)^(power - 1)
// The last two are norms: y is the norm, and 0 where y is 0 (and, kSumPower, where x is 0).
TALLY_INLINE constexpr int reduce_backward_flops(ReduceOp op) {
  return op == ReduceOp::kSumAbs ? 2 : op == ReduceOp::kSumPower ? 6 : 3;
}
struct ReduceBackwardArgs {
  static constexpr const char* name = "reduce_backward";
  View grad, x, y, dx;
  ReduceOp op;
  double scale, power;
  Device device() const { return dx.device; }
  Cost cost() const {
    return {0, reduce_backward_flops(op) * dx.numel(),
            grad.bytes() + x.bytes() + (op == ReduceOp::kSumAbs ? 0 : y.bytes()), dx.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void reduce(const ReduceArgs&);
void reduce_mapped(const ReduceArgs&);  // of cuda::reduce: all but kSum and kMax (reduce_map_cuda.cu)
void max_backward(const MaxBackwardArgs&);
void reduce_backward(const ReduceBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
