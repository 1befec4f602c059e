// The loss of a linear head without its logits in memory: of many rows the head is multiplied, the loss taken and the
// gradient made a chunk of rows at a time, in the forward already (as in Liger Kernel, Hsu et al. 2024,
// arXiv:2410.10989). What is kept for the backward is the size of x and of the weight, whatever the number of classes.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// x (..., d), weight (V, d), targets (...) i32 or i64: cross_entropy(linear(x, weight), targets, ignore_index), the
// mean over the targets that are not ignored. Exactly that, to the bit, when the logits fit one chunk. In chunks every
// row's loss has the bits of that, and so have the sums of the weight's gradient (their order does not depend on the
// chunks), but the mean joins the losses in the order of sum(), and gradients are divided by the number of targets at
// the end. The gradient of x is written over x when nobody else holds it: hand it over with std::move to save a buffer.
// chunk_rows: a multiple of 256; 0 takes head_chunk_rows().
Tensor linear_cross_entropy(Tensor x, const Tensor& weight, const Tensor& targets, int64_t ignore_index = -100,
                            int64_t chunk_rows = 0);

// Rows of logits that are in memory at a time, of `rows`: all where they fit 512 MiB, else a multiple of 256 in chunks
// of about equal size.
int64_t head_chunk_rows(int64_t rows, const Tensor& weight);

}  // namespace tally
