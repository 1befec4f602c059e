// Sums, means and maxima over axes, with gradients.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/reduce_kernels.h"  // ReduceOp

namespace tally {

// Over the given axes (negative count from the end; none given: all). keepdim leaves axes of size 1.
Tensor sum(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
// The mean of no elements is an Error.
Tensor mean(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
// amax: the gradient goes to every element that equals the maximum, divided by their number, as PyTorch's amax does.
Tensor max(const Tensor& x, const Dims& axes = {}, bool keepdim = false);

// out = scale * sum or the maximum of x over the axes that are 1 in out (of x's rank) and not in x; of x's dtype, or
// the f32 sum of a bf16 x. Not recorded.
void reduce_(ReduceOp op, const Tensor& x, const Tensor& out, double scale = 1.0);

}  // namespace tally
