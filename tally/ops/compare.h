// Element-wise questions, answered in bool; no gradients. Shapes broadcast, dtypes promote, one operand may be a
// number.
#pragma once

#include "tally/core/promote.h"
#include "tally/ops/compare_kernels.h"

namespace tally {

Tensor compare(CompareOp op, const Operand& a, const Operand& b);

Tensor eq(const Operand& a, const Operand& b);
Tensor ne(const Operand& a, const Operand& b);
Tensor lt(const Operand& a, const Operand& b);
Tensor le(const Operand& a, const Operand& b);
Tensor gt(const Operand& a, const Operand& b);
Tensor ge(const Operand& a, const Operand& b);

// Of any dtypes: what is not 0 is true.
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_xor(const Operand& a, const Operand& b);
Tensor logical_not(const Tensor& x);

Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

}  // namespace tally
