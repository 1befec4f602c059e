// A choice between two tensors, and triangles of matrices. Bits are moved, whatever the dtype.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// out = condition (bool) ? a : b; all of out's shape (axes of stride 0 where they broadcast), a and b of out's dtype.
// Either may be a number instead of its view, which is then not looked at: the bits of it in out's dtype.
struct WhereArgs {
  static constexpr const char* name = "where";
  View condition, a, b, out;
  bool a_number = false, b_number = false;
  uint64_t a_bits = 0, b_bits = 0;
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, out.numel(), condition.bytes() + (a_number ? 0 : a.bytes()) + (b_number ? 0 : b.bytes()), out.bytes(),
            0};
  }
};

// out[.., i, j] = x[.., i, j] where j - i >= diagonal (upper) or <= diagonal (lower), else 0.
struct TriangleArgs {
  static constexpr const char* name = "triangle";
  View x, out;
  int64_t diagonal;
  bool upper;
  Device device() const { return out.device; }
  Cost cost() const { return {0, 0, x.bytes(), out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void where(const WhereArgs&);
void triangle(const TriangleArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
