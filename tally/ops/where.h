// A choice between two tensors and triangles of matrices, with gradients.
#pragma once

#include "tally/core/promote.h"
#include "tally/core/tensor.h"

namespace tally {

// condition ? a : b; condition is bool, all three broadcast, a and b promote and either may be a number.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);
// x with `value` (a number or a tensor of rank 0) where mask, which is bool and broadcasts, is true; of x's dtype, into
// which the value is converted. The shape is that of x and mask together.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);
// The upper or lower triangle of the last two axes, from the given diagonal on (0: the main one, positive above it);
// the rest is 0.
Tensor triu(const Tensor& x, int64_t diagonal = 0);
Tensor tril(const Tensor& x, int64_t diagonal = 0);

// where() without promotion and record: the operands have `dtype` already. `into`, where given, is written instead of a
// new tensor and must have the broadcast shape.
Tensor choose(const Tensor& condition, const Operand& a, const Operand& b, DType dtype, Category category,
              const Tensor* into = nullptr);

}  // namespace tally
