// Elements by index, joining and splitting along an axis, with gradients; and the checks of index tensors.
#pragma once

#include <vector>

#include "tally/core/tensor.h"

namespace tally {

// Element ids[j] of `axis` at place j: x (.., A, ..), ids (n) i32 or i64 -> (.., n, ..). Out of range is an Error.
Tensor index_select(const Tensor& x, int axis, const Tensor& ids);
// out[.., j, ..] = x[.., index[.., j, ..], ..]: index has x's sizes but for `axis` (numpy's take_along_axis).
Tensor take_along_axis(const Tensor& x, const Tensor& index, int axis);

// out[.., j, ..] = x[.., index[.., j, ..], ..] with j on `axis` and index's sizes, which may be smaller than x's on the
// other axes (PyTorch's gather). Out of range, below 0 included, is an IndexError.
Tensor gather(const Tensor& x, int axis, const Tensor& index);

// Tensors of one dtype, equal in all sizes but that of `axis`, one behind the other. Their gradients are views of the
// result's gradient. Parts of shape (0,) are left out.
Tensor cat(const std::vector<Tensor>& parts, int axis = 0);
// Views of x of the given sizes along `axis`, which must add up. Up to six parts write their gradients into one buffer.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int axis);

// Refuses what is not a tensor of i32 or i64.
void require_index(const char* op, const Tensor& index);
// The numbers one behind the other in memory, in one axis; not recorded.
Tensor flat_index(const Tensor& index);
int64_t index_value(const Tensor& flat, int64_t i);
// The first place whose number is neither in [0, limit) nor *allowed; -1 when there is none, and on meta.
int64_t first_outside(const Tensor& flat, int64_t limit, const int64_t* allowed = nullptr);

// Refuses numbers outside 0..limit-1 with an IndexError; on the CPU only.
void require_range(const char* op, const Tensor& flat, int64_t limit);
// The flat index seen with the result's size: its own axes, or one of them with strides of 0 on the others.
Tensor spread_index(const Tensor& flat, const Dims& size, int axis);

}  // namespace tally
