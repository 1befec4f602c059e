// AdamW against plain f64 loops, its decay groups and state, the global norm and clipping (case C24, traps O15, O16).
#include <cmath>

#include "tally/base/parallel.h"
#include "tally/optim/optimizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using V = std::vector<double>;

// A few parameters that own their tensors.
struct Set {
  std::vector<Tensor> tensors;
  std::vector<std::string> names;
  std::vector<Param> params() {
    std::vector<Param> all;
    for (size_t i = 0; i < tensors.size(); ++i) all.push_back({names[i], &tensors[i]});
    return all;
  }
  void add(const std::string& name, const std::vector<float>& v, const Dims& size) {
    tensors.push_back(Tensor::from(v, size));
    tensors.back().set_requires_grad();
    names.push_back(name);
  }
};

void give(Tensor& p, const std::vector<float>& g) { p.set_grad(Tensor::from(g, p.sizes())); }

TEST(Adamw, TrapO16DecayIsDecoupledAndFirst) {
  Set s;
  s.add("w", {1}, Dims(1, 1));
  OptimConfig c;
  c.lr = 0.1, c.weight_decay = 0.5;
  const auto optimizer = make_optimizer(c, s.params());
  give(s.tensors[0], {1});
  optimizer->step(0.1, 1);
  EXPECT_NEAR(s.tensors[0].item(), 0.85, 1e-6);
}

TEST(Adamw, FollowsTheFormulaAndDecaysMatricesOnly) {
  Set s;
  s.add("w", {0.5f, -1, 2, 0.25f}, Dims(2, 2));
  s.add("b", {0.5f, -1}, Dims(2));
  OptimConfig c;
  c.beta1 = 0.8, c.beta2 = 0.9, c.eps = 1e-3, c.weight_decay = 0.2;
  const auto optimizer = make_optimizer(c, s.params());
  V p = s.tensors[0].to_vector(), b = s.tensors[1].to_vector();
  V m(6), v(6);
  for (int step = 1; step <= 7; ++step) {
    const double rate = 0.01 * step, scale = 0.5;
    std::vector<float> g;
    for (int i = 0; i < 6; ++i) g.push_back(static_cast<float>(0.1 * ((step * 7 + i * 3) % 11 - 5)));
    give(s.tensors[0], {g[0], g[1], g[2], g[3]});
    give(s.tensors[1], {g[4], g[5]});
    optimizer->step(rate, scale);
    for (int i = 0; i < 6; ++i) {
      double& x = i < 4 ? p[i] : b[i - 4];
      const double gs = g[i] * scale;
      m[i] = 0.8 * m[i] + 0.2 * gs, v[i] = 0.9 * v[i] + 0.1 * gs * gs;
      const double mh = m[i] / (1 - std::pow(0.8, step)), vh = v[i] / (1 - std::pow(0.9, step));
      x = x * (1 - rate * (i < 4 ? 0.2 : 0.0)) - rate * mh / (std::sqrt(vh) + 1e-3);
    }
  }
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(s.tensors[0].to_vector()[i], p[i], 2e-6);
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(s.tensors[1].to_vector()[i], b[i], 2e-6);
  EXPECT_EQ(optimizer->steps(), 7);
}

TEST(Adamw, AParameterWithoutGradientStays) {
  Set s;
  s.add("a", {1, 2}, Dims(1, 2));
  s.add("b", {3, 4}, Dims(1, 2));
  const auto optimizer = make_optimizer({}, s.params());
  give(s.tensors[0], {1, 1});
  optimizer->step(0.1, 1);
  EXPECT_NE(s.tensors[0].to_vector()[0], 1);
  EXPECT_EQ(s.tensors[1].to_vector(), (V{3, 4}));
}

TEST(Adamw, StateIsNamedAndCarriesOn) {
  Set a, b;
  a.add("blocks.0.w", {1, -2}, Dims(1, 2));
  b.add("blocks.0.w", {1, -2}, Dims(1, 2));
  const auto first = make_optimizer({}, a.params());
  const auto run = [](Set& s, Optimizer& o, float g) {
    give(s.tensors[0], {g, -g});
    o.step(0.01, 1);
  };
  run(a, *first, 0.3f);
  run(a, *first, -0.7f);
  ASSERT_EQ(first->state().size(), 2u);
  EXPECT_EQ(first->state()[0].name, "blocks.0.w.m");
  EXPECT_EQ(first->state()[1].name, "blocks.0.w.v");
  EXPECT_EQ(first->state()[0].tensor->category(), Category::kOptimizer);
  // The same state and weights put into a fresh optimizer go on with the same bits.
  const auto second = make_optimizer({}, b.params());
  for (int i = 0; i < 2; ++i) {
    const V values = first->state()[i].tensor->to_vector();
    for (size_t k = 0; k < 2; ++k) second->state()[i].tensor->data<float>()[k] = static_cast<float>(values[k]);
  }
  for (size_t k = 0; k < 2; ++k) b.tensors[0].data<float>()[k] = a.tensors[0].data<float>()[k];
  second->set_steps(first->steps());
  run(a, *first, 0.9f);
  run(b, *second, 0.9f);
  EXPECT_EQ(a.tensors[0].to_vector(), b.tensors[0].to_vector());
}

TEST(Adamw, MomentsAreF32ForBf16AndF64ForF64) {
  for (const auto& [dtype, moment] : {std::pair{DType::kBF16, DType::kF32}, {DType::kF64, DType::kF64}}) {
    Tensor t = Tensor::empty(Dims(2, 2), dtype, kMetaCpu, Category::kParameter);
    t.set_requires_grad();
    const auto optimizer = make_optimizer({}, {{"w", &t}});
    EXPECT_EQ(optimizer->state()[0].tensor->dtype(), moment);
  }
}

TEST(Clip, C24OneNormOverAllTensors) {
  Set s;
  std::vector<float> g1, g2;
  for (int i = 0; i < 15; ++i) g1.push_back(static_cast<float>(std::sin(i)));
  for (int i = 0; i < 7; ++i) g2.push_back(static_cast<float>(3 * std::cos(i)));
  s.add("a", std::vector<float>(15, 0), Dims(3, 5));
  s.add("without", {1, 1}, Dims(2));
  s.add("b", std::vector<float>(7, 0), Dims(7));
  give(s.tensors[0], g1);
  give(s.tensors[2], g2);
  double squares = 0;
  for (float x : g1) squares += double{x} * x;
  for (float x : g2) squares += double{x} * x;
  const double norm = global_norm(s.params());
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm);
  EXPECT_NEAR(clip_scale(norm, 1e-2), 1e-2 / (std::sqrt(squares) + 1e-6), 1e-15);
  EXPECT_EQ(clip_scale(norm, norm + 1), 1);
  EXPECT_EQ(clip_scale(norm, 0), 1);  // off
}

TEST(Clip, TrapO15Ends) {
  Set s;
  s.add("first", {1, 1}, Dims(2));
  s.add("blocks.1.mlp.up.weight", {1, 1}, Dims(2));
  give(s.tensors[0], {0, 0});
  EXPECT_EQ(global_norm(s.params()), 0);
  EXPECT_EQ(clip_scale(0, 1), 1);
  give(s.tensors[1], {3e20f, 4e20f});
  const double norm = global_norm(s.params());  // beyond f32's range when squared
  EXPECT_NEAR(norm / 5e20, 1, 1e-6);
  EXPECT_NEAR(3e20 * clip_scale(norm, 1), 0.6, 1e-6);
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    give(s.tensors[1], {bad, 1});
    try {
      global_norm(s.params());
      ADD_FAILURE() << "no error for " << bad;
    } catch (const RunError& e) {
      EXPECT_STREQ(e.what(), "the gradient of blocks.1.mlp.up.weight is not finite");
    }
  }
}

TEST(Clip, NormIsTheSameForEveryThreadCount) {
  Set s;
  std::vector<float> g(200'003);
  for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));
  s.add("w", g, Dims(200'003));
  give(s.tensors[0], g);
  const int before = num_threads();
  set_num_threads(1);
  const double one = global_norm(s.params());
  set_num_threads(2);
  EXPECT_EQ(global_norm(s.params()), one);
  set_num_threads(before);
}

TEST(Clip, ClearGradsGivesTheMemoryBack) {
  LedgerGuard guard;
  Set s;
  s.add("w", {1, 2}, Dims(2));
  const int64_t before = guard.ledger().live_bytes();
  give(s.tensors[0], {1, 1});
  EXPECT_GT(guard.ledger().live_bytes(), before);
  clear_grads(s.params());
  EXPECT_EQ(guard.ledger().live_bytes(), before);
  EXPECT_FALSE(s.tensors[0].grad().defined());
}

TEST(OptimConfig, Limits) {
  OptimConfig c;
  const Fields f = fields_of(c);
  test::expect_error([&] { f.find("beta1", "test").set(1.5, "flag"); }, "beta1");
  test::expect_error([&] { f.find("lr", "test").set(-1.0, "flag"); }, "lr");
  test::expect_error([&] { f.find("kind", "test").set("sgdd", "flag"); }, "adamw");
}

}  // namespace
}  // namespace tally
