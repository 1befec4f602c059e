// Causal self-attention with grouped keys and values (GQA: n_kv_heads divides n_heads; MHA when they are equal).
#pragma once

#include "tally/nn/kv_cache.h"
#include "tally/nn/modules.h"
#include "tally/ops/rope.h"

namespace tally {

// How positions enter attention; `table` is shared by all layers and undefined without RoPE.
struct Rope {
  Tensor table;  // (context, head_dim / 2, 2): cos, sin
  RopeStyle style = RopeStyle::kHalfSplit;
};

struct Attention {
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  Linear q, k, v, o;
  Attention() = default;
  Attention(Init& init, int64_t d, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim, bool bias, double std,
            double out_std);
  // x (B, T, d) -> (B, T, d). With a cache, x are the positions after its length.
  Tensor operator()(const Tensor& x, const Rope& rope, KvCache* cache, int64_t layer) const;
  void visit(Params& p) { p.child("q", q), p.child("k", k), p.child("v", v), p.child("o", o); }
};

}  // namespace tally
