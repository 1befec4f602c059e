// Sums of products over named axes, of any number of operands:
//
//   einsum({x, w}, "batch seq hidden, hidden out -> batch seq out")      einops' order and names
//   einsum("bth,ho->bto", {x, w})                                         PyTorch's order and letters; either works
//
// A name that is not in the result is summed over; one that stands twice in a term is a diagonal; ... are axes that
// broadcast from the right, and are summed where the result has none; an axis of size 1 broadcasts.
// The order of contraction is the cheapest (einsum_path.h). Axes of one operand alone are summed first. A pair becomes
// a batched product of views (B, M, K) x (B, K, N), copied only where strides do not allow that, or without an axis to
// sum over an element-wise product. The result may be a view whose axes are permuted. Gradients are those of the parts.
// Throws a value Error naming pattern, operand and sizes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

Tensor einsum(const std::vector<Tensor>& operands, std::string_view pattern);
Tensor einsum(std::string_view pattern, const std::vector<Tensor>& operands);

// What einsum would do, from shapes alone.
struct EinsumCost {
  struct Step {
    int a, b;          // operands 0 .. n - 1, then results in the order of the steps
    std::string axes;  // of the step: "b t h, h o -> b t o"
    double flops;
  };
  std::vector<Step> steps;
  double flops = 0;    // as opt_einsum counts: elements of all axes of a pair, twice where something is summed
  double largest = 0;  // elements of the largest result of a step
};
EinsumCost einsum_cost(std::string_view pattern, const std::vector<Dims>& shapes);

}  // namespace tally
