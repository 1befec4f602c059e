// Views that record their backward (no kernel forward): names, argument order and meaning as in PyTorch. None copies
// but contiguous(), reshape() and flatten(), and those only when they must. Axes may be negative; an axis or index out
// of range is an IndexError, a shape or stride that cannot be a RuntimeError.
#pragma once

#include <limits>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

// ---- axes

Tensor transpose(const Tensor& x, int a, int b);
inline Tensor swapaxes(const Tensor& x, int a, int b) { return transpose(x, a, b); }
Tensor permute(const Tensor& x, const Dims& order);  // axis i of the result is axis order[i] of x
Tensor t(const Tensor& x);                           // of at most two axes
Tensor mT(const Tensor& x);                          // the last two axes change places
Tensor movedim(const Tensor& x, const Dims& from, const Dims& to);
inline Tensor movedim(const Tensor& x, int from, int to) { return movedim(x, Dims(from), Dims(to)); }
Tensor squeeze(const Tensor& x);                    // without its axes of size 1
Tensor squeeze(const Tensor& x, int axis);          // x itself where that axis is not of size 1
Tensor squeeze(const Tensor& x, const Dims& axes);  // of these, those of size 1
Tensor unsqueeze(const Tensor& x, int axis);
// Axes of size 1, and new ones in front, repeated without a copy; -1 keeps an axis.
Tensor expand(const Tensor& x, const Dims& size);
Tensor broadcast_to(const Tensor& x, const Dims& size);  // the same by the rule of element-wise ops
inline Tensor expand_as(const Tensor& x, const Tensor& other) { return expand(x, other.sizes()); }

// ---- shapes

// The same elements in another shape without a copy; one size may be -1. Throws Error "view size is not compatible
// with input tensor's size and stride" when strides do not allow it.
Tensor view(const Tensor& x, const Dims& size);
// The same bytes as another dtype; the last axis, which must be contiguous, changes its size with the dtype's. Without
// a gradient.
Tensor view(const Tensor& x, DType dtype);
Tensor reshape(const Tensor& x, const Dims& size);               // view() where it can, else a copy
Tensor flatten(const Tensor& x, int start = 0, int end = -1);    // axes start to end, both included, as one
Tensor unflatten(const Tensor& x, int axis, const Dims& sizes);  // one axis as several; one size may be -1
Tensor contiguous(const Tensor& x);
// A copy of another dtype (conversions: core/number.h); x itself when it has it already. Differentiable between f64,
// f32, bf16 and f16; recorded for no other. saturate: f8 takes +-448 (e4m3) or +-57344 (e5m2) for what lies beyond,
// infinities too; else NaN (e4m3) or infinity (e5m2). f4e2m1x2 is refused: quantize and dequantize (ops/quantize.h)
// make it.
Tensor to(const Tensor& x, DType dtype, bool saturate = true);

// ---- parts

Tensor select(const Tensor& x, int axis, int64_t index);  // x[.., index, ..] without the axis
constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();
// x[.., begin:end:step, ..] by Python's rules: negative bounds count from the end, bounds outside are moved to the
// nearest one inside. step is at least 1.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end = kToEnd, int64_t step = 1);
Tensor narrow(const Tensor& x, int axis, int64_t start, int64_t length);  // as slice, but must lie inside
// Parts of `size` along an axis, the last one maybe smaller; chunk: at most `chunks` parts of equal size. (gather.h has
// split() into given sizes.)
std::vector<Tensor> split(const Tensor& x, int64_t size, int axis = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int axis = 0);
// The diagonals of axes a and b as a last axis; offset > 0 lies above the main one.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int a = 0, int b = 1);

// ---- overlapping: gradients of elements seen more than once are summed in a fixed order

// All windows of `size` at distance `step` along an axis; the windows' elements become a last axis.
Tensor unfold(const Tensor& x, int axis, int64_t size, int64_t step);
// x's storage at offset + sum of index * stride. Throws Error for what reaches outside it and for negative strides.
// Where elements of x itself overlap there is no gradient: an Error.
Tensor as_strided(const Tensor& x, const Dims& size, const Dims& stride, int64_t offset);
inline Tensor as_strided(const Tensor& x, const Dims& size, const Dims& stride) {
  return as_strided(x, size, stride, x.storage_offset());
}

}  // namespace tally
