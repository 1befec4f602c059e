// einops on tensors: rearrange, reduce, repeat, pack and unpack, after einops 0.8 (Rogozhnikov, ICLR 2022).
//
//   rearrange(x, "b t (h d) -> b h t d", {{"h", 4}})      heads apart: a view
//   reduce(x, "b t d -> b d", "mean")                     axes that are not on the right are reduced
//   repeat(x, "h w -> h w c", {{"c", 3}})                 new axes on the right: stride 0, a view
//
// A pattern names every axis, splits composed ones in brackets (row-major), and may hold an ellipsis for any number of
// axes, 1 or () for an axis of size 1, and in reduce (left) and repeat (right) a number for an axis without a name.
// Views wherever strides allow, else one copy. A pattern is parsed once. A list of tensors of one shape is a tensor
// with the list as its first axis. Throws a value Error naming op, pattern and shape.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

using AxisSizes = std::vector<std::pair<std::string_view, int64_t>>;
// (tensor, axes) -> the tensor without these axes.
using ReduceFunction = std::function<Tensor(const Tensor&, const Dims&)>;

Tensor rearrange(const Tensor& x, std::string_view pattern, const AxisSizes& sizes = {});
Tensor rearrange(const std::vector<Tensor>& list, std::string_view pattern, const AxisSizes& sizes = {});

// how: sum, mean, max, min, prod, any or all; or a function.
Tensor reduce(const Tensor& x, std::string_view pattern, std::string_view how, const AxisSizes& sizes = {});
Tensor reduce(const std::vector<Tensor>& list, std::string_view pattern, std::string_view how,
              const AxisSizes& sizes = {});
Tensor reduce(const Tensor& x, std::string_view pattern, const ReduceFunction& how, const AxisSizes& sizes = {});

Tensor repeat(const Tensor& x, std::string_view pattern, const AxisSizes& sizes = {});
Tensor repeat(const std::vector<Tensor>& list, std::string_view pattern, const AxisSizes& sizes = {});

// pack({(2, 3, 5), (2, 3, 7, 5), (2, 3, 7, 9, 5)}, "i j * k") -> (2, 3, 71, 5) and the shapes that * stood for:
// {(), (7), (7, 9)}. unpack() is its inverse and gives views; one shape may hold a -1.
struct Packed {
  Tensor tensor;
  std::vector<Dims> shapes;
};
Packed pack(const std::vector<Tensor>& tensors, std::string_view pattern);
std::vector<Tensor> unpack(const Tensor& x, const std::vector<Dims>& shapes, std::string_view pattern);

// Patterns parsed on this thread so far: a test sees that none is parsed twice.
int64_t patterns_parsed();

}  // namespace tally
