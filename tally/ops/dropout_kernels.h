// Dropout (Srivastava et al. 2014) with a mask that is a function of (seed, stream, logical index) and never stored.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// Element i of the contiguous order is kept when its uniform number (base/rng.h) is at least p: out = x * scale, else
// 0, also where x is not finite. The backward is the same call on the gradient. Counted: the product.
// The stream is `stream` + step * kDropoutSteps, where step, one i64, is read on the device (a rank of 0 stands for no
// step), so that a step can be repeated by a card alone.
constexpr uint64_t kDropoutSteps = uint64_t{1} << 16;
struct DropoutArgs {
  static constexpr const char* name = "dropout";
  View x, out, step;
  float p, scale;  // scale = 1 / (1 - p); 0 for p = 1
  uint64_t seed, stream;
  Device device() const { return out.device; }
  Cost cost() const { return {0, out.numel(), x.bytes() + (step.size.rank > 0 ? step.bytes() : 0), out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void dropout(const DropoutArgs&);
}
#endif

}  // namespace tally
