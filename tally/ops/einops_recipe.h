// A pattern with two sides put to a shape: what rearrange, reduce and repeat have to do.
#pragma once

#include <string_view>

#include "tally/ops/einops.h"
#include "tally/ops/einops_move.h"

namespace tally {

enum class EinopsKind : uint8_t { kRearrange, kReduce, kRepeat };
const char* name_of(EinopsKind kind);

struct EinopsRecipe {
  AxisMove move;  // `from`: places among the axes that remain
  Dims reduced;   // places in move.split
};
// Throws a value Error naming op, pattern and shape.
EinopsRecipe recipe_of(EinopsKind kind, const Tensor& x, std::string_view pattern, const AxisSizes& sizes);

}  // namespace tally
