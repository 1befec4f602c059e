// The feed-forward block: down(f(up(x))) or, gated, down(silu(gate(x)) * up(x)).
#pragma once

#include "tally/nn/modules.h"

namespace tally {

enum class Activation { kGelu, kGeluTanh, kRelu, kSilu, kSwiglu };

struct Mlp {
  Activation activation = Activation::kSwiglu;
  Linear gate, up, down;  // gate only when kSwiglu
  Mlp() = default;
  Mlp(Init& init, Activation activation, int64_t d, int64_t d_ff, bool bias, double std, double down_std);
  Tensor operator()(const Tensor& x) const;
  void visit(Params& p) { p.child("gate", gate), p.child("up", up), p.child("down", down); }
};

}  // namespace tally
