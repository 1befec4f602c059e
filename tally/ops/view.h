// Views that record their backward (no kernel forward): names and meaning as in PyTorch. Only contiguous() and
// reshape() copy, and only when they must.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

Tensor transpose(const Tensor& x, int a, int b);
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);  // negative bounds count from the end
Tensor expand(const Tensor& x, const Dims& size);
Tensor squeeze(const Tensor& x, int axis);
Tensor unsqueeze(const Tensor& x, int axis);
// The same elements in another shape without a copy; one size may be -1. Throws Error "view size is not compatible
// with input tensor's size and stride" when strides do not allow it.
Tensor view(const Tensor& x, const Dims& size);
Tensor reshape(const Tensor& x, const Dims& size);  // view() where it can, else a copy
Tensor contiguous(const Tensor& x);
// A copy of another dtype (conversions: core/number.h); x itself when it has it already. Differentiable between f64,
// f32, bf16 and f16; recorded for no other. saturate: f8 takes +-448 (e4m3) or +-57344 (e5m2) for what lies beyond,
// infinities too; else NaN (e4m3) or infinity (e5m2). f4e2m1x2 is refused: quantize and dequantize (ops/quantize.h)
// make it.
Tensor to(const Tensor& x, DType dtype, bool saturate = true);

}  // namespace tally
