// Sums, means and maxima over axes, with gradients.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// Over the given axes (negative count from the end; none given: all). keepdim leaves axes of size 1.
Tensor sum(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
// The mean of no elements is an Error.
Tensor mean(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
// amax: the gradient goes to every element that equals the maximum, divided by their number, as PyTorch's amax does.
Tensor max(const Tensor& x, const Dims& axes = {}, bool keepdim = false);

}  // namespace tally
