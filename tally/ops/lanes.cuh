// Lanes of kernels that go along one axis by an index (scatter, the gradient of gather): the views without that axis,
// and the strides of that axis apart.
#pragma once

#include "tally/core/view.h"

namespace tally::cuda {

struct Lanes {
  Dims size, in, index, out;               // in: what is put or added to places of out
  int64_t count;                           // of lanes
  int64_t n, in_along, index_along;        // the axis of in
  int64_t rows, rows_of_range, out_along;  // and of out
};

inline Lanes lanes_of(const View& in, const View& index, const View& out, int axis) {
  Lanes l{};
  for (int i = 0; i < in.rank(); ++i) {
    if (i == axis) continue;
    const int k = l.size.rank++;
    l.size[k] = in.size[i], l.in[k] = in.stride[i];
    l.index[k] = index.stride[i], l.out[k] = out.stride[i];
  }
  l.count = l.size.numel();
  l.n = in.size[axis], l.in_along = in.stride[axis], l.index_along = index.stride[axis];
  l.rows = out.size[axis], l.out_along = out.stride[axis];
  return l;
}

}  // namespace tally::cuda
