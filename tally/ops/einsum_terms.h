// Patterns of einsum put to shapes. Two ways to write one: names apart, as einops does ("b t d, d k -> b t k"), and
// letters, as PyTorch does ("btd,dk->btk"; without an arrow the result has the letters that occur once, in order of
// the alphabet, behind the ellipsis). Names are tried first: "ij,jk->ik" are letters because its operands have two
// axes where it names one. A pattern is parsed once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tally/core/view.h"

namespace tally {

// Axes as numbers below 64. Axes under an ellipsis are axes of their own, counted from the right.
struct EinsumAxes {
  std::vector<Dims> inputs;  // each operand's axes in order; a repeated one is a diagonal
  Dims output;
  std::vector<int64_t> sizes;      // where an operand has 1 and another n, n: the first broadcasts
  std::vector<std::string> names;  // for messages
};
// Throws a value Error naming pattern, operand and sizes.
EinsumAxes einsum_axes(std::string_view pattern, const std::vector<Dims>& shapes);

}  // namespace tally
