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

// f(T{}) for the unsigned number of the dtype's size: signed ones wrap around to the same bits.
template <class F>
inline void with_unsigned(DType t, const F& f) {
  switch (item_size(t)) {
    case 8:
      return f(uint64_t{});
    case 4:
      return f(uint32_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint8_t{});
  }
}

#ifdef TALLY_ISA
namespace TALLY_ISA {
void matmul_int(const MatmulIntArgs&);
}
#endif

}  // namespace tally
