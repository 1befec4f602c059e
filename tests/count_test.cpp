// FLOPs measured by counting: a whole training step runs while every launch is repeated by its reference loop on a
// number that counts what is done to it (tally/ops/op_test.h, with the loops of all *_test.cpp of tally/ops). The count
// equals the ledger of the run and the plan on meta, to the FLOP.
#include "tally/ops/op_test.h"
#include "tally/train/plan.h"
#include "tally/train/step.h"

namespace tally::test {
namespace {

RunConfig config_of(const std::string& name, int64_t batch, int64_t context) {
  RunConfig c;
  c.model = preset(name);
  c.train.batch = batch, c.train.context = context, c.train.steps = 10;
  return c;
}

void expect_counted(const RunConfig& c, Device device, int64_t steps, bool values) {
  const Plan plan = plan_run(c, nullptr);
  const LedgerGuard guard;
  TrainState state(c, device);
  guard.ledger().clear_costs();
  const FillBatch fill = [&](int64_t index, int32_t* ids, int32_t* targets) {
    for (int64_t i = 0; i < c.train.batch * c.context(); ++i) {
      ids[i] = static_cast<int32_t>((3 * index + i * i + 5 * i) % c.model.vocab_size);
      targets[i] = i % 9 == 4 ? -100 : static_cast<int32_t>((7 * i + index) % c.model.vocab_size);
    }
  };
  const VerifyLaunches verify(values);
  for (int64_t i = 0; i < steps; ++i) train_step(c, state, fill);
  const Cost counted = verify.counted(), ledger = guard.ledger().cost(), planned = plan.cost.sum();
  EXPECT_EQ(verify.launches(), guard.ledger().launches());
  EXPECT_EQ(counted.matmul_flops, ledger.matmul_flops);
  EXPECT_EQ(counted.other_flops, ledger.other_flops);
  EXPECT_EQ(counted.matmul_flops, steps * planned.matmul_flops);
  EXPECT_EQ(counted.other_flops, steps * planned.other_flops);
  // No launch stands outside the three phases of a step.
  EXPECT_EQ(plan.cost.sum().matmul_flops, plan.ledger->cost().matmul_flops);
  EXPECT_GT(counted.matmul_flops, 6 * c.tokens_per_step() * plan.parameters / 2);
}

TEST(Count, TinyStep) { expect_counted(config_of("tiny", 4, 0), kCpu, 2, false); }

TEST(Count, CharStep) { expect_counted(config_of("char", 2, 0), kCpu, 1, false); }

TEST(Count, StepWithDropoutAndAccumulation) {
  RunConfig c = config_of("char", 2, 16);
  c.model.dropout = 0.2, c.model.bias = true, c.train.accumulate = 3;
  expect_counted(c, kCpu, 1, false);
  c = config_of("tiny", 3, 11);
  c.model.n_kv_heads = 2, c.model.tied = true, c.model.dtype = "bf16";
  expect_counted(c, kCpu, 1, false);
}

// Every output of every launch of two steps against the f64 reference.
TEST(Count, TinyStepsAreRightLaunchByLaunch) { expect_counted(config_of("tiny", 2, 40), kCpu, 2, true); }

TEST(Count, CharStepIsRightLaunchByLaunch) { expect_counted(config_of("char", 1, 24), kCpu, 1, true); }

// On meta: counting needs shapes only.
TEST(CountLong, Llama30mStep) { expect_counted(config_of("llama-30m", 1, 64), kMetaCpu, 1, false); }

TEST(CountLong, Gpt2Step) { expect_counted(config_of("gpt2", 1, 32), kMetaCpu, 1, false); }

}  // namespace
}  // namespace tally::test
