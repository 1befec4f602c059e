#include "tally/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tally/base/error.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/linear_cross_entropy.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Activation activation_of(const std::string& name) {
  static const std::map<std::string, Activation> all = {{"swiglu", Activation::kSwiglu},
                                                        {"gelu", Activation::kGelu},
                                                        {"gelu_tanh", Activation::kGeluTanh},
                                                        {"relu", Activation::kRelu},
                                                        {"silu", Activation::kSilu}};
  return all.at(name);
}

// One stream a dropout site (and step, which the kernel adds), so that no two masks share numbers.
uint64_t dropout_stream(int64_t site) {
  return static_cast<uint64_t>(RandomStream::kDropout) + static_cast<uint64_t>(site);
}

// The residual stream is x + branch; the next norm adds them up on its way.
struct ResidualStream {
  Tensor x, branch;  // no branch before the first block
  Tensor normed(const Norm& norm) {
    if (!branch.defined()) return norm(x);
    ResidualNorm r = norm(x, std::exchange(branch, {}));
    x = std::move(r.sum);
    return std::move(r.y);
  }
};

}  // namespace

Decoder::Decoder(const ModelConfig& c, uint64_t seed, Device device, bool values) : config_(c) {
  c.check();
  Init init(seed, device, dtype_from_name(c.dtype), values);
  const double std = c.init_std, out_std = std / std::sqrt(2.0 * static_cast<double>(std::max<int64_t>(1, c.n_layers)));
  const NormKind norm = c.norm == "layer" ? NormKind::kLayer : NormKind::kRms;
  embed_ = Embedding(init, c.vocab_size, c.d_model, std);
  if (c.position == "learned") position_ = Embedding(init, c.context, c.d_model, std);
  for (int64_t i = 0; i < c.n_layers; ++i) {
    Block b;
    b.attn_norm = Norm(init, norm, c.d_model, c.bias, c.norm_eps);
    b.attn = Attention(init, c.d_model, c.n_heads, c.n_kv_heads, c.head_dim(), c.bias, std, out_std);
    b.mlp_norm = Norm(init, norm, c.d_model, c.bias, c.norm_eps);
    b.mlp = Mlp(init, activation_of(c.activation), c.d_model, c.d_ff, c.bias, std, out_std);
    blocks_.push_back(std::move(b));
  }
  norm_ = Norm(init, norm, c.d_model, c.bias, c.norm_eps);
  if (!c.tied) head_ = Linear(init, c.d_model, c.vocab_size, false, std);
  if (c.position == "rope") {
    rope_.table = rope_table(c.context, c.head_dim(), c.rope_theta, 0, device);
    rope_.style = c.rope_style == "interleaved" ? RopeStyle::kInterleaved : RopeStyle::kHalfSplit;
  }
}

void Decoder::visit(Params& p) {
  p.child("embed", embed_);
  p.child("position", position_);
  for (size_t i = 0; i < blocks_.size(); ++i) p.child("blocks." + std::to_string(i), blocks_[i]);
  p.child("norm", norm_);
  p.child("head", head_);
}

std::unique_ptr<KvCache> Decoder::new_cache(int64_t batch, int64_t capacity) const {
  return std::make_unique<KvCache>(config_.n_layers, batch, capacity, config_.n_kv_heads, config_.head_dim(),
                                   norm_.weight.dtype(), norm_.weight.device());
}

Tensor Decoder::drop(const Tensor& x, const ForwardContext& context, int64_t site) const {
  if (!context.training || config_.dropout == 0) return x;
  return dropout(x, config_.dropout, context.seed, dropout_stream(site), context.step);
}

Tensor Decoder::hidden(const Tensor& ids, const ForwardContext& context) {
  if (ids.dim() != 2) fail("a model takes ids of shape (batch, time), not {}", str(ids.sizes()));
  const int64_t t = ids.size(1), first = context.cache ? context.cache->length() : 0;
  if (first + t > config_.context)
    fail("{} positions are beyond the model's context of {}", first + t, config_.context);
  ResidualStream stream;
  {
    ScopeGuard scope("embed");
    Tensor x = embed_(ids);
    // One token after others takes its row by the cache's position, which is on the device.
    if (position_.weight.defined())
      x = add(x, context.cache && t == 1 ? position_(context.cache->position())
                                         : slice(position_.weight, 0, first, first + t));
    stream.x = drop(x, context, 0);
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    const int64_t layer = static_cast<int64_t>(i);
    ScopeGuard block("blocks." + std::to_string(i));
    {
      ScopeGuard scope("attn");
      stream.branch = drop(b.attn(stream.normed(b.attn_norm), rope_, context.cache, layer), context, 2 * layer + 1);
    }
    {
      ScopeGuard scope("mlp");
      stream.branch = drop(b.mlp(stream.normed(b.mlp_norm)), context, 2 * layer + 2);
    }
  }
  if (context.cache) context.cache->advance(t);
  ScopeGuard scope("head");
  if (context.last_only)
    for (Tensor* part : {&stream.x, &stream.branch})
      if (part->defined()) *part = slice(*part, 1, t - 1, t);
  return stream.normed(norm_);
}

Tensor Decoder::head(const Tensor& x) const {
  ScopeGuard scope("head");
  return config_.tied ? embed_.head(x) : head_(x);
}

Tensor Decoder::logits(const Tensor& ids, const ForwardContext& context) { return head(hidden(ids, context)); }

Tensor Decoder::loss(const Tensor& ids, const Tensor& targets, const ForwardContext& context) {
  Tensor x = hidden(ids, context);
  const Tensor& weight = config_.tied ? embed_.weight : head_.weight;  // undefined when packed
  const int64_t rows = x.size(0) * x.size(1);
  if (weight.defined() && head_chunk_rows(rows, weight) < rows) {
    ScopeGuard scope("head");
    return linear_cross_entropy(std::move(x), weight, targets);
  }
  Tensor y = head(std::exchange(x, {}));
  ScopeGuard scope("loss");
  return cross_entropy(std::move(y), targets);
}

void Decoder::pack_weights() {
  // On a card the library lays weights out itself.
  if (norm_.weight.dtype() == DType::kF64 || target_of(norm_.weight.device()) == DeviceKind::kCuda) return;
  for (Block& b : blocks_)
    for (Linear* l : {&b.attn.q, &b.attn.k, &b.attn.v, &b.attn.o, &b.mlp.gate, &b.mlp.up, &b.mlp.down}) l->pack();
  config_.tied ? embed_.pack() : head_.pack();
}

std::unique_ptr<Model> make_model(const ModelConfig& config, uint64_t seed, Device device, bool values) {
  return std::make_unique<Decoder>(config, seed, device, values);
}

}  // namespace tally
