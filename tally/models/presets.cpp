// Presets are functions on a base config. A new one is a row of kPresets.
#include <cmath>

#include "tally/base/error.h"
#include "tally/models/config.h"

namespace tally {

namespace {

// Radford et al. 2019; nanoGPT's vocabulary of 50,257 is GPT-2's own.
ModelConfig gpt2(int64_t layers, int64_t d, int64_t heads) {
  ModelConfig c;
  c.vocab_size = 50257, c.context = 1024;
  c.n_layers = layers, c.d_model = d, c.n_heads = heads, c.n_kv_heads = heads, c.d_ff = 4 * d;
  c.norm = "layer", c.activation = "gelu_tanh", c.position = "learned", c.bias = true, c.tied = true;
  return c;
}

// Touvron et al. 2023; HF's half-split RoPE.
ModelConfig llama(int64_t layers, int64_t d, int64_t heads, int64_t kv, int64_t ff, int64_t vocab, int64_t context) {
  ModelConfig c;
  c.vocab_size = vocab, c.context = context;
  c.n_layers = layers, c.d_model = d, c.n_heads = heads, c.n_kv_heads = kv, c.d_ff = ff;
  return c;
}

// GPT-2's 0.02 at its width of 768, kept in proportion to 1 / sqrt(d) for the small models.
double init_std_at(int64_t d) { return 0.02 * std::sqrt(768.0 / static_cast<double>(d)); }

ModelConfig tiny() {
  ModelConfig c = llama(2, 64, 4, 4, 256, 256, 64);
  c.init_std = init_std_at(c.d_model);
  return c;
}

// nanoGPT's shakespeare-char at the size of its CPU example: no biases, GELU with erf.
ModelConfig character() {
  ModelConfig c = gpt2(4, 128, 4);
  c.vocab_size = 65, c.context = 64, c.bias = false, c.activation = "gelu";
  c.init_std = init_std_at(c.d_model);
  return c;
}

// What ./run demo trains: a small Llama that learns words in minutes on two cores.
ModelConfig demo() {
  ModelConfig c = llama(4, 256, 4, 2, 704, 2048, 128);
  c.init_std = init_std_at(c.d_model);
  return c;
}

// CS336 assignment 1: interleaved RoPE.
ModelConfig cs336_tinystories() {
  ModelConfig c = llama(4, 512, 16, 16, 1344, 10000, 256);
  c.rope_style = "interleaved";
  return c;
}

struct Preset {
  const char* name;
  ModelConfig (*make)();
};

constexpr Preset kPresets[] = {
    {"tiny", tiny},
    {"demo", demo},
    {"char", character},
    {"gpt2", [] { return gpt2(12, 768, 12); }},
    {"gpt2-medium", [] { return gpt2(24, 1024, 16); }},
    {"gpt2-large", [] { return gpt2(36, 1280, 20); }},
    {"gpt2-xl", [] { return gpt2(48, 1600, 25); }},
    {"llama-30m", [] { return llama(8, 512, 8, 4, 1408, 8192, 256); }},
    {"llama-124m", [] { return llama(12, 768, 12, 4, 2048, 32000, 1024); }},
    {"llama-336m", [] { return llama(24, 1024, 16, 4, 2816, 32000, 2048); }},
    {"llama-1b", [] { return llama(22, 2048, 32, 4, 5632, 32000, 2048); }},
    {"cs336-tinystories", cs336_tinystories},
};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

ModelConfig preset(const std::string& name) {
  for (const Preset& p : kPresets)
    if (name == p.name) return p.make();
  const std::string near = nearest(name, preset_names());
  std::string known;
  for (const std::string& n : preset_names()) known += (known.empty() ? "" : ", ") + n;
  fail("unknown preset '{}'{}; presets are {}", name, near.empty() ? "" : "; did you mean " + near + "?", known);
}

}  // namespace tally
