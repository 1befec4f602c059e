// Dropout with a mask computed from (seed, stream, position): equal on every device, thread count and layout, and never
// stored.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// x with elements dropped with probability p in [0, 1] and the others divided by 1 - p. Every call of a step needs its
// own stream (RandomStream::kDropout + a counter), else two masks are equal. p = 0 returns x.
// `step`, undefined or one i64 on x's device, moves the stream by kDropoutSteps for each (dropout_kernels.h).
Tensor dropout(const Tensor& x, float p, uint64_t seed, uint64_t stream, const Tensor& step = {});

}  // namespace tally
