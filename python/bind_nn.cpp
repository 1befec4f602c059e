// Functions of layers, whose weights may be None, and losses; tally.nn.functional shows them under PyTorch's names.
#include "python/bind.h"
#include "tally/ops/dropout.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/losses.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/random.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

Reduction reduction_of(const std::string& name) {
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  if (name == "none") return Reduction::kNone;
  fail_value("reduction '{}'; it is mean, sum or none", name);
}

// The axes that a norm is over; here the last one only.
void check_norm(const char* op, const Tensor& x, const Dims& shape) {
  if (shape.rank != 1 || x.dim() < 1 || shape[0] != x.sizes()[x.dim() - 1])
    fail("{}: normalized_shape {} for a tensor of shape {}; the last axis is normalised", op, str(shape),
         str(x.sizes()));
}

void bind_layers(Ops& o) {
  o.function(
      "linear", [](const Tensor& x, const Tensor& w, const Tensor* b) { return linear(x, w, or_none(b)); },
      "x W^T + b: x (..., in), weight (out, in), bias (out) -> (..., out).", "input"_a, "weight"_a,
      "bias"_a = nb::none());
  o.function(
      "layer_norm",
      [](const Tensor& x, const Dims& shape, const Tensor* w, const Tensor* b, double eps) {
        check_norm("layer_norm", x, shape);
        return layer_norm(x, or_none(w), or_none(b), eps);
      },
      "(x - mean) / sqrt(variance + eps) * weight + bias over the last axis (Ba et al. 2016).", "input"_a,
      "normalized_shape"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5);
  o.function(
      "rms_norm",
      [](const Tensor& x, const Dims& shape, const Tensor* w, double eps) {
        check_norm("rms_norm", x, shape);
        return rms_norm(x, or_none(w), eps);
      },
      "x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019).", "input"_a,
      "normalized_shape"_a, "weight"_a = nb::none(), "eps"_a = 1e-5);
  o.function(
      "embedding", [](const Tensor& ids, const Tensor& w) { return embedding(ids, w); },
      "Rows of weight (V, d) by ids (...) -> (..., d). IndexError for an id outside.", "input"_a, "weight"_a);
  o.function(
      "dropout",
      [](const Tensor& x, double p) {
        const Draw d = next_draw();
        return dropout(x, static_cast<float>(p), d.seed, d.stream);
      },
      "With probability p each element is 0, the others are divided by 1 - p.", "input"_a, "p"_a);
  o.function("swiglu", swiglu, "silu(gate) * up (Shazeer 2020).", "gate"_a, "up"_a);
  o.both(
      "log_softmax",
      [](const Tensor& x, int dim, std::optional<DType> t) { return log_softmax(t ? to(x, *t) : x, dim); },
      "log(softmax(x)) along dim.", "dim"_a, "dtype"_a = nb::none());
}

void bind_losses(Ops& o) {
  o.function(
      "mse_loss",
      [](const Tensor& x, const Tensor& y, const std::string& r) { return mse_loss(x, y, reduction_of(r)); },
      "The mean of squared differences.", "input"_a, "target"_a, "reduction"_a = "mean");
  o.function(
      "cross_entropy",
      [](const Tensor& x, const Tensor& y, int64_t ignore_index, const std::string& r, double smoothing) {
        return cross_entropy_loss(x, y, ignore_index, reduction_of(r), smoothing);
      },
      "-log softmax(input)[target] in nats: input (N, C, ..), target (N, ..) of integers. IndexError for a target that "
      "is no class.",
      "input"_a, "target"_a, "ignore_index"_a = -100, "reduction"_a = "mean", "label_smoothing"_a = 0.0);
  o.function(
      "nll_loss",
      [](const Tensor& x, const Tensor& y, int64_t ignore_index, const std::string& r) {
        return nll_loss(x, y, ignore_index, reduction_of(r));
      },
      "The same of log-probabilities.", "input"_a, "target"_a, "ignore_index"_a = -100, "reduction"_a = "mean");
  o.function(
      "binary_cross_entropy_with_logits",
      [](const Tensor& x, const Tensor& y, const std::string& r, const Tensor* w) {
        return binary_cross_entropy_with_logits(x, y, reduction_of(r), or_none(w));
      },
      "-(t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) without overflow.", "input"_a, "target"_a,
      "reduction"_a = "mean", "pos_weight"_a = nb::none());
  o.function(
      "kl_div",
      [](const Tensor& x, const Tensor& y, const std::string& r, bool log_target) {
        if (r == "batchmean") {
          const Tensor sum = kl_div(x, y, Reduction::kSum, log_target);
          return div(sum, Scalar(x.dim() > 0 ? x.sizes()[0] : int64_t{1}));
        }
        return kl_div(x, y, reduction_of(r), log_target);
      },
      "target * (log(target) - input), input log-probabilities.", "input"_a, "target"_a, "reduction"_a = "mean",
      "log_target"_a = false);
}

}  // namespace

void bind_nn(Ops& o) {
  bind_layers(o);
  bind_losses(o);
}

}  // namespace tally::py
