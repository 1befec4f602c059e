#include "tally/ops/allclose_kernels.h"

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

void count_unequal(const CountUnequalArgs& c) {
  const View views[2] = {c.a, c.b};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += !is_close(c, at[0] + i * step[0], at[1] + i * step[1]);
    if (count != 0) __atomic_fetch_add(c.out.ptr<int64_t>(), count, __ATOMIC_RELAXED);
  });
}

}  // namespace tally::TALLY_ISA
