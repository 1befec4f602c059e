// Scaled dot-product attention with a causal mask and grouped key heads (Vaswani et al. 2017; Ainslie et al. 2023),
// computed in blocks with a running softmax: memory is linear in the length (Dao et al. 2022, "FlashAttention").
// A query's result has the same bits whatever the other queries, the batch and the thread count are, so decoding with a
// cache equals the whole sequence at once.
#pragma once

#include <optional>

#include "tally/core/tensor.h"

namespace tally {

// softmax(q k^T scale) v for every head: q (B, Tq, H, D), k and v (B, Tk, Hkv, D), H a multiple of Hkv, D at most 256;
// strided views are taken as they are when D is contiguous. scale is 1 / sqrt(D) when not given. With `causal` the
// queries are the last Tq positions of the Tk: query i sees keys up to i + Tk - Tq. A query that sees no key gives 0.
// Saves q, k, v, the result and one number a row.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                 std::optional<double> scale = std::nullopt);

// The same, causal and not recorded, of the newest Tq positions of a cache: k and v are its first Tk positions.
// position (ops/cache.h) is Tk - Tq on the device; capacity, in positions, is the most that it may come to.
Tensor attention_cached(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position, int64_t capacity);

}  // namespace tally
