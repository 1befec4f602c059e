// Attention with PyTorch's layout and mask rules.
#pragma once

#include <optional>

#include "tally/core/tensor.h"

namespace tally {

// softmax(q k^T scale + mask) v: q (.., L, E), k (.., S, E), v (.., S, Ev) -> (.., L, Ev); leading axes broadcast.
// scale is 1 / sqrt(E) when not given. attn_mask broadcasts to (.., L, S): bool (true: the pair counts) or numbers of
// q's dtype that are added. is_causal: query i sees keys 0..i; not together with a mask. A query that sees no key gives
// 0, and finite gradients. enable_gqa: q (.., H, L, E) with H a multiple of the heads of k and v. Without a mask, up to
// 4 axes and one shape of k and v, it is attention() (ops/attention.h); else products and a softmax.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attn_mask = {},
                                    bool is_causal = false, std::optional<double> scale = std::nullopt,
                                    bool enable_gqa = false);

}  // namespace tally
