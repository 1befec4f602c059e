#include "tally/models/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tally/base/error.h"
#include "tally/base/rng.h"

namespace tally {

void SamplerConfig::fields(Fields& f) {
  f("temperature", temperature, "divides the logits; 0 takes the largest", 0, 1e6);
  f("top_k", top_k, "keep the k likeliest tokens; 0 is off", 0, 1 << 24);
  f("top_p", top_p, "keep the likeliest tokens up to this probability; 1 is off", 0, 1);
  f("min_p", min_p, "drop tokens below this share of the likeliest; 0 is off", 0, 1);
  f("repetition_penalty", repetition_penalty, "divides the logits of tokens seen before; 1 is off", 0.01, 100);
  f("seed", seed, "of the draws", 0, 9e18);
}

namespace {

struct Candidate {
  int32_t id;
  double logit, p;
};

void penalise(std::vector<Candidate>& all, std::span<const int32_t> history, double penalty) {
  std::vector<bool> seen(all.size());
  for (int32_t id : history)
    if (id >= 0 && static_cast<size_t>(id) < all.size()) seen[id] = true;
  for (Candidate& c : all)
    if (seen[c.id]) c.logit = c.logit > 0 ? c.logit / penalty : c.logit * penalty;
}

// Probabilities of candidates sorted by falling logit.
void normalise(std::vector<Candidate>& all, double temperature) {
  double sum = 0;
  for (Candidate& c : all) sum += c.p = std::exp((c.logit - all[0].logit) / temperature);
  for (Candidate& c : all) c.p /= sum;
}

// The smallest id of the largest logit; -1 when one is not a number or +inf, or none is finite. Two passes that a
// compiler makes vectors of.
int32_t largest(std::span<const float> logits) {
  constexpr size_t kLanes = 32;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  float top[kLanes];
  int bad[kLanes] = {};
  std::fill(std::begin(top), std::end(top), -kInf);
  const size_t n = logits.size(), whole = n - n % kLanes;
  const float* const x = logits.data();
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) {
      top[j] = x[i + j] > top[j] ? x[i + j] : top[j];
      bad[j] |= x[i + j] < kInf ? 0 : 1;
    }
  float most = -kInf;
  int any_bad = 0;
  for (size_t j = 0; j < kLanes; ++j) most = std::max(most, top[j]), any_bad |= bad[j];
  for (size_t i = whole; i < n; ++i) most = std::max(most, x[i]), any_bad |= x[i] < kInf ? 0 : 1;
  if (any_bad != 0 || !std::isfinite(most)) return -1;
  size_t i = 0;
  for (; i < whole; i += kLanes) {
    int found = 0;
    for (size_t j = 0; j < kLanes; ++j) found |= x[i + j] == most ? 1 : 0;
    if (found != 0) break;
  }
  while (x[i] != most) ++i;
  return static_cast<int32_t>(i);
}

}  // namespace

int32_t sample(std::span<const float> logits, std::span<const int32_t> history, const SamplerConfig& config,
               int64_t position) {
  const bool greedy = config.temperature == 0 || config.top_k == 1;
  if (greedy && config.repetition_penalty == 1)
    if (const int32_t id = largest(logits); id >= 0) return id;
  std::vector<Candidate> all(logits.size());
  bool finite = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || (std::isinf(logits[i]) && logits[i] > 0))
      fail_run("the model's logit of token {} is {}: its weights are broken", i, logits[i]);
    finite = finite || std::isfinite(logits[i]);
    all[i] = {static_cast<int32_t>(i), logits[i], 0};
  }
  if (!finite) fail_run("no logit is finite: the model's weights are broken");
  if (config.repetition_penalty != 1) penalise(all, history, config.repetition_penalty);
  const auto larger = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (greedy) return std::min_element(all.begin(), all.end(), larger)->id;
  if (config.top_k > 0 && static_cast<size_t>(config.top_k) < all.size()) {
    std::nth_element(all.begin(), all.begin() + config.top_k, all.end(), larger);
    all.resize(static_cast<size_t>(config.top_k));
  }
  std::sort(all.begin(), all.end(), larger);
  normalise(all, config.temperature);
  size_t keep = all.size();
  if (config.top_p < 1) {
    double sum = 0;
    for (keep = 0; keep < all.size() && (keep == 0 || sum < config.top_p); ++keep) sum += all[keep].p;
  }
  if (config.min_p > 0)
    while (keep > 1 && all[keep - 1].p < config.min_p * all[0].p) --keep;
  all.resize(keep);
  double rest = 0;
  for (const Candidate& c : all) rest += c.p;
  const uint64_t bits = random_u64(static_cast<uint64_t>(config.seed), static_cast<uint64_t>(RandomStream::kSample),
                                   static_cast<uint64_t>(position));
  double u = static_cast<double>(bits >> 11) * 0x1p-53 * rest;
  for (const Candidate& c : all)
    if ((u -= c.p) < 0) return c.id;
  return all.back().id;
}

}  // namespace tally
