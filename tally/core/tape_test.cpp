// The tape alone, with two small ops written here on plain loops: order, accumulation, what is kept and freed, and what
// is refused.
#include "tally/core/tape.h"

#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;

int additions = 0;

// The accumulation that ops/backward.cpp gives to run_backward, on plain loops.
void add_to(Tensor& into, Tensor&& g) {
  ++additions;
  const std::vector<double> a = into.to_vector(), b = g.to_vector();
  std::vector<float> sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(static_cast<float>(a[i] + b[i]));
  into = Tensor::from(sum, into.sizes());
}

Tensor scaled(const Tensor& x, float s) {
  std::vector<float> v;
  for (double a : x.to_vector()) v.push_back(static_cast<float>(a) * s);
  return Tensor::from(v, x.sizes());
}

Tensor scale(const Tensor& x, float s) {
  Tensor y = scaled(x, s);
  record(
      y, {x}, {}, [](Backward& b, float f) { b.add(0, scaled(b.grad(), f)); }, s);
  return y;
}

// x^2, which keeps x.
Tensor squared(const Tensor& x) {
  std::vector<float> v;
  for (double a : x.to_vector()) v.push_back(static_cast<float>(a * a));
  Tensor y = Tensor::from(v, x.sizes());
  record(y, {x}, {x}, [](Backward& b) {
    std::vector<float> d;
    const std::vector<double> g = b.grad().to_vector(), a = b.saved(0).to_vector();
    for (size_t i = 0; i < g.size(); ++i) d.push_back(static_cast<float>(2 * g[i] * a[i]));
    b.add(0, Tensor::from(d, b.input(0).size));
  });
  return y;
}

Tensor sum2(const Tensor& x, const Tensor& y) {
  std::vector<float> v;
  const std::vector<double> a = x.to_vector(), b = y.to_vector();
  for (size_t i = 0; i < a.size(); ++i) v.push_back(static_cast<float>(a[i] + b[i]));
  Tensor z = Tensor::from(v, x.sizes());
  record(z, {x, y}, {}, [](Backward& t) {
    t.add(0, t.grad());
    t.add(1, t.take_grad());
  });
  return z;
}

Tensor leaf(std::vector<float> v) {
  const auto n = static_cast<int64_t>(v.size());
  Tensor t = Tensor::from(v, Dims(n));
  t.set_requires_grad();
  return t;
}

void run(const Tensor& y, std::vector<float> gradient) {
  const auto n = static_cast<int64_t>(gradient.size());
  NoGrad quiet;
  run_backward(y, Tensor::from(gradient, Dims(n)), add_to);
}

using V = std::vector<double>;

TEST(Tape, ChainRule) {
  Tensor x = leaf({1, 2, -3});
  run(scale(squared(x), 3), {1, 1, 2});
  EXPECT_EQ(x.grad().to_vector(), (V{6, 12, -36}));
}

TEST(Tape, AValueUsedTwiceGetsBothGradients) {
  Tensor x = leaf({2});
  const Tensor h = squared(x);
  run(sum2(scale(h, 3), sum2(h, squared(h))), {1});
  EXPECT_EQ(x.grad().item(), (3 + 1 + 2 * 4) * 2 * 2);
}

TEST(Tape, GradientsOfLeavesAddUpOverRuns) {
  Tensor x = leaf({5});
  run(scale(x, 3), {1});
  run(scale(x, 4), {1});
  EXPECT_EQ(x.grad().item(), 7);
  x.set_grad({});
  run(scale(x, 4), {1});
  EXPECT_EQ(x.grad().item(), 4);
}

// Both inputs receive the same tensor; adding to one must not change the other.
TEST(Tape, ASharedGradientIsNeverChangedInPlace) {
  Tensor a = leaf({1}), b = leaf({1});
  const Tensor s = sum2(a, b);
  run(sum2(s, a), {1});
  EXPECT_EQ(a.grad().item(), 2);
  EXPECT_EQ(b.grad().item(), 1);
}

TEST(Tape, TheFirstContributionIsMovedNotCopied) {
  additions = 0;
  Tensor x = leaf({1});
  const Tensor g = Tensor::from(std::vector<float>{1.f}, Dims(1));
  const Tensor y = sum2(x, Tensor::from(std::vector<float>{0.f}, Dims(1)));
  NoGrad quiet;
  run_backward(y, g, add_to);
  EXPECT_EQ(additions, 0);
  EXPECT_TRUE(x.grad().shares_storage(g));
}

TEST(Tape, TargetIsTheGradientItselfOnlyWhenNobodyElseHoldsIt) {
  static bool accumulated;
  const auto probe = [](const Tensor& x) {
    Tensor y = scaled(x, 1);
    record(y, {x}, {}, [](Backward& b) {
      Tensor into = b.target(0, accumulated);
      EXPECT_EQ(b.category(0), Category::kGradient);
      if (accumulated)
        into.data<float>()[0] += 1;
      else
        into.data<float>()[0] = 1;
      EXPECT_EQ(into.category(), Category::kGradient);
      const Tensor kept = into;
      into = {};
      b.add(0, kept, accumulated);
    });
    return y;
  };
  Tensor x = leaf({1});
  run(probe(x), {1});
  EXPECT_FALSE(accumulated);
  run(probe(x), {1});
  EXPECT_TRUE(accumulated);
  EXPECT_EQ(x.grad().item(), 2);
  const Tensor held = x.grad();
  run(probe(x), {1});
  EXPECT_FALSE(accumulated);
  EXPECT_EQ(x.grad().item(), 3);
  EXPECT_EQ(held.item(), 2);
}

TEST(Tape, AnOutputThatNothingUsedHasNoGradient) {
  Tensor x = leaf({1, 2});
  Tensor a = scaled(x, 2), b = scaled(x, 3);
  record({&a, &b}, {x}, {}, [](Backward& t) {
    EXPECT_FALSE(t.grad(0).defined());
    ASSERT_TRUE(t.grad(1).defined());
    t.add(0, scaled(t.grad(1), 3));
  });
  run(squared(b), {1, 1});
  EXPECT_EQ(x.grad().to_vector(), (V{18, 36}));
}

TEST(Tape, InputsWithoutGradientAreSkipped) {
  Tensor x = leaf({1});
  const Tensor c = Tensor::from(std::vector<float>{2.f}, Dims(1));
  run(sum2(c, x), {1});
  EXPECT_FALSE(c.grad().defined());
  EXPECT_EQ(x.grad().item(), 1);
  EXPECT_FALSE(sum2(c, c).requires_grad());
}

TEST(Tape, NoGradRecordsNothing) {
  Tensor x = leaf({1});
  {
    NoGrad quiet;
    EXPECT_TRUE(NoGrad::active());
    EXPECT_FALSE(squared(x).requires_grad());
    EXPECT_FALSE(needs_grad({x}));
  }
  EXPECT_FALSE(NoGrad::active());
  EXPECT_TRUE(squared(x).requires_grad());
}

TEST(Tape, Refusals) {
  Tensor x = leaf({1});
  const Tensor constant = Tensor::from(std::vector<float>{1.f}, Dims(1)), y = squared(x);
  expect_error([&] { run(constant, {1}); }, "nothing that led to this tensor requires a gradient");
  expect_error([&] { run(y, {1, 2}); }, "a gradient of shape (2,) for a tensor of shape (1,)");
  run(y, {1});
  expect_error([&] { run(y, {1}); }, "Trying to backward through the graph a second time: the backward of squared");
  EXPECT_EQ(x.grad().item(), 2);
  Tensor inner = squared(x);
  expect_error([&] { inner.set_requires_grad(); }, "only a leaf tensor");
}

TEST(Tape, KeptTensorsAreFreedAsTheRunPasses) {
  LedgerGuard guard;
  Tensor x = leaf({3});
  Tensor h = scale(x, 1);
  const Tensor y = squared(h);
  h = {};
  const int64_t before = guard.ledger().live_bytes();  // x, h (kept by y's node), y
  EXPECT_EQ(before, 3 * 256);
  run(y, {1});
  EXPECT_EQ(guard.ledger().live_bytes(), 3 * 256);  // x, its gradient, y: h is gone
}

TEST(Tape, BackwardIsCountedInTheScopeOfItsForward) {
  LedgerGuard guard;
  Tensor x = leaf({1});
  Tensor y;
  {
    ScopeGuard scope("blocks.3");
    y = scaled(x, 1);
    record(y, {x}, {}, [](Backward& b) {
      Ledger::current().spend("probe", {7, 0, 0, 0, 0});
      b.add(0, b.take_grad());
    });
  }
  run(y, {1});
  ASSERT_EQ(guard.ledger().entries().size(), 1u);
  EXPECT_EQ(guard.ledger().entries()[0].scope, "blocks.3");
  EXPECT_EQ(guard.ledger().entries()[0].phase, "backward");
  EXPECT_EQ(guard.ledger().scope(), 0);
}

TEST(Tape, AnErrorInABackwardRestoresScopeAndPhase) {
  LedgerGuard guard;
  Tensor x = leaf({1});
  Tensor y;
  {
    ScopeGuard scope("blocks.3");
    y = scaled(x, 1);
    record(y, {x}, {}, [](Backward&) { fail("no"); });
  }
  expect_error([&] { run(y, {1}); }, "no");
  EXPECT_EQ(guard.ledger().scope(), 0);
  EXPECT_EQ(guard.ledger().phase(), 0);
  EXPECT_FALSE(NoGrad::active());
}

TEST(Tape, ALongChainAreFreedAndRunWithoutRecursion) {
  Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 300'000; ++i) y = scale(y, 1);
  y = {};  // freed unrun
  y = x;
  for (int i = 0; i < 100'000; ++i) y = scale(y, 1);
  run(y, {1});
  EXPECT_EQ(x.grad().item(), 1);
}

// What a backward may take besides saved tensors: numbers, enums, Dims.
static_assert(Attribute<float> && Attribute<int64_t> && Attribute<bool> && Attribute<Category> && Attribute<Dims>);
static_assert(!Attribute<Tensor> && !Attribute<View> && !Attribute<float*> && !Attribute<float&> &&
              !Attribute<std::vector<float>>);

}  // namespace
}  // namespace tally
