#include "tally/train/step.h"

#include <cmath>

#include "tally/base/rng.h"
#include "tally/ops/elementwise.h"
#include "tally/train/train_test_data.h"

namespace tally {
namespace {

using test::expect_error;
using test::small_config;

// Batches that depend on the index alone.
void fill(const RunConfig& c, int64_t index, int32_t* ids, int32_t* targets) {
  const int64_t n = c.train.batch * c.context();
  for (int64_t i = 0; i < n; ++i) {
    ids[i] = static_cast<int32_t>(random_below(3, 1, static_cast<uint64_t>(index * n + i), 256));
    targets[i] = static_cast<int32_t>(random_below(3, 2, static_cast<uint64_t>(index * n + i), 256));
  }
}

FillBatch filler(const RunConfig& c) {
  return [&c](int64_t index, int32_t* ids, int32_t* targets) { fill(c, index, ids, targets); };
}

std::vector<double> values(const TrainState& state) {
  std::vector<double> all;
  for (const Param& p : state.params)
    for (double v : p.tensor->to_vector()) all.push_back(v);
  for (const Param& p : state.optimizer->state())
    for (double v : p.tensor->to_vector()) all.push_back(v);
  return all;
}

TEST(Step, LearnsABatchByHeart) {
  RunConfig c = small_config("");
  c.optim.lr = 1e-2, c.schedule.kind = "constant";
  TrainState state(c, kCpu);
  const FillBatch same = [&](int64_t, int32_t* ids, int32_t* targets) { fill(c, 0, ids, targets); };
  const double first = train_step(c, state, same).loss;
  EXPECT_NEAR(first, std::log(256.0), 0.2);
  double last = 0;
  for (int i = 0; i < 60; ++i) last = train_step(c, state, same).loss;
  EXPECT_LT(last, first / 2);
  EXPECT_EQ(state.step, 61);
  EXPECT_EQ(state.optimizer->steps(), 61);
}

TEST(Step, ThreeMicroBatchesEqualOneLargeBatch) {
  RunConfig parts = small_config("");
  parts.train.batch = 2, parts.train.accumulate = 3;
  RunConfig whole = parts;
  whole.train.batch = 6, whole.train.accumulate = 1;
  TrainState a(parts, kCpu), b(whole, kCpu);
  const StepResult ra = train_step(parts, a, filler(parts)), rb = train_step(whole, b, filler(whole));
  EXPECT_NEAR(ra.loss, rb.loss, 1e-5);
  EXPECT_NEAR(ra.grad_norm, rb.grad_norm, 1e-4 * rb.grad_norm);
}

TEST(Step, GradientsAreGivenBack) {
  RunConfig c = small_config("");
  TrainState state(c, kCpu);
  train_step(c, state, filler(c));
  for (const Param& p : state.params) EXPECT_FALSE(p.tensor->grad().defined()) << p.name;
}

TEST(Step, DropoutMasksDifferBetweenMicroBatchesAndRepeatBetweenRuns) {
  RunConfig c = small_config("");
  c.model.dropout = 0.3, c.optim.lr = 0, c.optim.weight_decay = 0, c.schedule.kind = "constant";
  const FillBatch same = [&](int64_t, int32_t* ids, int32_t* targets) { fill(c, 0, ids, targets); };
  TrainState a(c, kCpu), b(c, kCpu);
  const double a1 = train_step(c, a, same).loss, a2 = train_step(c, a, same).loss;
  EXPECT_NE(a1, a2);
  EXPECT_EQ(train_step(c, b, same).loss, a1);
  EXPECT_EQ(train_step(c, b, same).loss, a2);
}

TEST(Step, ABadParameterStopsTheRunByName) {
  RunConfig c = small_config("");
  TrainState state(c, kCpu);
  train_step(c, state, filler(c));
  for (const Param& p : state.params)
    if (p.name == "blocks.1.attn.q.weight") p.tensor->data<float>()[5] = NAN;
  const std::vector<double> before = values(state);
  expect_error([&] { train_step(c, state, filler(c)); },
               "step 2: the loss is not finite; first bad tensor: blocks.1.attn.q.weight");
  const std::vector<double> after = values(state);
  for (size_t i = 0; i < before.size(); ++i)
    ASSERT_TRUE(before[i] == after[i] || (std::isnan(before[i]) && std::isnan(after[i]))) << i;
  EXPECT_EQ(state.step, 1);
  EXPECT_EQ(state.optimizer->steps(), 1);
  for (const Param& p : state.params) EXPECT_FALSE(p.tensor->grad().defined());
}

TEST(Step, O15AGradientThatIsNotFiniteStopsTheRunAndChangesNothing) {
  RunConfig c = small_config("");
  c.model.norm = "layer", c.model.bias = true;
  TrainState state(c, kCpu);
  // The loss stays finite; the gradient of the head is the normed input, which is infinite nowhere but in the backward.
  Tensor bad = Tensor::empty(state.params[0].tensor->sizes(), DType::kF32, kCpu, Category::kGradient);
  fill_(bad, INFINITY);
  const std::vector<double> before = values(state);
  const FillBatch poison = [&](int64_t index, int32_t* ids, int32_t* targets) {
    fill(c, index, ids, targets);
    state.params[0].tensor->set_grad(bad);
  };
  expect_error([&] { train_step(c, state, poison); },
               "step 1: a gradient is not finite; first bad tensor: the gradient of embed.weight");
  EXPECT_EQ(values(state), before);
}

TEST(Step, FirstBadTensorGoesInVisitOrder) {
  RunConfig c = small_config("");
  TrainState state(c, kCpu);
  EXPECT_EQ(first_bad_tensor(state.params), "");
  state.params.back().tensor->data<float>()[0] = INFINITY;
  EXPECT_EQ(first_bad_tensor(state.params), "head.weight");
  state.params.front().tensor->data<float>()[0] = NAN;
  EXPECT_EQ(first_bad_tensor(state.params), "embed.weight");
}

}  // namespace
}  // namespace tally
