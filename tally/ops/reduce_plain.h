// Reductions of integers and truth values, and the places of extremes; PyTorch's names and meaning. Axes may be
// negative (from the end); none given: all of them.
#pragma once

#include <optional>

#include "tally/core/tensor.h"
#include "tally/ops/reduce_plain_kernels.h"  // PlainOp

namespace tally {

// The place (i64) of the first largest or smallest element of an axis, or of all elements in logical order. NaN counts
// as the extreme. No element is an Error.
Tensor argmax(const Tensor& x, std::optional<int> axis = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int> axis = {}, bool keepdim = false);

// Whether any or all elements are not 0 (NaN is not), as bool. Of no elements: false and true.
Tensor any(const Tensor& x, const Dims& axes = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& axes = {}, bool keepdim = false);

// out, of x's rank with reduced axes of size 1: i64 for sums and products of integers and bool, x's dtype for their
// extremes, bool for any and all.
void reduce_plain_(PlainOp op, const Tensor& x, const Tensor& out);

}  // namespace tally
