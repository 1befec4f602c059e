// Running sums and products along an axis.
#pragma once

#include "tally/core/cost.h"

namespace tally {

enum class ScanOp : uint8_t { kSum, kProd };

// out[i] = the first i + 1 elements of x along `axis` joined, from the end with `reverse`. Floats (out of x's dtype)
// are joined in f64, integers and bool (out i64) wrap. Equal sizes, any strides; rank 1 or more.
struct ScanArgs {
  static constexpr const char* name = "scan";
  View x, out;
  int axis;
  ScanOp op;
  bool reverse;
  Device device() const { return out.device; }
  Cost cost() const { return {0, x.numel(), x.bytes(), out.bytes(), 0}; }
};

// Of y = the running product of x: dx[i] = y[i - 1] * s[i] with s[i] = grad[i] + x[i + 1] * s[i + 1]. No division, so
// zeros need no care.
struct CumprodBackwardArgs {
  static constexpr const char* name = "cumprod_backward";
  View grad, x, y, dx;
  int axis;
  Device device() const { return dx.device; }
  Cost cost() const { return {0, 3 * dx.numel(), grad.bytes() + x.bytes() + y.bytes(), dx.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void scan(const ScanArgs&);
void cumprod_backward(const CumprodBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
