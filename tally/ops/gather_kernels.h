// Elements by index along one axis, and the sum of gradients back. All views have one rank.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// out[.., j, ..] = x[.., index[.., j, ..], ..] with j and the index on `axis`. index (i32 or i64, all in range) has
// out's shape, with strides of 0 where one index serves a whole row (index_select). Any dtype; bits are moved.
struct GatherArgs {
  static constexpr const char* name = "gather";
  View x, index, out;
  int axis;
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, 0, index.bytes() + (out.numel() < x.numel() ? out.bytes() : x.bytes()), out.bytes(), 0};
  }
};

// dx[.., index[.., j, ..], ..] = sum of grad[.., j, ..] over j in order; the rest of dx is zero. With `add` the sum
// goes on top of what dx holds, one number after the other, and the rest is not touched. dx is f32 (f64 for f64),
// whatever grad is. Counted: one addition an element of grad.
struct GatherBackwardArgs {
  static constexpr const char* name = "gather_backward";
  View grad, index, dx;
  int axis;
  bool add = false;
  Device device() const { return dx.device; }
  Cost cost() const {
    const int64_t n = grad.numel() < dx.numel() ? grad.numel() : dx.numel(), touched = n * item_size(dx.dtype);
    return {0, grad.numel(), grad.bytes() + index.bytes() + (add ? touched : 0), add ? touched : dx.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void gather(const GatherArgs&);
void gather_backward(const GatherBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
