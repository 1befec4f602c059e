// Dropout (Srivastava et al. 2014) with a mask that is a function of (seed, stream, logical index) and never stored.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// Element i of the contiguous order is kept when its uniform number (base/rng.h) is at least p: out = x * scale, else
// 0, also where x is not finite. The backward is the same call on the gradient. Counted: the product.
struct DropoutArgs {
  static constexpr const char* name = "dropout";
  View x, out;
  float p, scale;  // scale = 1 / (1 - p); 0 for p = 1
  uint64_t seed, stream;
  Device device() const { return out.device; }
  Cost cost() const { return {0, out.numel(), x.bytes(), out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void dropout(const DropoutArgs&);
}
#endif

}  // namespace tally
