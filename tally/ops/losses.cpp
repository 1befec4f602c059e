#include "tally/ops/losses.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  return reduction == Reduction::kNone ? losses : reduction == Reduction::kSum ? sum(losses) : mean(losses);
}

// Of one shape; weight is defined, without a gradient.
Tensor elements(LossOp op, const Tensor& x, const Tensor& target, const Tensor& weight) {
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  launch(&Kernels::loss, LossArgs{x.raw(), target.raw(), broadcast_view(weight, x.sizes()).raw(), y.raw(), op});
  record(
      y, {x, target}, {x, target, weight},
      [](Backward& b, LossOp f) {
        const View w = broadcast_view(b.saved(2), b.grad().sizes()).raw();
        for (const bool by_target : {false, true}) {
          if (!b.needs(by_target)) continue;
          Tensor d = b.empty(by_target);
          launch(&Kernels::loss_backward,
                 LossBackwardArgs{b.grad().raw(), b.saved(0).raw(), b.saved(1).raw(), w, d.raw(), f, by_target});
          b.add(by_target, std::move(d));
        }
      },
      op);
  return y;
}

Tensor broadcast_loss(const char* name, LossOp op, const Tensor& input, const Tensor& target, Reduction reduction) {
  require_same(name, input, target);
  const Dims size = broadcast_shape(name, input.sizes(), target.sizes());
  const Tensor x = input.sizes() == size ? input : expand(input, size);
  const Tensor t = target.sizes() == size ? target : expand(target, size);
  return reduced(elements(op, x, t, x.detach()), reduction);
}

// ---- classes

// Classes are axis 1 (the only one of a single row); here they come last.
Tensor classes_last(Tensor x) {
  for (int axis = 1; axis + 1 < x.dim(); ++axis) x = transpose(x, axis, axis + 1);
  return x;
}

void check_classes(const char* name, const Tensor& input, const Tensor& target) {
  require_float(name, input);
  require_index(name, target);
  if (target.device() != input.device())
    fail("{}: devices {} and {} differ", name, name_of(input.device()), name_of(target.device()));
  Dims rows;
  for (int i = 0; i < input.dim(); ++i)
    if (i != (input.dim() > 1 ? 1 : 0)) rows[rows.rank++] = input.sizes()[i];
  if (input.dim() == 0 || rows != target.sizes())
    fail_value("{}: expected a target of shape {} for an input of shape {}, not {}", name, str(rows),
               str(input.sizes()), str(target.sizes()));
}

// Throws for a class number outside [0, classes) that is not ignored; a card tells where it stands.
void check_numbers(const char* name, const Tensor& flat, int64_t classes, int64_t ignore_index) {
  int64_t at = first_outside(flat, classes, &ignore_index);
  Tensor numbers = flat;
  if (target_of(flat.device()) == DeviceKind::kCuda && flat.numel() > 0) {
    const Tensor found = Tensor::empty(Dims(1), DType::kI64, flat.device(), Category::kWorkspace);
    launch(&Kernels::find_outside, FindOutsideArgs{flat.raw(), found.raw(), classes, ignore_index});
    if (flat.device().kind == DeviceKind::kMeta) return;
    at = static_cast<int64_t>(found.item());
    if (at >= 0) numbers = to(flat, kCpu);
  }
  if (at >= 0)
    fail_index("{}: target {} at position {} is outside 0..{}", name, index_value(numbers, at), at, classes - 1);
}

// Losses of all rows, divided by their number with kMean. logp has its classes last.
Tensor likelihood(const Tensor& logp, const Tensor& target, int64_t ignore_index, Reduction reduction,
                  double smoothing) {
  const Tensor ids = flat_index(target);
  const DType dtype = logp.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  Tensor y = Tensor::empty(target.sizes(), dtype, logp.device());
  const Tensor count = Tensor::empty(Dims{}, dtype, logp.device());
  launch(&Kernels::nll, NllArgs{logp.raw(), ids.raw(), y.raw(), count.raw(), ignore_index, smoothing});
  record(
      y, {logp}, {ids},
      [](Backward& b, int64_t ignore, double share) {
        const Tensor g = contiguous(b.grad());
        Tensor d = b.empty(0);
        launch(&Kernels::nll_backward, NllBackwardArgs{g.raw(), b.saved(0).raw(), d.raw(), ignore, share});
        b.add(0, std::move(d));
      },
      ignore_index, smoothing);
  if (reduction == Reduction::kNone) return y;
  return reduction == Reduction::kSum ? sum(y) : div(sum(y), count);
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return broadcast_loss("mse_loss", LossOp::kMse, input, target, reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction, bool log_target) {
  return broadcast_loss("kl_div", log_target ? LossOp::kKlLog : LossOp::kKl, input, target, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, Reduction reduction,
                                        const Tensor& pos_weight) {
  constexpr const char* kName = "binary_cross_entropy_with_logits";
  require_same(kName, input, target);
  if (input.sizes() != target.sizes())
    fail_value("{}: target size {} must be the same as input size {}", kName, str(target.sizes()), str(input.sizes()));
  Tensor weight = pos_weight;
  if (weight.defined()) {
    require_same(kName, input, weight);
    broadcast_view(weight, input.sizes());  // or an error
    weight = weight.detach();
  } else {
    weight = Tensor::empty(Dims{}, input.dtype(), input.device());
    fill_(weight, 1.0);
  }
  return reduced(elements(LossOp::kBce, input, target, weight), reduction);
}

Tensor nll_loss(const Tensor& input, const Tensor& target, int64_t ignore_index, Reduction reduction) {
  check_classes("nll_loss", input, target);
  const Tensor logp = classes_last(input);
  check_numbers("nll_loss", flat_index(target), logp.size(-1), ignore_index);
  return likelihood(logp, target, ignore_index, reduction, 0);
}

Tensor cross_entropy_loss(const Tensor& input, const Tensor& target, int64_t ignore_index, Reduction reduction,
                          double label_smoothing) {
  check_classes("cross_entropy_loss", input, target);
  if (!(label_smoothing >= 0 && label_smoothing <= 1))
    fail("cross_entropy_loss: label_smoothing is {}; it must be between 0 and 1", label_smoothing);
  Tensor logits = classes_last(input);
  check_numbers("cross_entropy_loss", flat_index(target), logits.size(-1), ignore_index);
  if (label_smoothing == 0) return cross_entropy(std::move(logits), target, ignore_index, reduction);
  return likelihood(log_softmax(logits, -1), target, ignore_index, reduction, label_smoothing);
}

}  // namespace tally
