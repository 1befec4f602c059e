// Functions of layers, whose weights may be None, and losses; tally.nn.functional shows them under PyTorch's names.
#include "python/bind.h"
#include "tally/ops/attention.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/embedding.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"

namespace tally::py {
namespace {

Reduction reduction_of(const std::string& name) {
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  if (name == "none") return Reduction::kNone;
  fail_value("reduction '{}'; it is mean, sum or none", name);
}

void bind_layers(nb::module_& m) {
  m.def(
      "linear", [](const Tensor& x, const Tensor& w, const Tensor* b) { return linear(x, w, or_none(b)); }, Release(),
      "input"_a, "weight"_a, "bias"_a = nb::none(),
      "x W^T + b: x (..., in), weight (out, in), bias (out) -> (..., out).");
  m.def(
      "layer_norm",
      [](const Tensor& x, const Dims& shape, const Tensor* w, const Tensor* b, double eps) {
        if (shape.rank != 1 || x.dim() < 1 || shape[0] != x.sizes()[x.dim() - 1])
          fail("layer_norm: normalized_shape {} for shape {}; the last axis is normalised", str(shape), str(x.sizes()));
        return layer_norm(x, or_none(w), or_none(b), eps);
      },
      Release(), "input"_a, "normalized_shape"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5,
      "(x - mean) / sqrt(variance + eps) * weight + bias over the last axis.");
  m.def(
      "rms_norm",
      [](const Tensor& x, const Dims& shape, const Tensor* w, double eps) {
        if (shape.rank != 1 || x.dim() < 1 || shape[0] != x.sizes()[x.dim() - 1])
          fail("rms_norm: normalized_shape {} for shape {}; the last axis is normalised", str(shape), str(x.sizes()));
        return rms_norm(x, or_none(w), eps);
      },
      Release(), "input"_a, "normalized_shape"_a, "weight"_a = nb::none(), "eps"_a = 1e-5,
      "x / sqrt(mean(x^2) + eps) * weight over the last axis.");
  m.def(
      "embedding", [](const Tensor& ids, const Tensor& w) { return embedding(ids, w); }, Release(), "input"_a,
      "weight"_a, "Rows of weight (V, d) by ids (...) -> (..., d). IndexError for an id outside.");
  m.def(
      "causal_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, bool causal, std::optional<double> scale) {
        return attention(q, k, v, causal, scale);
      },
      Release(), "q"_a, "k"_a, "v"_a, "causal"_a = true, "scale"_a = nb::none(),
      "Attention in blocks: q (B, Tq, H, D), k and v (B, Tk, Hkv, D) -> (B, Tq, H, D); memory is linear in T.");
}

void bind_losses(nb::module_& m) {
  m.def(
      "cross_entropy",
      [](const Tensor& x, const Tensor& targets, int64_t ignore_index, const std::string& reduction) {
        return cross_entropy(x, targets, ignore_index, reduction_of(reduction));
      },
      Release(), "input"_a, "target"_a, "ignore_index"_a = -100, "reduction"_a = "mean",
      "-log softmax(input)[target] in nats: input (..., V), target (...) of integers.");
}

}  // namespace

void bind_nn(nb::module_& m) {
  bind_layers(m);
  bind_losses(m);
}

}  // namespace tally::py
