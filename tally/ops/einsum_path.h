// The order in which an einsum's operands are contracted, two at a time: the cheapest for up to eight operands, by
// dynamic programming over subsets; above, pairs are taken greedily until eight are left. A pair costs what opt_einsum
// counts (Smith and Gray, "opt_einsum", JOSS 2018): the product of the sizes of all axes of the two, twice that where
// an axis is summed over. Among orders of equal cost the one with the fewest elements in between, then the first.
#pragma once

#include <cstdint>
#include <vector>

namespace tally {

// Axes as bits: bit i of a mask is axis i, whose size is sizes[i].
using AxisMask = uint64_t;

struct EinsumPath {
  struct Step {
    int a, b;         // operands 0 .. n - 1, then results in the order of the steps
    AxisMask result;  // axes that are left
    double flops;
  };
  std::vector<Step> steps;  // n - 1
  double flops = 0;         // of all steps; exact below 2^53
  double largest = 0;       // elements of the largest result of a step
};

constexpr int kExactOperands = 8;
EinsumPath einsum_path(const std::vector<AxisMask>& operands, AxisMask output, const std::vector<int64_t>& sizes);

}  // namespace tally
