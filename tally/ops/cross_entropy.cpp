#include "tally/ops/cross_entropy.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// Targets as a contiguous row of numbers, checked against V classes.
Tensor checked_targets(const Tensor& targets, int64_t classes, int64_t ignore_index) {
  const Tensor flat = flat_index(targets);
  const int64_t at = first_outside(flat, classes, &ignore_index);
  if (at >= 0)
    fail_index("cross_entropy: target {} at position {} is outside 0..{}", index_value(flat, at), at, classes - 1);
  return flat;
}

void backward_of(Backward& b, int64_t ignore_index, Reduction reduction) {
  Tensor logits = b.take_saved(0);
  const Tensor targets =
      checked_targets(b.saved(1), logits.size(-1), ignore_index);  // the caller may have changed them
  const Tensor grad = contiguous(b.grad());
  const bool in_place = logits.unique_storage() && logits.is_contiguous() && logits.category() == b.category(0);
  Tensor dlogits = in_place ? logits : b.empty(0);
  launch(&Kernels::cross_entropy_backward,
         CrossEntropyBackwardArgs{grad.raw(), logits.raw(), targets.raw(), b.saved(2).raw(), b.saved(3).raw(),
                                  dlogits.raw(), ignore_index, reduction});
  logits = {};
  b.add(0, std::move(dlogits));
}

}  // namespace

Tensor cross_entropy(Tensor logits, const Tensor& targets, int64_t ignore_index, Reduction reduction) {
  require_float("cross_entropy", logits);
  require_index("cross_entropy", targets);
  if (targets.device() != logits.device())
    fail("cross_entropy: devices {} and {} differ", name_of(logits.device()), name_of(targets.device()));
  Dims rows = logits.sizes();
  --rows.rank;
  if (rows != targets.sizes())
    fail("cross_entropy: targets of shape {} do not fit logits of shape {}", str(targets.sizes()), str(logits.sizes()));
  if (widens_f16(logits)) return cross_entropy(to(logits, DType::kF32), targets, ignore_index, reduction);
  const Tensor ids = checked_targets(targets, logits.size(-1), ignore_index);
  const DType dtype = logits.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const int64_t n = ids.numel();
  const bool none = reduction == Reduction::kNone;
  Tensor y = Tensor::empty(none ? targets.sizes() : Dims{}, dtype, logits.device());
  Tensor stats = Tensor::empty(Dims(n, 2), dtype, logits.device());
  Tensor count = Tensor::empty(Dims(1), dtype, logits.device());
  Tensor losses = none ? y : Tensor::empty(Dims(n), dtype, logits.device(), Category::kWorkspace);
  launch(&Kernels::cross_entropy, CrossEntropyArgs{logits.raw(), ids.raw(), stats.raw(), count.raw(), losses.raw(),
                                                   y.raw(), ignore_index, reduction});
  record(
      y, {logits}, {logits, ids, stats, count},
      [](Backward& b, int64_t ignore, Reduction r) { backward_of(b, ignore, r); }, ignore_index, reduction);
  return y;
}

}  // namespace tally
