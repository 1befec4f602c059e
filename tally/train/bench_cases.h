// What the files of cases of `tally bench ops` share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tally/train/bench_ops.h"

namespace tally {

constexpr int64_t kBenchWidth = 4096;  // of a row

using Values = std::vector<Tensor>;
using Forward = std::function<Tensor(const Values&)>;

// Values that require a gradient.
Tensor bench_leaf(const Dims& size, uint64_t seed);
// "64 x 4096"
std::string bench_shape(const Dims& size);
// A function of tensors of the bench's floats named a, b, c ... that all get gradients, unless it has none.
OpCase function_case(const char* op, const char* size, const std::vector<Dims>& shapes, const Forward& f,
                     bool gradient = true);
// One input tensor of floats, which gets a gradient, and one of ids.
OpCase indexed_case(const char* op, const char* size, const std::string& shape, const Dims& table, const Dims& ids,
                    int64_t limit, const std::function<Tensor(const Tensor& table, const Tensor& ids)>& f);

// What tensors are used for outside of models: arithmetic, questions, reductions, losses, order, places (`elements`
// each), and products of integers.
void add_tensor_cases(std::vector<OpCase>& all, const char* size, int64_t elements);
void add_integer_products(std::vector<OpCase>& all);

}  // namespace tally
