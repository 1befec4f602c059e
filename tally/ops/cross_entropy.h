// Cross-entropy loss with gradient.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/cross_entropy_kernels.h"  // Reduction

namespace tally {

// logits (..., V), targets (...) i32 or i64: -log softmax(logits)[target] in nats, in f32 (f64 for f64 logits): the
// mean over the targets that are not ignore_index, their sum, or one number a target (0 where ignored).
// The mean over no target is NaN; its gradient is 0. A target outside [0, V) other than ignore_index is an Error.
// The gradient is written over the logits when nobody else holds them: hand them over with std::move to save a buffer
// of their size.
Tensor cross_entropy(Tensor logits, const Tensor& targets, int64_t ignore_index = -100,
                     Reduction reduction = Reduction::kMean);

}  // namespace tally
