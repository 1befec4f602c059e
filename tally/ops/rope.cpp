#include "tally/ops/rope.h"

#include <cmath>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/cache.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

Tensor dense_rows(const Tensor& x) {
  const int last = x.dim() - 1;
  if (x.sizes()[last] <= 1 || x.strides()[last] == 1) return x.detach();
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  copy_(y, x);
  return y;
}

Tensor rope_table(int64_t positions, int64_t head_dim, double theta, int64_t first_position, Device device) {
  if (head_dim < 0 || head_dim % 2 != 0) fail("rope_table: head_dim {} is not even", head_dim);
  if (positions < 0 || first_position < 0 || positions > INT64_MAX - first_position)
    fail("rope_table: {} positions from {} on: neither may be negative or beyond 63 bits", positions, first_position);
  if (!(theta > 0) || !std::isfinite(theta)) fail("rope_table: theta {} is not a positive number", theta);
  Tensor table = Tensor::empty({positions, head_dim / 2, 2}, DType::kF32, device, Category::kWorkspace);
  launch(&Kernels::rope_table, RopeTableArgs{table.raw(), theta, first_position});
  return table;
}

namespace {

void check(const Tensor& x, const Tensor& table, int64_t first_row) {
  require_float("rope", x);
  if (x.dim() != 4) fail("rope: x has shape {}, not (B, T, H, D)", str(x.sizes()));
  if (!table.defined() || table.dtype() != DType::kF32 || table.dim() != 3 || table.size(2) != 2)
    fail("rope: the table must be f32 of shape (positions, D/2, 2), as rope_table makes it");
  if (table.size(1) * 2 != x.size(3))
    fail("rope: head size {} of x and {} of the table differ", x.size(3), table.size(1) * 2);
  if (first_row < 0 || first_row > table.size(0) || x.size(1) > table.size(0) - first_row)
    fail("rope: {} positions from row {} on are outside the table of {} rows; make a longer one", x.size(1), first_row,
         table.size(0));
  if (x.device() != table.device())
    fail("rope: devices {} and {} differ", name_of(x.device()), name_of(table.device()));
}

}  // namespace

Tensor rope_rows(const Tensor& x, const Tensor& table, int64_t first_row) {
  check(x, table, first_row);
  return table.alias({x.size(1), table.size(1), 2}, table.strides(),
                     table.storage_offset() + first_row * table.stride(0));
}

Tensor rope(const Tensor& x, const Tensor& table, int64_t first_row, RopeStyle style, const Tensor& position) {
  const Tensor rows = rope_rows(x, table, first_row);
  if (x.dtype() == DType::kF16) return to(rope(to(x, DType::kF32), table, first_row, style, position), x.dtype());
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  launch(&Kernels::rope, RopeArgs{dense_rows(x).raw(), rows.raw(), y.raw(), style, false,
                                  position_view("rope", position, x.device()), first_row});
  record(
      y, {x}, {rows},
      [](Backward& b, RopeStyle s) {
        Tensor dx = b.empty(0);
        launch(&Kernels::rope, RopeArgs{dense_rows(b.grad()).raw(), b.saved(0).raw(), dx.raw(), s, true});
        b.add(0, dx);
      },
      style);
  return y;
}

}  // namespace tally
