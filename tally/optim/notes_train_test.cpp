// The course's notes on the training loop and on checkpoints (A213, A221-A229, A231), slips at the right value. The
// step of SGD is written by hand.
#include "tally/core/tape.h"
#include "tally/nn/nn_test_modules.h"
#include "tally/nn/state.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/reduce.h"
#include "tally/optim/optimizer.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

constexpr int64_t kD = 16, kBatch = 4;

Tensor mse_loss(const Tensor& input, const Tensor& target) { return mean(square(sub(input, target))); }

struct Batch {
  Tensor x, y;  // (B, D), (B)
};
Batch batch(uint64_t seed, uint64_t step) {
  std::vector<float> w;
  for (int i = 0; i < kD; ++i) w.push_back(static_cast<float>(i));
  const Tensor x = Tensor::empty(Dims(kBatch, kD));
  normal_(x, 1, seed, 1000 + step);
  return {x, squeeze(matmul(x, Tensor::from(w, Dims(kD, 1))), -1)};
}

void sgd_step(const std::vector<Param>& params, float lr) {
  NoGrad quiet;
  for (const Param& p : params) add_(p.tensor->detach(), affine(p.tensor->grad(), -lr, 0));
}

// The losses of the notes' loop: batch, forward, loss, backward, step, zero_grad.
V train(Cruncher& model, int64_t steps, float lr, uint64_t seed, uint64_t first = 0) {
  V losses;
  for (int64_t t = 0; t < steps; ++t) {
    const Batch b = batch(seed, first + static_cast<uint64_t>(t));
    const Tensor pred = model(b.x);
    EXPECT_EQ(pred.sizes(), Dims(kBatch));
    EXPECT_EQ(b.y.sizes(), Dims(kBatch));
    const Tensor loss = mse_loss(pred, b.y);
    losses.push_back(loss.item());
    backward(loss);
    sgd_step(params_of(model), lr);
    zero_grad(model);
  }
  return losses;
}

Cruncher cruncher(uint64_t seed, int64_t dim = kD, int64_t layers = 0) {
  Init init(seed, kCpu);
  return {init, dim, layers};
}

TEST(Notes, A213_NoGradientIsLeft) {
  Cruncher m = cruncher(1, 4, 2);
  backward(sum(m(Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, Dims(2, 4)))));
  for (const Param& p : params_of(m)) EXPECT_TRUE(p.tensor->grad().defined()) << p.name;
  zero_grad(m, /*set_to_none=*/true);
  for (const Param& p : params_of(m)) EXPECT_FALSE(p.tensor->grad().defined()) << p.name;
}

TEST(Notes, A221_TheOrderOfTheLoop) {
  Cruncher m = cruncher(1);
  const V before = m.last.weight.to_vector();
  const Batch b = batch(1, 0);
  for (int step = 0; step < 2; ++step) {
    EXPECT_FALSE(m.last.weight.grad().defined());  // none is left of the step before
    backward(mse_loss(m(b.x), b.y));
    EXPECT_TRUE(m.last.weight.grad().defined());
    sgd_step(params_of(m), 0.01f);
    zero_grad(m, /*set_to_none=*/true);
  }
  EXPECT_NE(m.last.weight.to_vector(), before);
}

TEST(Notes, A222_TenStepsOfALinearModel) {
  Cruncher m = cruncher(2);
  EXPECT_EQ(train(m, 10, 0.01f, 2).size(), 10u);
  EXPECT_EQ(parameter_count(m), kD);
}

// The mean of losses over many runs, by step; the last is after ten steps.
const V& mean_losses() {
  static const V means = [] {
    constexpr int kRuns = 2000;
    V sum(11, 0.0);
    for (uint64_t run = 0; run < kRuns; ++run) {
      Cruncher m = cruncher(run);
      const V losses = train(m, 11, 0.01f, 50'000 + run);
      for (size_t i = 0; i < losses.size(); ++i) sum[i] += losses[i] / kRuns;
    }
    return sum;
  }();
  return means;
}

TEST(Notes, A223_TheFirstLossInExpectation) { EXPECT_NEAR(mean_losses()[0], 1241, 80); }

TEST(Notes, A224_TheLossShrinksByAFactorAStep) {
  const double lr = 0.01, factor = 1 - 4 * lr + lr * lr * 4 * (kBatch + kD + 1) / kBatch;
  EXPECT_NEAR(factor, 0.9621, 1e-12);
  EXPECT_NEAR(1241 * std::pow(factor, 9), 877, 1);
  EXPECT_NEAR(1241 * std::pow(factor, 10), 843, 1);
  EXPECT_NEAR(mean_losses()[9], 877, 70);
  EXPECT_NEAR(mean_losses()[10], 843, 70);
}

TEST(Notes, A225_TheGradientOfTheSquaredError) {
  const Cruncher m = cruncher(3);
  const Batch b = batch(3, 0);
  backward(mse_loss(m(b.x), b.y));
  const V x = b.x.to_vector(), pred = m(b.x).to_vector(), y = b.y.to_vector(), got = m.last.weight.grad().to_vector();
  for (size_t j = 0; j < kD; ++j) {
    double want = 0;
    for (size_t i = 0; i < kBatch; ++i) want += 2.0 / kBatch * x[i * kD + j] * (pred[i] - y[i]);
    EXPECT_NEAR(got[j], want, 1e-4 * (1 + std::abs(want)));
  }
}

// The notes' train() takes num_layers and lr and does not use them.
TEST(Notes, A226_TheArgumentsAreUsed) {
  const auto run = [](int64_t layers, float lr) {
    Cruncher m = cruncher(4, kD, layers);
    return train(m, 3, lr, 4);
  };
  EXPECT_EQ(run(0, 0.01f), run(0, 0.01f));
  EXPECT_NE(run(0, 0.01f)[1], run(0, 0.02f)[1]);
  EXPECT_NE(run(0, 0.01f)[0], run(1, 0.01f)[0]);
}

TEST(Notes, A227_TheSquaredErrorIsAMean) {
  const Tensor a = Tensor::from(V{1, 2, 3}, Dims(3)), b = Tensor::from(V{1, 4, 0}, Dims(3));
  EXPECT_NEAR(mse_loss(a, b).item(), (0 + 4 + 9) / 3.0, 1e-15);
}

// A model, its optimizer and what a checkpoint keeps of both.
struct Training {
  Cruncher model;
  std::unique_ptr<Optimizer> optimizer;
  explicit Training(uint64_t seed) : model(cruncher(seed, 64, 3)) {
    OptimConfig config;
    optimizer = make_optimizer(config, params_of(model));
  }
  void step(uint64_t t) {
    const Tensor x = Tensor::empty(Dims(kBatch, 64));
    normal_(x, 1, 9, t);
    backward(mean(square(affine(model(x), 1, -1))));
    optimizer->step(0.01, 1);
    zero_grad(model);
  }
  std::vector<std::pair<std::string, std::vector<Param>>> checkpoint() {
    return {{"model", params_of(model)}, {"optimizer", optimizer->state()}};
  }
  void save(const std::filesystem::path& folder) {
    for (const auto& [name, tensors] : checkpoint()) save_tensors(folder / (name + ".safetensors"), tensors);
  }
  void load(const std::filesystem::path& folder, int64_t steps) {
    for (const auto& [name, tensors] : checkpoint()) load_tensors(folder / (name + ".safetensors"), tensors);
    optimizer->set_steps(steps);
  }
};

V values(const std::vector<Param>& params) {
  V all;
  for (const Param& p : params)
    for (const double x : p.tensor->to_vector()) all.push_back(x);
  return all;
}

TEST(Notes, A228_ACheckpointHoldsModelAndOptimizer) {
  TempFolder folder;
  Training a(1), b(2);
  a.step(0);
  ASSERT_EQ(a.checkpoint().size(), 2u);
  EXPECT_EQ(a.checkpoint()[0].first, "model");
  EXPECT_EQ(a.checkpoint()[1].first, "optimizer");
  a.save(folder.path());
  EXPECT_NE(values(b.checkpoint()[0].second), values(a.checkpoint()[0].second));
  b.load(folder.path(), 1);
  for (const int part : {0, 1}) EXPECT_EQ(values(b.checkpoint()[part].second), values(a.checkpoint()[part].second));
}

TEST(Notes, A229_TheModelsKeys) {
  Training t(1);
  std::vector<std::string> names;
  int64_t n = 0;
  for (const auto& [name, tensor] : state_dict(t.model)) names.push_back(name), n += tensor.numel();
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.weight", "layers.1.weight", "layers.2.weight", "final.weight"}));
  EXPECT_EQ(n, 12352);
}

TEST(Notes, A231_AResumedStepEqualsTheUnbrokenRuns) {
  TempFolder folder;
  Training unbroken(1);
  for (uint64_t t = 0; t < 3; ++t) unbroken.step(t);
  unbroken.save(folder.path());
  Training resumed(7), half(7);
  resumed.load(folder.path(), 3);
  load_state_dict(half.model, state_dict(unbroken.model));  // the model alone is not enough
  for (Training* t : {&unbroken, &resumed, &half}) t->step(3);
  EXPECT_EQ(values(params_of(resumed.model)), values(params_of(unbroken.model)));
  EXPECT_NE(values(params_of(half.model)), values(params_of(unbroken.model)));
}

}  // namespace
}  // namespace tally::test
