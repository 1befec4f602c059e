// backward(loss): runs the tape with d(loss) = 1. Gradients of leaf tensors add to what is already there;
// those of bf16 leaves are kept and summed in f32.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// loss must have one element unless a gradient of its shape is given.
void backward(const Tensor& loss);
void backward(const Tensor& loss, const Tensor& gradient);

}  // namespace tally
