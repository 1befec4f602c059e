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

}  // namespace
}  // namespace tally
