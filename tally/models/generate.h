// One sequence: prefill the prompt, then decode with a KV cache. When the context is full the cache is dropped and the
// last half of the context is read again, so that generation has no length limit.
#pragma once

#include <functional>

#include "tally/models/model.h"
#include "tally/models/sampler.h"

namespace tally {

// Calls on_token(id) for each of up to max_tokens new tokens; it returns false to stop. prompt must not be empty and is
// cut to the last context positions. Throws Error for ids outside the vocabulary.
void generate(Model& model, std::vector<int32_t> prompt, int64_t max_tokens, const SamplerConfig& config,
              const std::function<bool(int32_t)>& on_token);

}  // namespace tally
