// For tests: runs steps and a validation batch of a config on the CPU and compares them with the plan. Memory is
// counted at the blocks (core/memory.h), not by the ledger.
#pragma once

#include "tally/train/report.h"
#include "tally/train/step.h"
#include "tests/support/support.h"

namespace tally::test {

inline void expect_plan_equals_run(const RunConfig& c, int64_t steps, const std::string& what) {
  SCOPED_TRACE(what);
  const CategoryBytes baseline = cpu_blocks().live_by;
  const Plan plan = plan_run(c, nullptr);
  const LedgerGuard guard;
  TrainState state(c, kCpu);
  EXPECT_EQ(plan.parameters, parameter_count(c.model));
  guard.ledger().clear_costs();
  const FillBatch fill = [&](int64_t index, int32_t* ids, int32_t* targets) {
    for (int64_t i = 0; i < c.train.batch * c.context(); ++i) {
      ids[i] = static_cast<int32_t>((index + 7 * i) % c.model.vocab_size);
      targets[i] = static_cast<int32_t>((index + 7 * i + 7) % c.model.vocab_size);
    }
  };
  const auto compare = [&](const CategoryBytes& planned, const char* part) {
    for (size_t k = 0; k < kCategories; ++k)
      EXPECT_EQ(cpu_blocks().at_peak[k] - baseline[k], planned[k]) << part << " " << name_of(static_cast<Category>(k));
  };
  StepCost before;
  for (int64_t i = 0; i < steps; ++i) {
    reset_block_peak();
    train_step(c, state, fill);
    compare(plan.step.by, "step");
    const StepCost now = StepCost::of(guard.ledger());
    const Cost costs[] = {now.forward, now.backward, now.optimizer};
    const Cost earlier[] = {before.forward, before.backward, before.optimizer};
    const Cost planned[] = {plan.cost.forward, plan.cost.backward, plan.cost.optimizer};
    for (int k = 0; k < 3; ++k) {
      Cost sum = earlier[k];
      sum += planned[k];
      EXPECT_TRUE(sum == costs[k]) << kStepPhases[k] << " of step " << i;
    }
    before = now;
  }
  guard.ledger().clear_costs();
  reset_block_peak();
  evaluate_batch(state, c.train.batch);
  compare(plan.eval.by, "eval");
  EXPECT_TRUE(guard.ledger().cost("evaluate") == plan.eval_cost);
  EXPECT_GT(plan.step.by[static_cast<size_t>(Category::kActivation)], 0);
  EXPECT_GT(plan.cost.backward.matmul_flops, plan.cost.forward.matmul_flops);
}

}  // namespace tally::test
