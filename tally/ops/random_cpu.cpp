// Draws on the CPU, row by row.
#include "tally/ops/random_kernels.h"

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

void random(const RandomArgs& a) {
  View order = a.out;  // the contiguous view of the same shape: its offset is the logical index
  int64_t step = 1;
  for (int axis = order.size.rank - 1; axis >= 0; --axis) order.stride[axis] = step, step *= order.size[axis];
  const View views[3] = {a.out, order, a.has_p() ? a.p : a.out};
  const int64_t item = item_size(a.out.dtype);
  const bool words = a.words();
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* stride) {
    Random4 r = {};
    for (int64_t k = 0; k < n; ++k) {
      const uint64_t i = static_cast<uint64_t>(at[1] + k);
      if (!words) {
        r = philox(a.seed, a.stream, i);
      } else if (k == 0 || i % 4 == 0) {
        r = philox(a.seed, a.stream, i / 4);
      }
      const double p = a.has_p() ? read_number(a.p.data, a.p.dtype, at[2] + k * stride[2]) : a.a;
      write_number_bits(a.out.data, item, at[0] + k * stride[0], random_bits(a, r, r.v[i % 4], p));
    }
  });
}

}  // namespace tally::TALLY_ISA
