// Recorded changes in place of a storage that several tensors show, as PyTorch's CopySlices: `y[0] *= w` changes y by
// way of a view. The view gets the product's node at once; every other tensor of the storage (the whole, views made
// before) has a node that is out of date, and finds the change here when it is next asked for its node
// (Tensor::node()). The storage keeps only shapes and nodes of what changed. Nodes keep storages alive (saved tensors),
// so the storage drops them as soon as nothing but saved tensors holds it. Inside core only.
#pragma once

#include <vector>

#include "tally/core/tensor.h"

namespace tally {

struct Changes {
  struct Change {
    int32_t number;  // counts from 1 on
    Tensor place;    // with its node, without its storage, which owns this
    Tensor (*follow)(const Tensor& x, const Tensor& changed);
  };
  std::vector<Change> all;
};

}  // namespace tally
