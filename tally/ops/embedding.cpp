#include "tally/ops/embedding.h"

#include <limits>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Tensor checked_ids(const Tensor& ids, int64_t rows) {
  const Tensor flat = flat_index(ids);
  if (const int64_t at = first_outside(flat, rows); at >= 0)
    fail_index("embedding: id {} at position {} is not one of the {} rows of the table", index_value(flat, at), at,
               rows);
  return flat;
}

// (..., d) of a table of `rows` rows, plain or packed.
Tensor look_up(const Tensor& ids, const Tensor& table, int64_t rows, Tensor& flat) {
  require_float("embedding", table);
  require_index("embedding", ids);
  if (ids.dim() == kMaxRank) fail("embedding: ids of shape {} have too many axes", str(ids.sizes()));
  if (ids.device() != table.device())
    fail("embedding: devices {} and {} differ", name_of(ids.device()), name_of(table.device()));
  const int64_t d = table.size(1);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (ids.numel() > kMost || rows >= kMost)
    fail("embedding: ids {} and table {} are more than 2^31 - 1", str(ids.sizes()), str(table.sizes()));
  flat = checked_ids(ids, rows);
  Dims size = ids.sizes();
  size[size.rank++] = d;
  Tensor y = Tensor::empty(size, table.dtype(), table.device());
  const Dims pair(ids.numel(), d);
  launch(&Kernels::embedding, EmbeddingArgs{flat.raw(), table.raw(), y.alias(pair, contiguous_strides(pair), 0).raw()});
  return y;
}

}  // namespace

Tensor embedding_packed(const Tensor& ids, const Tensor& packed, int64_t rows) {
  if (packed.dim() != 3 || packed.size(0) * packed.size(2) < rows || !packed.is_contiguous())
    fail("embedding: {} is no packed table of {} rows", str(packed.sizes()), rows);
  Tensor flat;
  return look_up(ids, packed, rows, flat);
}

Tensor embedding(const Tensor& ids, const Tensor& table) {
  if (table.dim() != 2) fail("embedding: takes a table of shape (V, d), not {}", str(table.sizes()));
  Tensor flat;
  Tensor y = look_up(ids, table, table.size(0), flat);
  record(y, {table}, {flat}, [](Backward& b) {
    const int64_t v = b.input(0).size[0];
    const Tensor positions = checked_ids(b.saved(0), v);  // the caller may have changed them since
    const int64_t n = positions.numel();
    Tensor grad = reshape(b.take_grad(), Dims(n, b.input(0).size[1]));
    bool add = false;
    const bool widens = widens_f16(grad), narrow = widens && b.gradient_dtype(0) == grad.dtype();
    if (widens) grad = to(grad, DType::kF32);
    Tensor dtable =
        narrow ? Tensor::empty(b.input(0).size, DType::kF32, grad.device(), Category::kWorkspace) : b.target(0, add);
    const Tensor scratch = Tensor::empty(Dims(embedding_scratch(n, v, target_of(grad.device()))), DType::kI32,
                                         grad.device(), Category::kWorkspace);
    launch(&Kernels::embedding_backward,
           EmbeddingBackwardArgs{grad.raw(), positions.raw(), dtable.raw(), scratch.raw(), add});
    b.add(0, narrow ? to(dtable, DType::kF16) : std::move(dtable), add);
  });
  return y;
}

}  // namespace tally
