// Steps that the card repeats by itself (core/replay.h): the same bits, costs and blocks as steps launched one by one.
#include <cmath>

#include "tally/base/error.h"
#include "tally/base/rng.h"
#include "tally/core/memory.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/train/step.h"

namespace tally {
namespace {

RunConfig small_run(const char* model, const char* dtype, int64_t accumulate) {
  RunConfig c;
  c.model = preset(model);
  c.model.context = 128, c.model.vocab_size = 512, c.model.dtype = dtype;
  c.train.batch = 4, c.train.steps = 12, c.train.accumulate = accumulate;
  c.check();
  return c;
}

FillBatch batches(const RunConfig& c) {
  return [n = c.train.batch * c.context()](int64_t index, int32_t* ids, int32_t* targets) {
    for (int64_t i = 0; i < n; ++i) {
      ids[i] = static_cast<int32_t>(random_below(9, 1, static_cast<uint64_t>(index * n + i), 500));
      targets[i] = (ids[i] * 7 + 3) % 500;
    }
  };
}

// Launches under an observer are made one by one.
struct ByHand : LaunchObserver {
  ByHand() { set_launch_observer(this); }
  ~ByHand() override { set_launch_observer(nullptr); }
  void before(const char*, const void*) override {}
  void after(const char*, const void*, const Cost&) override {}
};

struct Result {
  std::vector<double> losses, norms, flops, peaks, params;
  bool repeated = false;
};

Result train(const RunConfig& c, bool by_hand) {
  std::optional<ByHand> observer;
  if (by_hand) observer.emplace();
  const LedgerGuard ledger;
  TrainState state(c, cuda_device());
  Result r;
  for (int64_t step = 0; step < c.train.steps; ++step) {
    ledger.ledger().clear_costs();
    reset_block_peak(cuda_device());
    const StepResult s = train_step(c, state, batches(c));
    r.losses.push_back(s.loss), r.norms.push_back(s.grad_norm);
    const Cost cost = ledger.ledger().cost();
    r.flops.push_back(static_cast<double>(cost.matmul_flops + cost.other_flops + cost.bytes_read));
    r.peaks.push_back(static_cast<double>(blocks_of(cuda_device()).peak - blocks_of(cuda_device()).live));
    if (step % 5 == 4) {  // something else in between
      state.load([&](int32_t* ids, int32_t* targets) { batches(c)(1000, ids, targets); });
      r.losses.push_back(evaluate_batch(state, 2));
    }
  }
  for (const Param& p : state.params)
    for (const double x : p.tensor->to_vector()) r.params.push_back(x);
  r.repeated = state.repeated();
  return r;
}

TEST(Replay, StepsAreTheSameAsByHand) {
  set_memory_guards(false, cuda_device());
  for (const char* model : {"demo", "char"})
    for (const char* dtype : {"f32", "bf16"})
      for (const int64_t accumulate : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {}", model, dtype, accumulate));
        RunConfig c = small_run(model, dtype, accumulate);
        c.model.dropout = accumulate > 1 ? 0.1 : 0;
        const Result hand = train(c, true), card = train(c, false);
        EXPECT_TRUE(card.repeated);
        EXPECT_FALSE(hand.repeated);
        EXPECT_EQ(hand.losses, card.losses);
        EXPECT_EQ(hand.norms, card.norms);
        EXPECT_EQ(hand.flops, card.flops);
        EXPECT_EQ(hand.peaks, card.peaks);
        EXPECT_EQ(hand.params, card.params);
      }
}

TEST(Replay, ANumberThatIsNotFiniteStopsTheRunAndChangesNothing) {
  set_memory_guards(false, cuda_device());
  RunConfig c = small_run("demo", "f32", 1);
  TrainState state(c, cuda_device());
  for (int i = 0; i < 5; ++i) train_step(c, state, batches(c));
  ASSERT_TRUE(state.repeated());
  Param bad = state.params[3];
  {
    NoGrad quiet;
    fill_(*bad.tensor, INFINITY);
  }
  const std::vector<double> before = state.params[1].tensor->to_vector();
  try {
    train_step(c, state, batches(c));
    ADD_FAILURE() << "no error";
  } catch (const RunError& e) {
    EXPECT_NE(std::string(e.what()).find("step 6: the loss is not finite; first bad tensor: " + bad.name),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(state.params[1].tensor->to_vector(), before);
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.optimizer->steps(), 5);
}

// Batches of the next step are read while the card works; what goes wrong there is the next step's to say.
TEST(Replay, AnErrorOfReadingAheadIsTheNextSteps) {
  set_memory_guards(false, cuda_device());
  const RunConfig c = small_run("demo", "f32", 1);
  TrainState state(c, cuda_device());
  const FillBatch fill = [&](int64_t index, int32_t* ids, int32_t* targets) {
    if (index == 3) fail_run("no such window");
    batches(c)(index, ids, targets);
  };
  for (int i = 0; i < 3; ++i) train_step(c, state, fill);
  EXPECT_THROW(train_step(c, state, fill), RunError);
  EXPECT_EQ(state.step, 3);
  EXPECT_GT(train_step(c, state, batches(c)).loss, 0);
  EXPECT_EQ(state.step, 4);
}

}  // namespace
}  // namespace tally
