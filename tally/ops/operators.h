// + - * / of tensors and numbers as in arithmetic.h; += and friends as in inplace.h. Comparisons keep their names.
#pragma once

#include "tally/ops/elementwise.h"

namespace tally {

inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }

inline Tensor& operator+=(Tensor& a, const Operand& b) { return add_(a, b), a; }
inline Tensor& operator-=(Tensor& a, const Operand& b) { return sub_(a, b), a; }
inline Tensor& operator*=(Tensor& a, const Operand& b) { return mul_(a, b), a; }
inline Tensor& operator/=(Tensor& a, const Operand& b) { return div_(a, b), a; }

}  // namespace tally
