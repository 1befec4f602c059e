#include "tally/nn/modules.h"

#include <cmath>

#include "tally/base/error.h"
#include "tally/ops/dropout.h"
#include "tally/ops/embedding.h"
#include "tally/ops/matmul.h"

namespace tally {

Linear::Linear(Init& init, int64_t in, int64_t out, bool with_bias, double std)
    : weight(init.normal(Dims(out, in), std)), out(out) {
  if (with_bias) bias = init.constant(Dims(out), 0.0);
}
Linear::Linear(Init& init, int64_t in, int64_t out, bool with_bias)
    : Linear(init, in, out, with_bias, 1 / std::sqrt(static_cast<double>(in))) {}
Tensor Linear::operator()(const Tensor& x) const {
  return packed.defined() ? linear_packed(x, packed, out, bias) : linear(x, weight, bias);
}
void Linear::pack() {
  if (!weight.defined()) return;
  packed = pack_weight(weight);
  weight = {};
}
std::vector<Tensor> project(const Tensor& x, const std::vector<const Linear*>& all) {
  std::vector<LinearWeight> weights;
  for (const Linear* l : all) {
    if (l->packed.defined()) break;
    weights.push_back({l->weight, l->bias});
  }
  if (weights.size() == all.size()) return linear_many(x, weights);
  std::vector<Tensor> y;
  for (const Linear* l : all) y.push_back((*l)(x));
  return y;
}

Embedding::Embedding(Init& init, int64_t count, int64_t d, double std)
    : weight(init.normal(Dims(count, d), std)), count(count) {}
Tensor Embedding::operator()(const Tensor& ids) const {
  return packed.defined() ? embedding_packed(ids, packed, count) : embedding(ids, weight);
}
Tensor Embedding::head(const Tensor& x) const {
  return packed.defined() ? linear_packed(x, packed, count) : linear(x, weight);
}
void Embedding::pack() {
  packed = pack_weight(weight);
  weight = {};
}

Norm::Norm(Init& init, NormKind kind, int64_t d, bool with_bias, double eps)
    : kind(kind), eps(eps), weight(init.constant(Dims(d), 1.0)) {
  if (kind == NormKind::kLayer && with_bias) bias = init.constant(Dims(d), 0.0);
}
Tensor Norm::operator()(const Tensor& x) const {
  return kind == NormKind::kLayer ? layer_norm(x, weight, bias, eps) : rms_norm(x, weight, eps);
}
ResidualNorm Norm::operator()(const Tensor& x, const Tensor& residual) const {
  return kind == NormKind::kLayer ? residual_layer_norm(x, residual, weight, bias, eps)
                                  : residual_rms_norm(x, residual, weight, eps);
}

Dropout::Dropout(float probability, Generator& g) : p(probability), generator(&g) {
  if (!(p >= 0.0f && p <= 1.0f)) fail_value("Dropout: p = {} is not in [0, 1]", p);
}
Tensor Dropout::operator()(const Tensor& x) const {
  if (!training || p == 0.0f) return x;
  return dropout(x, p, generator->initial_seed(), generator->next_stream());
}

}  // namespace tally
