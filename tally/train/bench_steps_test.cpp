#include "tally/train/bench_steps.h"

#include <gtest/gtest.h>

#include "tally/ops/measure_peaks.h"
#include "tests/support/support.h"

namespace tally {
namespace {

Hardware machine() {
  Hardware h;
  h.name = "a machine", h.fma_flops = 4e9, h.other_flops = 1e9, h.launch_seconds = 1e-6;
  h.matmul.points = {{1, 2e9}};
  h.bytes.points = {{1000, 8e9}, {1000000, 2e9}};
  return h;
}

RunConfig small_run() {
  RunConfig c;
  c.model = preset("tiny");
  c.model.d_model = 32, c.model.d_ff = 48;
  c.train.batch = 2, c.train.context = 16;
  return c;
}

TEST(BenchSteps, MeasuredBytesAreThePlans) {
  const Hardware h = machine();
  const StepBench b = bench_step(small_run(), h, 0);
  EXPECT_EQ(b.profile.steps, 3);
  EXPECT_EQ(b.tokens, 32);
  EXPECT_EQ(total(b.peak), b.plan.step.bytes());
  EXPECT_GT(b.step_seconds, 0);
  EXPECT_DOUBLE_EQ(b.tokens_per_second() * b.step_seconds, 32);
  Cost sum;
  for (const ProfileEntry& e : b.profile.entries) sum += e.cost;
  EXPECT_EQ(sum, b.plan.cost.sum());
  const std::string text = step_text(small_run(), b);
  for (const char* part : {"32 tokens a step (1 x 2 x 16)", "tokens/s", "predicted", "% of the peak of 4 GFLOP/s",
                           "outside kernels", "backward    "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(step_json(b).at("peak_bytes").as_int(), b.plan.step.bytes());
}

TEST(BenchSteps, RooflineHasAPointForEveryOpAndPhase) {
  const Hardware h = machine();
  StepBench b;
  b.plan.hardware = &h;
  b.profile.steps = 1, b.profile.step_seconds = 10;
  b.profile.entries = {{"matmul", "forward", 5, 2, {8'000'000'000, 0, 500'000'000, 500'000'000}, 2},
                       {"softmax_backward", "backward", 1, 1, {0, 1'000'000'000, 2'000'000'000, 0}, 1}};
  const Roofline r = roofline_of("title", b);
  EXPECT_EQ(r.peak_flops, 4e9);
  EXPECT_EQ(r.peak_bytes, 8e9);
  ASSERT_EQ(r.points.size(), 2u);
  EXPECT_EQ(r.points[0].name, "matmul forward");
  EXPECT_DOUBLE_EQ(r.points[0].intensity, 8);
  EXPECT_DOUBLE_EQ(r.points[0].flops_per_second, 1.6e9);
  EXPECT_DOUBLE_EQ(r.points[0].share, 0.5);
  EXPECT_EQ(r.points[1].name, "softmax_backward");
  EXPECT_DOUBLE_EQ(r.points[1].intensity, 0.5);
}

TEST(BenchSteps, DecodingReadsEveryWeightOnceAToken) {
  ModelConfig c = preset("tiny");
  for (const char* dtype : {"f32", "bf16"}) {
    const DecodeBench b = bench_decode(c, {dtype, 4, 8, 0});
    EXPECT_EQ(b.tokens, 3 * 7);
    EXPECT_EQ(b.parameters, parameter_count(c));
    // All but the token table, of which one row is read; activations and the cache come on top.
    const double weights = static_cast<double>(b.parameters - c.vocab_size * c.d_model) * (b.dtype == "f32" ? 4 : 2);
    EXPECT_GT(b.bytes_read, weights);
    EXPECT_LT(b.bytes_read, 1.5 * weights);
    EXPECT_GT(b.bytes_per_second, 0);
    EXPECT_GT(b.token_seconds, 0);
  }
  test::expect_error([&] { bench_decode(c, {"f32", 60, 8, 0}); }, "beyond the model's context of 64");
}

TEST(BenchSteps, DecodeTable) {
  const std::string text = decode_text({{"bf16", 1000, 64, 0.02, 1e9, 1e11}});
  EXPECT_NE(text.find("20 ms      50.0   1,000,000,000     100.0        100.0      50 %"), std::string::npos) << text;
}

}  // namespace
}  // namespace tally
