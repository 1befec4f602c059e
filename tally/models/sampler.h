// The next token from logits. Order of the filters, as in Hugging Face: repetition penalty, temperature, top-k, top-p,
// min-p; then one draw by inverse distribution on a counter random number. All in f64 on the host.
#pragma once

#include <span>

#include "tally/base/fields.h"

namespace tally {

struct SamplerConfig {
  double temperature = 1;         // 0: the largest logit (the smallest id of equals)
  int64_t top_k = 0;              // 0: off
  double top_p = 1;               // 1: off
  double min_p = 0;               // 0: off; keeps tokens of at least min_p times the largest probability
  double repetition_penalty = 1;  // 1: off; Keskar et al. 2019 (CTRL)
  int64_t seed = 0;

  void fields(Fields& f);
};

// logits of one position; `history`: ids so far (for the penalty); the draw is number `position` of the seed's stream.
// -inf is never drawn. Throws RunError when a logit is NaN or +inf, or none is finite.
int32_t sample(std::span<const float> logits, std::span<const int32_t> history, const SamplerConfig& config,
               int64_t position);

}  // namespace tally
