#include "tally/train/plan.h"

#include <algorithm>

#include "tally/train/plan_check.h"

namespace tally {
namespace {

using test::expect_plan_equals_run;

RunConfig config_of(const std::string& name) {
  RunConfig c;
  c.model = preset(name);
  c.train.batch = 4;
  return c;
}

TEST(Plan, EqualsTheRunTiny) { expect_plan_equals_run(config_of("tiny"), 3, "tiny"); }

TEST(Plan, EqualsTheRunChar) { expect_plan_equals_run(config_of("char"), 3, "char"); }

TEST(Plan, EqualsTheRunWithAccumulationDropoutAndTiedTables) {
  for (const char* name : {"tiny", "char"})
    for (const bool tied : {false, true})
      for (const int64_t accumulate : {1, 3, 6})
        for (const double dropout : {0.0, 0.1}) {
          RunConfig c = config_of(name);
          c.model.tied = tied, c.model.dropout = dropout;
          c.train.accumulate = accumulate, c.train.batch = 3, c.train.context = 24;
          expect_plan_equals_run(c, 2,
                                 fmt::format("{} tied {} accumulate {} dropout {}", name, tied, accumulate, dropout));
        }
}

TEST(Plan, EqualsTheRunForEveryKindOfModel) {
  for (const char* activation : {"swiglu", "gelu", "gelu_tanh", "relu", "silu"})
    for (const char* position : {"rope", "learned", "none"})
      for (const bool bias : {false, true}) {
        RunConfig c = config_of("tiny");
        c.model.activation = activation, c.model.position = position, c.model.bias = bias;
        c.model.norm = bias ? "layer" : "rms", c.model.n_kv_heads = 2, c.model.d_ff = 100, c.train.context = 17;
        expect_plan_equals_run(c, 1, fmt::format("{} {} bias {}", activation, position, bias));
      }
}

TEST(Plan, EqualsTheRunInBf16AndWithoutLayers) {
  RunConfig c = config_of("tiny");
  c.model.dtype = "bf16";
  expect_plan_equals_run(c, 2, "bf16");
  c = config_of("tiny");
  c.model.n_layers = 0, c.train.batch = 1, c.train.context = 1;
  expect_plan_equals_run(c, 2, "no layers, one token");
}

TEST(Plan, TheHighestMomentOfTheTimelineIsThePeak) {
  for (const int64_t accumulate : {1, 2}) {
    RunConfig c = config_of("tiny");
    c.train.accumulate = accumulate;
    const Plan plan = plan_run(c, nullptr);
    const size_t moments = plan.timeline.at("edges").as_array().size() - 1;
    std::vector<int64_t> sums(moments);
    for (const auto& [category, values] : plan.timeline.at("bytes").as_object()) {
      ASSERT_EQ(values.as_array().size(), moments) << category;
      for (size_t i = 0; i < moments; ++i) sums[i] += values.as_array()[i].as_int();
    }
    EXPECT_EQ(*std::max_element(sums.begin(), sums.end()), plan.step.bytes());
    EXPECT_EQ(plan.timeline.at("phases").as_array().size(), static_cast<size_t>(2 * accumulate + 1));
    EXPECT_EQ(plan.timeline.at("edges").as_array().back().as_double(), plan.ledger->launches());
  }
}

TEST(Plan, Gpt2StepOnMeta) {
  RunConfig c = config_of("gpt2");
  c.train.batch = 1;
  const Plan plan = plan_run(c, nullptr);
  EXPECT_EQ(plan.parameters, 124439808);
  // Parameters, gradients and two moments in f32.
  EXPECT_GE(plan.step.bytes(), 16 * plan.parameters);
  // Forward products: 2 FLOPs for each weight of a matrix and token, the tied head included, and the unmasked pairs of
  // attention twice (scores and mixing).
  const int64_t t = 1024, d = 768, layers = 12;
  const int64_t weights = layers * 12 * d * d + 50257 * d;
  const int64_t attention = layers * 2 * 2 * d * t * (t + 1) / 2;
  EXPECT_EQ(plan.cost.forward.matmul_flops, 2 * t * weights + attention);
}

TEST(Plan, PredictsFromTheHardware) {
  Hardware h;
  h.name = "a test's machine";
  h.fma_flops = h.other_flops = 1e9, h.matmul.points = {{1, 1e9}}, h.bytes.points = {{1, 1e12}};
  const RunConfig c = config_of("tiny");
  const Plan plan = plan_run(c, &h);
  const Cost step = plan.cost.sum();
  EXPECT_GE(plan.step_seconds, static_cast<double>(step.matmul_flops) / 1e9);
  EXPECT_LE(plan.step_seconds, 1.01 * static_cast<double>(step.matmul_flops + step.other_flops) / 1e9);
  EXPECT_NEAR(plan.phase_seconds[0] + plan.phase_seconds[1] + plan.phase_seconds[2], plan.step_seconds, 1e-9);
  const std::string text = plan_text(c, plan);
  for (const char* part : {"parameters", "optimizer", "matmul FLOPs", "predicted", "a test's machine"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Plan, CostsNoMemoryOfTheMachine) {
  const int64_t before = cpu_blocks().live;
  reset_block_peak();
  const Plan plan = plan_run(config_of("llama-1b"), nullptr);
  EXPECT_EQ(plan.parameters, 1100048384);
  EXPECT_EQ(cpu_blocks().peak, before);
}

TEST(Report, Texts) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(seconds_text(2.79e-7), "279 ns");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(0.9999), "1 s");
  EXPECT_EQ(seconds_text(3725), "1 h 2 min");
  EXPECT_EQ(count_text(12345), "12.3 k");
}

}  // namespace
}  // namespace tally
