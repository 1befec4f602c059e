// Two tensors with named axes contracted: the one step that einsum is made of.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/einsum_path.h"

namespace tally {

// A tensor whose axis i is axis axes[i] of an einsum; no axis stands twice.
struct Labelled {
  Tensor tensor;
  Dims axes;
  AxisMask mask() const;
  int place(int64_t axis) const;  // -1 where it does not have it
};

// The sum of a * b over the axes of both that are not in `keep`; what only one of them has is kept. Its axes stand as
// in `order` where that names exactly them, else as is cheapest.
Labelled contract(const Labelled& a, const Labelled& b, AxisMask keep, const Dims& order);
// x's axes as in `order`, which names them all: a view.
Tensor in_order(const Labelled& x, const Dims& order);

}  // namespace tally
