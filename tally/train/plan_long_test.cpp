#include "tally/train/plan_check.h"

namespace tally {
namespace {

TEST(PlanLong, EqualsTheRunLlama30m) {
  RunConfig c;
  c.model = preset("llama-30m");
  c.train.batch = 2;
  test::expect_plan_equals_run(c, 2, "llama-30m");
}

TEST(PlanLong, EqualsTheRunGpt2) {
  RunConfig c;
  c.model = preset("gpt2");
  c.train.batch = 1;
  test::expect_plan_equals_run(c, 1, "gpt2");
}

// Logits of 600 MB, of which 256 rows are in memory at a time.
TEST(PlanLong, EqualsTheRunWithTheLossInChunks) {
  for (const char* dtype : {"f32", "bf16"}) {
    RunConfig c;
    c.model = preset("tiny");
    c.model.vocab_size = dtype == std::string("f32") ? 500000 : 1000000, c.model.d_model = 8, c.model.n_heads = 2;
    c.model.n_kv_heads = 2, c.model.n_layers = 1, c.model.d_ff = 8, c.model.tied = true, c.model.dtype = dtype;
    c.model.context = 100, c.train.batch = 3, c.train.accumulate = 2;
    test::expect_plan_equals_run(c, 1, dtype);
    EXPECT_NEAR(plan_run(c, nullptr).step.by[static_cast<size_t>(Category::kWorkspace)], 512e6, 2e6);
  }
}

}  // namespace
}  // namespace tally
