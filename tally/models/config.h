// What a decoder is, as data. One struct describes GPT-2 (learned positions, LayerNorm, GELU, biases, tied) and Llama
// (RoPE, RMSNorm, SwiGLU, grouped queries, untied) and what lies between.
#pragma once

#include <string>

#include "tally/base/fields.h"

namespace tally {

struct ModelConfig {
  int64_t vocab_size = 256;
  int64_t context = 64;
  int64_t n_layers = 2;
  int64_t d_model = 64;
  int64_t n_heads = 4;
  int64_t n_kv_heads = 4;
  int64_t d_ff = 256;
  std::string norm = "rms";  // rms, layer
  double norm_eps = 1e-5;
  std::string activation = "swiglu";  // swiglu, gelu, gelu_tanh, relu, silu
  std::string position = "rope";      // rope, learned, none
  double rope_theta = 10000;
  std::string rope_style = "half_split";  // half_split, interleaved
  bool bias = false;
  bool tied = false;
  double dropout = 0;
  double init_std = 0.02;     // of matrices and tables; residual outputs get init_std / sqrt(2 layers)
  std::string dtype = "f32";  // of the parameters: f32, bf16, f64

  void fields(Fields& f);
  int64_t head_dim() const { return d_model / n_heads; }
  // Throws Error naming the key: heads that do not divide, an odd head_dim with RoPE, sizes out of range.
  void check() const;
};

// Parameters by the closed form, for tests and for configs too large to build.
int64_t parameter_count(const ModelConfig& c);

// Named configurations; throws Error with the nearest name.
ModelConfig preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace tally
