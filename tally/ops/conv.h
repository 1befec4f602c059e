// Convolutions (cross-correlations, as in every framework) over one or two axes, with gradients.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// x (N, C, L) or (C, L), weight (O, C / groups, K), bias (O) or undefined -> (N, O, L') or (O, L') with
// L' = (L + 2 padding - dilation (K - 1) - 1) / stride + 1. Zeros stand around x.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, int64_t stride = 1, int64_t padding = 0,
              int64_t dilation = 1, int64_t groups = 1);

struct Pair {
  int64_t h, w;
  constexpr Pair(int64_t both) : h(both), w(both) {}
  constexpr Pair(int64_t along_h, int64_t along_w) : h(along_h), w(along_w) {}
};
// x (N, C, H, W) or (C, H, W), weight (O, C / groups, kh, kw) -> (N, O, H', W') or (O, H', W').
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Pair stride = 1, Pair padding = 0,
              Pair dilation = 1, int64_t groups = 1);

}  // namespace tally
