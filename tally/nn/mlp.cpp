#include "tally/nn/mlp.h"

#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"

namespace tally {

Mlp::Mlp(Init& init, Activation activation, int64_t d, int64_t d_ff, bool bias, double std, double down_std)
    : activation(activation) {
  if (activation == Activation::kSwiglu) gate = Linear(init, d, d_ff, bias, std);
  up = Linear(init, d, d_ff, bias, std);
  down = Linear(init, d_ff, d, bias, down_std);
}

Tensor Mlp::operator()(const Tensor& x) const {
  switch (activation) {
    case Activation::kSwiglu:
      if (gate.packed.defined()) return down(swiglu(gate(x), up(x)));
      return down(linear_swiglu(x, {gate.weight, gate.bias}, {up.weight, up.bias}));
    case Activation::kGelu:
      return down(gelu(up(x)));
    case Activation::kGeluTanh:
      if (!up.packed.defined()) return gelu_tanh_mlp(x, up.weight, up.bias, down.weight, down.bias);
      return down(gelu_tanh(up(x)));
    case Activation::kRelu:
      return down(relu(up(x)));
    case Activation::kSilu:
      break;
  }
  return down(silu(up(x)));
}

}  // namespace tally
