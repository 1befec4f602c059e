#include "tally/models/config.h"

#include "tally/base/error.h"

namespace tally {

void ModelConfig::fields(Fields& f) {
  f("vocab_size", vocab_size, "rows of the token table", 1, 1 << 24);
  f("context", context, "longest sequence", 1, 1 << 24);
  f("n_layers", n_layers, "blocks", 0, 4096);
  f("d_model", d_model, "width of the residual stream", 1, 1 << 20);
  f("n_heads", n_heads, "query heads", 1, 4096);
  f("n_kv_heads", n_kv_heads, "key and value heads; divides n_heads", 1, 4096);
  f("d_ff", d_ff, "width of the feed-forward block", 1, 1 << 22);
  f("norm", norm, "normalisation", {"rms", "layer"});
  f("norm_eps", norm_eps, "added to the variance", 0, 1);
  f("activation", activation, "of the feed-forward block; swiglu is gated",
    {"swiglu", "gelu", "gelu_tanh", "relu", "silu"});
  f("position", position, "how positions enter", {"rope", "learned", "none"});
  f("rope_theta", rope_theta, "base of the rotary frequencies", 1, 1e12);
  f("rope_style", rope_style, "which elements rotate together", {"half_split", "interleaved"});
  f("bias", bias, "biases in linear layers and LayerNorm");
  f("tied", tied, "the head uses the token table");
  f("dropout", dropout, "probability after the embedding and in each residual branch", 0, 1);
  f("init_std", init_std, "standard deviation of the initial matrices and tables", 0, 10);
  f("dtype", dtype, "of the parameters", {"f32", "bf16", "f64"});
}

void ModelConfig::check() const {
  if (d_model % n_heads != 0) fail("model.d_model {} is not a multiple of model.n_heads {}", d_model, n_heads);
  if (n_heads % n_kv_heads != 0) fail("model.n_heads {} is not a multiple of model.n_kv_heads {}", n_heads, n_kv_heads);
  if (position == "rope" && head_dim() % 2 != 0)
    fail("model.d_model / model.n_heads is {}: RoPE needs an even head width", head_dim());
  // Larger than any machine: stop before sizes overflow.
  if (static_cast<double>(d_model) * static_cast<double>(std::max(vocab_size, d_ff)) > 1e15)
    fail("model.d_model {} with vocab_size {} and d_ff {} is too large", d_model, vocab_size, d_ff);
}

int64_t parameter_count(const ModelConfig& c) {
  const int64_t d = c.d_model, kv = c.n_kv_heads * c.head_dim();
  const auto linear = [&](int64_t in, int64_t out) { return in * out + (c.bias ? out : 0); };
  const int64_t norm = c.norm == "layer" && c.bias ? 2 * d : d;
  const int64_t attention = linear(d, d) + 2 * linear(d, kv) + linear(d, d);
  const int64_t mlp = (c.activation == "swiglu" ? 2 : 1) * linear(d, c.d_ff) + linear(c.d_ff, d);
  const int64_t embeddings = c.vocab_size * d * (c.tied ? 1 : 2) + (c.position == "learned" ? c.context * d : 0);
  return c.n_layers * (attention + mlp + 2 * norm) + norm + embeddings;
}

}  // namespace tally
