// Element-wise functions with gradients. Shapes broadcast from the right, as in PyTorch; dtypes of a pair must agree.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/elementwise_math.h"

namespace tally {

Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x);       // with erf
Tensor gelu_tanh(const Tensor& x);  // Hendrycks and Gimpel's approximation, as in GPT-2
Tensor silu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor neg(const Tensor& x);
Tensor square(const Tensor& x);
Tensor affine(const Tensor& x, float scale, float shift);  // scale * x + shift
Tensor unary(UnaryOp op, const Tensor& x, float alpha = 1, float beta = 0);

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);

Tensor swiglu(const Tensor& gate, const Tensor& up);  // silu(gate) * up

void fill_(Tensor& x, double value);  // in place, not recorded
// Values, converted to into's dtype (core/number.h); shapes equal; not recorded. The devices may differ. saturate: of
// f8, see to(x, dtype) in ops/view.h.
void copy_(const Tensor& into, const Tensor& from, bool saturate = true);
// x on `device`, x itself when it is there already; not recorded. non_blocking: does not wait for the copy, where x is
// contiguous. From the CPU x must be pinned and stay unchanged, to the CPU (into pinned memory) the result is there,
// after synchronize() of the card.
Tensor to(const Tensor& x, Device device, bool non_blocking = false);
// A copy of x, which is on the CPU, in page-locked memory (Tensor::empty_pinned); x itself when it is there already.
Tensor pin_memory(const Tensor& x);
// into += x in place, of one dtype or bf16 or f16 onto f32; not recorded.
void add_(const Tensor& into, const Tensor& x);

// Shape of a pair after broadcasting. Throws Error naming op and both shapes.
Dims broadcast_shape(const char* op, const Dims& a, const Dims& b);
// x seen with `size` (axes of stride 0 where it broadcasts), with its gradient.
Tensor broadcast_to(const Tensor& x, const Dims& size);
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
