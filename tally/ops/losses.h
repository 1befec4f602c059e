// Losses with gradients; names, argument order and meaning of PyTorch's functions.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/cross_entropy_kernels.h"  // Reduction

namespace tally {

// (input - target)^2; the shapes broadcast.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean);

// input (N, C, ..), (C) or (N, C) logits, target (N, ..), () or (N) of i32 or i64. As cross_entropy(), but the classes
// are axis 1 and a target outside [0, C) other than ignore_index is an IndexError on every device (on a card its number
// is waited for). label_smoothing: that share of the probability is spread evenly over all classes.
Tensor cross_entropy_loss(const Tensor& input, const Tensor& target, int64_t ignore_index = -100,
                          Reduction reduction = Reduction::kMean, double label_smoothing = 0);
// The same of log-probabilities.
Tensor nll_loss(const Tensor& input, const Tensor& target, int64_t ignore_index = -100,
                Reduction reduction = Reduction::kMean);

// -(w t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) without overflow, of logits and targets of one shape. w is
// pos_weight, which broadcasts and has no gradient; undefined: 1.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        Reduction reduction = Reduction::kMean, const Tensor& pos_weight = {});

// target * (log(target) - input), input log-probabilities; log_target: so is the target. The shapes broadcast. kMean
// divides by the number of elements, as PyTorch does; divide kSum by the batch size for the divergence itself
// (PyTorch's "batchmean").
Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
              bool log_target = false);

}  // namespace tally
