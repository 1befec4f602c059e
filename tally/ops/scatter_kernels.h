// Elements put to, or added at, places by index along one axis. All views have one rank.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// out[.., index[.., j, ..], ..] = src[.., j, ..] with j and the index on `axis`: where an index comes again, the last j
// stays. With `add`: += in order of j, for integers, which wrap around (sums of floats are GatherBackwardArgs with
// `add`). index (i32 or i64, all in range) and out but for `axis` have src's sizes; strides of 0 in index where one
// serves a whole row, in src where one number does. Counted: with `add` one addition an element of src.
struct ScatterArgs {
  static constexpr const char* name = "scatter";
  View src, index, out;
  int axis;
  bool add;
  Device device() const { return out.device; }
  Cost cost() const {
    const int64_t n = src.numel() < out.numel() ? src.numel() : out.numel(), touched = n * item_size(out.dtype);
    return {0, add ? src.numel() : 0, src.bytes() + index.bytes() + (add ? touched : 0), touched, 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void scatter(const ScatterArgs&);
}
#endif

}  // namespace tally
