// Element-wise functions of one tensor, with gradients, and what is filled, copied and moved. Pairs are in
// arithmetic.h. Float functions make f32 of integers and bool; neg, abs, sign, square, relu and the roundings keep
// them.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/arithmetic.h"
#include "tally/ops/elementwise_math.h"
#include "tally/ops/inplace.h"
#include "tally/ops/operands.h"

namespace tally {

Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x);       // with erf
Tensor gelu_tanh(const Tensor& x);  // Hendrycks and Gimpel's approximation, as in GPT-2
Tensor silu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);  // e^x - 1
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);  // ln(1 + x)
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor neg(const Tensor& x);  // bool: a TypeError
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);  // of NaN: 0
Tensor square(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  // halves to even
Tensor trunc(const Tensor& x);
Tensor affine(const Tensor& x, double scale, double shift);  // scale * x + shift
// Any function of elementwise_math.h with its numbers.
Tensor unary(UnaryOp op, const Tensor& x, double alpha = 1, double beta = 0);

Tensor swiglu(const Tensor& gate, const Tensor& up);  // silu(gate) * up

// Values, converted to into's dtype (core/number.h); shapes equal; not recorded. The devices may differ. saturate: of
// f8, see to(x, dtype) in ops/view.h.
void copy_(const Tensor& into, const Tensor& from, bool saturate = true);
// x on `device`, x itself when it is there already; not recorded. non_blocking: does not wait for the copy, where x is
// contiguous. From the CPU x must be pinned and stay unchanged, to the CPU (into pinned memory) the result is there,
// after synchronize() of the card.
Tensor to(const Tensor& x, Device device, bool non_blocking = false);
// A copy of x, which is on the CPU, in page-locked memory (Tensor::empty_pinned); x itself when it is there already.
Tensor pin_memory(const Tensor& x);
// Sums the axes over which a gradient of `gradient`'s shape was broadcast from `size`, into `dtype` (the gradient's
// own, or f32 for one of bf16); the gradient itself where there is nothing to sum.
Tensor sum_to(const Tensor& gradient, const Dims& size, Category category, DType dtype);

// Refuses tensors that an op of floats cannot take: undefined, not a float, on different devices.
void require_float(const char* op, const Tensor& x);
void require_same(const char* op, const Tensor& a, const Tensor& b);  // float, equal dtype and device
void refuse_f16(const char* op, const Tensor& x);                     // for ops that have f64, f32 and bf16 only
// Whether an op on x works on a copy in f32: kernels for cards that go by rows have f32 and bf16 only.
bool widens_f16(const Tensor& x);

}  // namespace tally
