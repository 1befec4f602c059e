// LayerNorm and RMSNorm over the last axis, with gradients.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// (x - mean) / sqrt(variance + eps) * weight + bias, x (..., d), weight and bias (d) or undefined. The variance is the
// mean of squares (not Bessel's). Weight and bias have x's dtype, or f32 where x is bf16. Constant rows give bias
// exactly.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
// x / sqrt(mean(x^2) + eps) * weight, weight (d) or undefined; squares are taken in f32 also for bf16.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);

// sum = x + residual and y = norm(sum) in one pass over memory: the bits of add() followed by the norm, forward and
// backward. residual has x's shape and dtype. x and the residual share one gradient tensor.
struct ResidualNorm {
  Tensor sum, y;
};
ResidualNorm residual_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                 double eps = 1e-5);
ResidualNorm residual_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps = 1e-5);

}  // namespace tally
