// Sums of gradients at views of which elements may lie at one place in memory.
#pragma once

#include "tally/core/tape.h"

namespace tally {

// True when no two elements of x lie at one place: each axis steps over all that shorter steps reach. (Sufficient, and
// necessary for what slices, diagonals and windows make.)
bool apart(const Tensor& x);
// part += g where elements of `part` may overlap: a slice at a time, each without overlap, in the order of the index.
void add_overlapping(Tensor part, Tensor g);
// Adds to input i, whose elements lie apart, what the output's gradient says of the memory that both show: strides and
// offsets of both count elements of one storage.
void add_from_memory(Backward& b, int i, const Dims& of_x, int64_t x_at, const Dims& of_y, int64_t y_at);

}  // namespace tally
