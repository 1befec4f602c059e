// Arithmetic of integers and bool, behind the functions of arithmetic.h and elementwise.h; no gradients.
#pragma once

#include "tally/core/promote.h"
#include "tally/ops/integer_math.h"

namespace tally {

// a op b in `dtype`, an integer or bool, whatever integers the operands are; `into`, where given, is written instead of
// a new tensor and must have the broadcast shape. Refuses a division by zero on the CPU.
Tensor integer(IntegerOp op, const Operand& a, const Operand& b, DType dtype, const Tensor* into = nullptr);
Tensor integer(IntegerOp op, const Tensor& x, const Tensor* into = nullptr);  // ops of one operand

}  // namespace tally
