#include "tally/ops/creation_kernels.h"

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

void sequence(const SequenceArgs& a) {
  View order = a.out;  // its offset is the logical index
  int64_t step = 1;
  for (int axis = order.size.rank - 1; axis >= 0; --axis) order.stride[axis] = step, step *= order.size[axis];
  const View views[2] = {a.out, order};
  const int64_t item = item_size(a.out.dtype), count = a.out.numel();
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* stride) {
    for (int64_t k = 0; k < n; ++k)
      write_number_bits(a.out.data, item, at[0] + k * stride[0], sequence_bits(a, at[1] + k, count));
  });
}

}  // namespace tally::TALLY_ISA
