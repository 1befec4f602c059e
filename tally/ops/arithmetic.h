// Arithmetic of pairs: tensors with tensors and with numbers, shapes broadcast from the right, dtypes promote
// (core/promote.h), gradients are recorded. Integers stay integers and wrap around; true division makes floats of them.
#pragma once

#include <optional>

#include "tally/core/promote.h"
#include "tally/core/tensor.h"

namespace tally {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// a + alpha * b and a - alpha * b; alpha is whole where the result is. bool minus bool is a TypeError.
Tensor add(const Operand& a, const Operand& b, Scalar alpha = 1);
Tensor sub(const Operand& a, const Operand& b, Scalar alpha = 1);
Tensor mul(const Operand& a, const Operand& b);
Tensor div(const Operand& a, const Operand& b);
enum class Rounding : uint8_t { kTrunc, kFloor };
Tensor div(const Operand& a, const Operand& b, Rounding rounding);

// a^b. Integers: exact modulo 2^64; a negative number as exponent of an integer tensor is an Error.
Tensor pow(const Operand& a, const Operand& b);
// NaN where one is; equal values share the gradient.
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);
// Python's // and %: the quotient rounded down, the remainder of b's sign. An integer division by zero is the Error
// "ZeroDivisionError" on the CPU and 0 on a card.
Tensor floor_divide(const Operand& a, const Operand& b);
Tensor remainder(const Operand& a, const Operand& b);
// min(max(x, low), high) with either bound absent; the gradient flows where x lies inside. Bounds that are tensors
// broadcast and promote; where x equals one they share the gradient, as in maximum().
Tensor clamp(const Tensor& x, const std::optional<Operand>& low, const std::optional<Operand>& high = {});

// Of integers and bool; a TypeError for floats. Shift counts of the width and beyond give 0 (right: the sign).
Tensor bitwise_and(const Operand& a, const Operand& b);
Tensor bitwise_or(const Operand& a, const Operand& b);
Tensor bitwise_xor(const Operand& a, const Operand& b);
Tensor bitwise_left_shift(const Operand& a, const Operand& b);
Tensor bitwise_right_shift(const Operand& a, const Operand& b);
Tensor bitwise_not(const Tensor& x);

}  // namespace tally
