// Functions that write to their first tensor, with PyTorch's names and rules: the others broadcast to its shape, the
// result must be castable to its dtype (floats never into integers), and refused are leaves that require a gradient
// (unless under NoGrad) and tensors that overlap themselves. Operands that share memory with it partly are copied
// first. Where gradients are recorded the tensor takes the result's place in the tape, and other tensors that show its
// memory follow (changes.h); what backwards keep of its old values is a copy.
#pragma once

#include <optional>

#include "tally/core/promote.h"
#include "tally/core/tensor.h"

namespace tally {

void add_(Tensor& x, const Operand& y, Scalar alpha = 1);
inline void add_(Tensor&& view, const Operand& y, Scalar alpha = 1) { add_(view, y, alpha); }
void sub_(Tensor& x, const Operand& y, Scalar alpha = 1);
void mul_(Tensor& x, const Operand& y);
inline void mul_(Tensor&& view, const Operand& y) { mul_(view, y); }
void div_(Tensor& x, const Operand& y);
void pow_(Tensor& x, const Operand& exponent);
void floor_divide_(Tensor& x, const Operand& y);
void remainder_(Tensor& x, const Operand& y);
void clamp_(Tensor& x, const std::optional<Operand>& low, const std::optional<Operand>& high = {});
void bitwise_and_(Tensor& x, const Operand& y);
void bitwise_or_(Tensor& x, const Operand& y);
void bitwise_xor_(Tensor& x, const Operand& y);

void relu_(Tensor& x);
void sigmoid_(Tensor& x);
void tanh_(Tensor& x);
void exp_(Tensor& x);
void log_(Tensor& x);
void sqrt_(Tensor& x);
void rsqrt_(Tensor& x);
void reciprocal_(Tensor& x);
void sin_(Tensor& x);
void cos_(Tensor& x);
void erf_(Tensor& x);
void neg_(Tensor& x);
void abs_(Tensor& x);
void sign_(Tensor& x);
void square_(Tensor& x);
void floor_(Tensor& x);
void ceil_(Tensor& x);
void round_(Tensor& x);
void trunc_(Tensor& x);

void fill_(Tensor& x, Scalar value);  // converted to x's dtype
inline void fill_(Tensor&& view, Scalar value) { fill_(view, value); }
void zero_(Tensor& x);
void masked_fill_(Tensor& x, const Tensor& mask, const Operand& value);
// PyTorch's copy_: y, broadcast and converted, recorded. (copy_ of elementwise.h moves values only.)
void assign_(Tensor& x, const Tensor& y);

}  // namespace tally
