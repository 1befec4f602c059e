// The one movement behind rearrange, repeat and einsum: axes split, reordered, added and merged. One node of the tape.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// Each axis of x is split into parts, the parts are ordered anew beside new axes, and neighbours are merged.
struct AxisMove {
  Dims split;   // sizes of the parts, in x's order
  Dims parts;   // how many each axis of x has
  Dims from;    // for each part of the result: its place in `split`, or -1 for a new axis (stride 0)
  Dims full;    // sizes of the result's parts
  Dims merged;  // how many each axis of the result has
};
// A view where strides allow, x itself where nothing is moved, else one copy.
Tensor move_axes(const Tensor& x, const AxisMove& move);

}  // namespace tally
