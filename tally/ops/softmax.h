// Softmax with gradient.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// exp(x) / sum(exp(x)) over `axis` (negative counts from the end; the last is the fastest). Where all of an axis is
// -inf (everything masked) the result is 0 everywhere, for every length, and so is the gradient.
Tensor softmax(const Tensor& x, int axis = -1);
// log(softmax(x)), of x less the maximum, so that large numbers lose nothing; NaN where all of an axis is -inf.
Tensor log_softmax(const Tensor& x, int axis = -1);

}  // namespace tally
