// Reductions over axes, with gradients: PyTorch's names and meaning. Axes may be negative (from the end); none given:
// all of them. keepdim leaves axes of size 1. Sums are made in f32 (f64 for f64) in a fixed order.
#pragma once

#include <optional>

#include "tally/core/tensor.h"
#include "tally/ops/reduce_kernels.h"  // ReduceOp

namespace tally {

struct ValuesIndices {
  Tensor values, indices;  // indices are i64
};

// Of integers and bool the result is i64. dtype: x is converted to it first.
Tensor sum(const Tensor& x, const Dims& axes = {}, bool keepdim = false, std::optional<DType> dtype = {});
Tensor prod(const Tensor& x, const Dims& axes = {}, bool keepdim = false, std::optional<DType> dtype = {});
// Of floats, or with a dtype of floats. The mean of no elements is NaN.
Tensor mean(const Tensor& x, const Dims& axes = {}, bool keepdim = false, std::optional<DType> dtype = {});

// Extremes; NaN where there is one. The gradient goes to all elements equal to the extreme, in equal shares. No element
// to compare is an Error.
Tensor amax(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Dims& axes = {}, bool keepdim = false);  // amax
Tensor min(const Tensor& x, const Dims& axes = {}, bool keepdim = false);  // amin
// Over one axis with the place of the first extreme (NaN counts as one), which gets the gradient.
ValuesIndices max(const Tensor& x, int axis, bool keepdim = false);
ValuesIndices min(const Tensor& x, int axis, bool keepdim = false);

// sum((x - mean)^2) / max(0, n - correction), and its root: in two passes. The gradient of std is 0 where std is 0.
Tensor var(const Tensor& x, const Dims& axes = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Dims& axes = {}, double correction = 1, bool keepdim = false);

// log(sum(exp(x))) without overflow; -inf where all elements are -inf (or there are none). Integers count as f32.
Tensor logsumexp(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
// sum(|x|^p)^(1/p); p = infinity: the largest |x|; p = 0: how many are not 0. Its gradient at 0 is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& axes = {}, bool keepdim = false);

// out = scale * reduction of x over the axes that are 1 in out (of x's rank) and not in x; of x's dtype, or f32 for a
// bf16 x. shift and power as in ReduceArgs. Not recorded.
void reduce_(ReduceOp op, const Tensor& x, const Tensor& out, double scale = 1.0, const Tensor& shift = {},
             double power = 0);

// One bit an axis of x that is reduced; for other reductions.
int reduced_axes(const char* op, const Tensor& x, const Dims& axes);
// `size` with reduced axes of size 1 (keepdim) or without them.
Dims reduced_size(const Dims& size, int axes, bool keepdim);
// As normalize_axis(), and 0 and -1 are axes of a tensor of rank 0, as in PyTorch.
int scalar_axis(int axis, int rank, const char* op);

}  // namespace tally
