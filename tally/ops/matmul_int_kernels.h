// Matrix products of integers, which wrap around: c[b] = a[b] b[b]; a (B, M, K), b (B, K, N), c (B, M, N), all of one
// integer dtype, any strides.
#pragma once

#include "tally/core/cost.h"

namespace tally {

struct MatmulIntArgs {
  static constexpr const char* name = "matmul_int";
  View a, b, c;
  Device device() const { return c.device; }
  Cost cost() const { return {2 * c.numel() * a.size[2], 0, a.bytes() + b.bytes(), c.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void matmul_int(const MatmulIntArgs&);
}
#endif

}  // namespace tally
