// Running sums and products along an axis, with gradients; PyTorch's names and meaning.
#pragma once

#include <optional>

#include "tally/core/tensor.h"
#include "tally/ops/scan_kernels.h"  // ScanOp

namespace tally {

// y[i] = x[0] + ... + x[i] along `axis` (negative counts from the end); i64 for integers and bool. Floats are summed in
// f64. dtype: x is converted to it first. The gradient of x[i] is the sum of those of y[i], y[i + 1] ...
Tensor cumsum(const Tensor& x, int axis, std::optional<DType> dtype = {});
Tensor cumprod(const Tensor& x, int axis, std::optional<DType> dtype = {});  // its gradient is right with zeros

}  // namespace tally
