// Sorting along an axis and the k largest or smallest, with gradients; PyTorch's names and meaning. NaN is larger than
// all numbers; -0 equals 0. Equal elements keep their order, always (`stable` changes nothing), and topk takes the
// first of them.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/reduce.h"  // ValuesIndices

namespace tally {

// Takes every dtype of integers, bool and floats but f8 and f4. indices are i64.
ValuesIndices sort(const Tensor& x, int axis = -1, bool descending = false, bool stable = true);
Tensor argsort(const Tensor& x, int axis = -1, bool descending = false, bool stable = true);
// In order, the first being the largest (smallest), whatever `sorted` asks for. k out of range is an Error.
ValuesIndices topk(const Tensor& x, int64_t k, int axis = -1, bool largest = true, bool sorted = true);

}  // namespace tally
