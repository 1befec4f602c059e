// The sampler's filters one by one, their order, its draws and its refusals.
#include "tally/models/sampler.h"

#include <cmath>
#include <limits>

#include "tests/support/support.h"

namespace tally {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Share of each id over n draws.
std::vector<double> shares(const std::vector<float>& logits, const SamplerConfig& c, int n = 20000,
                           const std::vector<int32_t>& history = {}) {
  std::vector<double> count(logits.size());
  for (int i = 0; i < n; ++i) count[static_cast<size_t>(sample(logits, history, c, i))] += 1.0 / n;
  return count;
}

// Four standard deviations of a share p of 20,000 draws are at most 0.0142.
void expect_shares(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == 0)
      EXPECT_EQ(got[i], 0) << i;
    else
      EXPECT_NEAR(got[i], want[i], 0.0142) << i;
  }
}

std::vector<float> logs(const std::vector<double>& p) {
  std::vector<float> out;
  for (double x : p) out.push_back(static_cast<float>(std::log(x)));
  return out;
}

TEST(Sampler, DrawsFromTheSoftmax) { expect_shares(shares(logs({0.1, 0.2, 0.3, 0.4}), {}), {0.1, 0.2, 0.3, 0.4}); }

TEST(Sampler, TemperatureZeroTakesTheLargestAndTheSmallestIdOfEquals) {
  SamplerConfig c;
  c.temperature = 0;
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {}, c, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-kInf, -5}, {}, c, 0), 1);
  // The largest, twice, at every place of a long row; with a penalty that changes nothing all ids are looked at one by
  // one.
  SamplerConfig slow = c;
  slow.repetition_penalty = 2;
  for (const size_t n : {31, 32, 100}) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> logits(n);
      for (size_t i = 0; i < n; ++i) logits[i] = static_cast<float>(i * 7 % 13) - 20;
      logits[at] = logits[(at + n / 2) % n] = -0.5f;
      EXPECT_EQ(sample(logits, {}, c, 0), static_cast<int32_t>(std::min(at, (at + n / 2) % n)));
      EXPECT_EQ(sample(logits, {}, slow, 0), sample(logits, {}, c, 0));
      logits[at] = kInf;
      EXPECT_ANY_THROW(sample(logits, {}, c, 0));
      logits[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_ANY_THROW(sample(logits, {}, c, 0));
    }
    EXPECT_ANY_THROW(sample(std::vector<float>(n, -kInf), {}, c, 0));
  }
}

TEST(Sampler, TemperatureDividesTheLogits) {
  SamplerConfig c;
  c.temperature = 0.5;
  expect_shares(shares(logs({0.2, 0.3, 0.5}), c), {0.04 / 0.38, 0.09 / 0.38, 0.25 / 0.38});
  c.temperature = 1e-300;
  EXPECT_EQ(sample(logs({0.2, 0.3, 0.5}), {}, c, 3), 2);
}

TEST(Sampler, TopK) {
  SamplerConfig c;
  c.top_k = 2;
  expect_shares(shares(logs({0.1, 0.4, 0.2, 0.3}), c), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares({1, 1, 1, 1}, c), {0.5, 0.5, 0, 0});  // of equals the smallest ids
  c.top_k = 1;
  EXPECT_EQ(sample(logs({0.1, 0.4, 0.2, 0.3}), {}, c, 7), 1);
  c.top_k = 100;
  expect_shares(shares(logs({0.25, 0.75}), c), {0.25, 0.75});
}

// The likeliest tokens until their sum reaches p; the one that crosses stays.
TEST(Sampler, TopP) {
  SamplerConfig c;
  c.top_p = 0.6;
  expect_shares(shares(logs({0.1, 0.5, 0.15, 0.25}), c), {0, 2.0 / 3, 0, 1.0 / 3});
  c.top_p = 0;
  expect_shares(shares(logs({0.1, 0.5, 0.15, 0.25}), c, 100), {0, 1, 0, 0});  // never none
}

TEST(Sampler, MinP) {
  SamplerConfig c;
  c.min_p = 0.4;  // of 0.5: 0.2
  expect_shares(shares(logs({0.1, 0.5, 0.15, 0.25}), c), {0, 2.0 / 3, 0, 1.0 / 3});
  c.min_p = 1;
  expect_shares(shares(logs({0.1, 0.5, 0.15, 0.25}), c, 100), {0, 1, 0, 0});
}

// Top-p acts on what top-k left, renormalised: 0.5/0.75 = 0.67 alone is not yet 0.7.
TEST(Sampler, FiltersActInTurn) {
  SamplerConfig c;
  c.top_k = 2, c.top_p = 0.6;
  expect_shares(shares(logs({0.1, 0.5, 0.15, 0.25}), c, 200), {0, 1, 0, 0});
  c.top_p = 0.7;
  expect_shares(shares(logs({0.1, 0.5, 0.15, 0.25}), c), {0, 2.0 / 3, 0, 1.0 / 3});
}

// Positive logits are divided, negative ones multiplied, once however often the id came.
TEST(Sampler, RepetitionPenalty) {
  SamplerConfig c;
  c.repetition_penalty = 2, c.temperature = 0;
  EXPECT_EQ(sample(std::vector<float>{3, 2, -1}, std::vector<int32_t>{0, 0, 0, 99, -4}, c, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{5, 2, -1}, std::vector<int32_t>{0, 0, 0}, c, 0), 0);
  EXPECT_EQ(sample(std::vector<float>{-1, -1.5f}, std::vector<int32_t>{0}, c, 0), 1);
  c.temperature = 1;
  const double e1 = std::exp(1.0), e2 = std::exp(-2.0);
  expect_shares(shares({2, -1}, c, 20000, {0, 1}), {e1 / (e1 + e2), e2 / (e1 + e2)});
}

TEST(Sampler, DrawsDependOnSeedAndPositionOnly) {
  const std::vector<float> logits = logs({0.25, 0.25, 0.25, 0.25});
  SamplerConfig a, b;
  b.seed = 1;
  int same = 0, moved = 0;
  for (int i = 0; i < 400; ++i) {
    EXPECT_EQ(sample(logits, {}, a, i), sample(logits, {}, a, i));
    same += sample(logits, {}, a, i) == sample(logits, {}, b, i);
    moved += sample(logits, {}, a, i) != sample(logits, {}, a, i + 1);
  }
  EXPECT_NEAR(same, 100, 40);
  EXPECT_NEAR(moved, 300, 40);
}

TEST(Sampler, MaskedTokensAreNeverDrawn) { expect_shares(shares({-kInf, 0, -kInf, 0}, {}), {0, 0.5, 0, 0.5}); }

TEST(Sampler, BrokenLogitsAreRefused) {
  for (double temperature : {0.0, 1.0}) {
    SamplerConfig c;
    c.temperature = temperature;
    EXPECT_THROW(sample(std::vector<float>{1, NAN}, {}, c, 0), RunError);
    EXPECT_THROW(sample(std::vector<float>{-kInf, -kInf}, {}, c, 0), RunError);
    EXPECT_THROW(sample(std::vector<float>{1, kInf}, {}, c, 0), RunError);
    EXPECT_THROW(sample(std::vector<float>{}, {}, c, 0), RunError);
  }
}

}  // namespace
}  // namespace tally
