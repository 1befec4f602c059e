// Convolutions as modules: weight (out, in / groups, kernel...) and bias (out), initial values PyTorch's: uniform
// within 1 / sqrt(in / groups * kernel), as kaiming_uniform_ with a = sqrt(5).
#pragma once

#include "tally/nn/init.h"
#include "tally/nn/param.h"
#include "tally/ops/conv.h"

namespace tally {

// x (N, C, L) or (C, L) -> (N, O, L') or (O, L'); conv1d() in ops/conv.h.
struct Conv1d {
  struct How {
    int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
    bool bias = true;
  };
  Tensor weight, bias;
  How how;
  Conv1d() = default;
  // ValueError unless groups divide both numbers of channels.
  Conv1d(Init& init, int64_t in, int64_t out, int64_t kernel, const How& how);
  Conv1d(Init& init, int64_t in, int64_t out, int64_t kernel) : Conv1d(init, in, out, kernel, How()) {}
  Tensor operator()(const Tensor& x) const {
    return conv1d(x, weight, bias, how.stride, how.padding, how.dilation, how.groups);
  }
  void visit(Params& p) { p("weight", weight), p("bias", bias); }
};

// x (N, C, H, W) or (C, H, W) -> (N, O, H', W') or (O, H', W').
struct Conv2d {
  struct How {
    Pair stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;
    bool bias = true;
  };
  Tensor weight, bias;
  How how;
  Conv2d() = default;
  Conv2d(Init& init, int64_t in, int64_t out, Pair kernel, const How& how);
  Conv2d(Init& init, int64_t in, int64_t out, Pair kernel) : Conv2d(init, in, out, kernel, How()) {}
  Tensor operator()(const Tensor& x) const {
    return conv2d(x, weight, bias, how.stride, how.padding, how.dilation, how.groups);
  }
  void visit(Params& p) { p("weight", weight), p("bias", bias); }
};

}  // namespace tally
