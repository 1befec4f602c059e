// Whether two tensors have the same values, as an answer to the host.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// Of one shape, all elements equal after promotion to the common dtype; NaN equals nothing. Unlike shapes are unequal.
bool equal(const Tensor& a, const Tensor& b);
// Shapes broadcast; all |a - b| <= atol + rtol |b|. Infinities are close to themselves only, NaN to NaN if equal_nan.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);

}  // namespace tally
