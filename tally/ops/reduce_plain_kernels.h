// Reductions of integers and truth values, places of extremes, and the gradient of a product.
#pragma once

#include "tally/core/cost.h"

namespace tally {

enum class PlainOp : uint8_t { kSum, kProd, kMax, kMin, kAny, kAll };

// out has x's rank; its axes of size 1 where x's are larger are reduced. kSum and kProd: out is i64 and wraps; kMax and
// kMin: x's dtype; x is of integers or bool. kAny, kAll: any ordered dtype (order_keys.h) to bool; NaN is not 0.
struct ReducePlainArgs {
  static constexpr const char* name = "reduce_plain";
  View x, out;
  PlainOp op;
  Device device() const { return out.device; }
  Cost cost() const { return {0, x.numel(), x.bytes(), out.bytes(), 0}; }
};

// out (i64, size 1 on `axis`): the place along the axis of the first largest (least: smallest) element; NaN wins.
struct ArgReduceArgs {
  static constexpr const char* name = "arg_reduce";
  View x, out;
  int axis;
  bool least;
  Device device() const { return out.device; }
  Cost cost() const { return {0, x.numel(), x.bytes(), out.bytes(), 0}; }
};

// dx = grad * product of the other elements of the output; grad has reduced axes of size 1. By division where no
// element is 0; else only a single 0 has a gradient. The product is kept in f64. Counted an element: comparison,
// product, division; one product an output.
struct ProdBackwardArgs {
  static constexpr const char* name = "prod_backward";
  View grad, x, dx;
  Device device() const { return dx.device; }
  Cost cost() const { return {0, 3 * x.numel() + grad.numel(), grad.bytes() + x.bytes(), dx.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void reduce_plain(const ReducePlainArgs&);
void arg_reduce(const ArgReduceArgs&);
void prod_backward(const ProdBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
