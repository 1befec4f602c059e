// Autograd as a user sees it: what backward() and grad() do and refuse, versions of saved tensors, hooks, functions of
// the user's own.
#include <chrono>
#include <cstdlib>

#include "tally/core/custom_node.h"
#include "tally/core/hooks.h"
#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/optim_step.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

// f64, where the device computes in it.
DType number_type() { return test_device().kind == DeviceKind::kCuda ? DType::kF32 : DType::kF64; }
Tensor make(const V& v) {
  return to(to(Tensor::from(v, Dims(static_cast<int64_t>(v.size()))), number_type()), test_device());
}
double tolerance() { return number_type() == DType::kF64 ? 1e-12 : 1e-5; }
std::string named(const char* text) {  // with the name of that type in place of %
  std::string all = text;
  for (size_t at; (at = all.find('%')) != std::string::npos;) all.replace(at, 1, name_of(number_type()));
  return all;
}
Tensor leaf(const V& v) { return make(v).requires_grad_(); }

TEST(Versions, InPlaceFunctionsCount) {
  Tensor x = make({1, 2});
  const Tensor other = make({5, 6});
  Tensor view = slice(x, 0, 1, 2);
  EXPECT_EQ(x.version(), 0);
  fill_(x, 3);
  EXPECT_EQ(x.version(), 1);
  copy_(x, other);
  add_(x, other);
  EXPECT_EQ(x.version(), 3);
  add_(view, make({1}));
  EXPECT_EQ(x.version(), 4);  // of the storage
  EXPECT_EQ(x.detach().version(), 4);
  EXPECT_EQ(other.version(), 0);
}

TEST(Versions, AnOptimizersStepCounts) {
  const Tensor p = make({1}), g = make({1}), m = make({0}), v = make({0});
  AdamwScalars s{};
  s.lr = 0.1, s.beta1 = 0.9, s.beta2 = 0.99, s.eps = 1e-8, s.correction1 = 0.1, s.correction2 = 0.01, s.grad_scale = 1;
  adamw_step(p, g, m, v, s);
  EXPECT_EQ(p.version(), 1);
  EXPECT_EQ(m.version(), 1);
  EXPECT_EQ(g.version(), 0);
}

// traps of this part: an in-place change of a saved tensor, a second backward.
TEST(Versions, ASavedTensorThatWasChangedIsRefused) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor y = sum(mul(a, b));
  Tensor alias = b.detach();
  add_(alias, alias);
  expect_error(
      [&] { backward(y); },
      named("one of the variables needed for gradient computation has been modified by an inplace operation: the "
            "backward of mul needs the % tensor of shape (2,) at version 0, but it is at version 1; change a copy"));
  EXPECT_FALSE(b.grad().defined());
}

TEST(Versions, WhatTheBackwardDoesNotReadMayChange) {
  const Tensor a = leaf({1, 2}), b = make({3, 4});
  const Tensor y = sum(mul(a, b));
  add_(a.detach(), b);  // only b is needed for the gradient of a
  backward(y);
  EXPECT_EQ(a.grad().to_vector(), (V{3, 4}));
}

TEST(Versions, AnOutputThatWasSavedCountsToo) {
  const Tensor a = leaf({6}), b = leaf({2}), y = div(a, b);
  Tensor same = y.detach();
  fill_(same, 0);
  expect_error([&] { backward(y); }, named("the backward of div needs the % tensor of shape (1,)"));
}

TEST(BackwardTwice, IsRefusedUnlessTheGraphIsRetained) {
  const Tensor a = leaf({2});
  const Tensor y = square(mul(a, a));  // a^4
  backward(y, {}, true);
  EXPECT_EQ(a.grad().item(), 32);
  backward(y, {}, true);
  EXPECT_EQ(a.grad().item(), 64);
  backward(y);
  EXPECT_EQ(a.grad().item(), 96);
  expect_error(
      [&] { backward(y); },
      "Trying to backward through the graph a second time: the backward of unary ran and what it saved is gone; "
      "give retain_graph=true to the backward before this one");
  EXPECT_EQ(a.grad().item(), 96);
}

TEST(BackwardTwice, ASharedPartIsRefusedBeforeAnythingChanges) {
  const Tensor a = leaf({2}), b = leaf({3}), shared = square(a);
  const Tensor first = mul(shared, b), second = mul(neg(shared), b);
  backward(first);
  const V before = b.grad().to_vector();
  expect_error([&] { backward(second); }, "Trying to backward through the graph a second time");
  EXPECT_EQ(b.grad().to_vector(), before);
}

TEST(BackwardTwice, KeepsTheSavedTensorsOfARetainedGraphUnchanged) {
  const Tensor a = leaf({1, 2, 3});
  const Tensor y = sum(square(mul(a, a)));
  LedgerGuard guard;
  backward(y, {}, true);
  const V once = a.grad().to_vector();
  Tensor again = a;
  again.set_grad({});
  backward(y);
  EXPECT_EQ(again.grad().to_vector(), once);
}

TEST(Refusals, OfBackward) {
  const Tensor a = leaf({1, 2}), y = square(a);
  expect_error([&] { backward(y); }, "grad can be implicitly created only for scalar outputs");
  expect_error([&] { backward(y, make({1})); }, "a gradient of shape (1,) for a tensor of shape (2,)");
  expect_error([&] { backward(sum(y), Tensor::from(std::vector<float>{1}, Dims(1))); }, "a gradient of shape (1,)");
  expect_error([&] { backward(y, to(make({1, 2}), DType::kBF16)); }, "a bf16 gradient on");
  expect_error([&] { backward(make({1})); }, "does not require grad and does not have a grad_fn");
  expect_error([&] { backward({}); }, "takes a tensor");
  expect_error([&] { backward(sum(y), {}, false, true); }, "create_graph");
  expect_error([&] { grad({sum(y)}, {a}, {}, false, false, true); }, "create_graph");
  backward(y, make({1, 1}));
  EXPECT_EQ(a.grad().to_vector(), (V{2, 4}));
}

TEST(Refusals, OfTensors) {
  Tensor a = leaf({1}), y = square(a), c = make({1});
  expect_error([&] { y.requires_grad_(false); }, "use detach()");
  expect_error([&] { c.retain_grad(); }, "takes a tensor that requires a gradient");
  expect_error([&] { register_hook(c, [](const Tensor& g) { return g; }); }, "requires a gradient");
  expect_error([&] { register_post_accumulate_grad_hook(y, [](Tensor&) {}); }, "takes a leaf");
  EXPECT_EQ(a.retain_grad().grad().defined(), false);
  expect_error([&] { y.set_grad(make({1})); }, "grad can be set on a leaf");
  expect_error([&] { c.set_grad(make({1})); }, "grad can be set on a leaf");
  expect_error([&] { a.set_grad(make({1, 2})); }, "a gradient of shape (2,) on");
  EXPECT_FALSE(y.detach().requires_grad());
  EXPECT_TRUE(y.detach().shares_storage(y));
}

TEST(GradMode, NestsAndComesBack) {
  const Tensor a = leaf({1});
  {
    NoGrad quiet;
    EXPECT_FALSE(square(a).requires_grad());
    {
      EnableGrad on;
      EXPECT_TRUE(square(a).requires_grad());
    }
    EXPECT_FALSE(square(a).requires_grad());
  }
  EXPECT_TRUE(square(a).requires_grad());
}

TEST(Grad, TouchesNoGradientOfATensor) {
  Tensor a = leaf({2}), b = leaf({3});
  a.set_grad(make({100}));
  const Tensor y = mul(square(a), b);
  const std::vector<Tensor> g = grad({y}, {a, b}, {}, true);
  EXPECT_EQ(g[0].item(), 12);
  EXPECT_EQ(g[1].item(), 4);
  EXPECT_EQ(a.grad().item(), 100);
  EXPECT_FALSE(b.grad().defined());
  backward(y);
  EXPECT_EQ(a.grad().item(), 112);
}

TEST(Grad, OfHiddenTensorsAndSeveralOutputs) {
  const Tensor a = leaf({2}), h = square(a), y = square(h), z = affine(h, 3, 0);
  const std::vector<Tensor> g = grad({y, z}, {h, a, h}, {make({1}), make({10})}, true);
  EXPECT_EQ(g[0].item(), 2 * 4 + 30);
  EXPECT_EQ(g[1].item(), 4 * 38);
  EXPECT_EQ(g[2].item(), 38);
  EXPECT_FALSE(h.grad().defined());
  EXPECT_EQ(grad({y}, {y})[0].item(), 1);  // of a tensor itself
}

TEST(Grad, RunsOnlyWhatLeadsToTheInputs) {
  const Tensor a = leaf({2}), b = leaf({3});
  const Tensor y = mul(square(a), exp(b));
  LedgerGuard guard;
  const Tensor g = grad({y}, {a}, {}, true)[0];
  for (const Ledger::Entry& e : guard.ledger().entries()) EXPECT_LT(e.launches, 2) << e.op;
  EXPECT_EQ(guard.ledger().launches(), 3);  // the 1, the product, the square
  EXPECT_NEAR(g.item(), 4 * std::exp(3), tolerance());
}

TEST(Grad, WorksWhereTheGraphBelowTheInputRan) {
  const Tensor a = leaf({2}), h = square(a);
  backward(mul(h, h), {}, false);
  const Tensor y = exp(h);
  EXPECT_NEAR(grad({y}, {h})[0].item(), std::exp(4), tolerance());
  expect_error([&] { backward(exp(h)); }, "a second time");
}

TEST(Grad, UnusedInputs) {
  const Tensor a = leaf({2}), b = leaf({3}), c = make({1});
  const Tensor y = square(a);
  expect_error([&] { grad({y}, {a, b}, {}, true); }, "One of the differentiated Tensors appears to not have been used");
  const std::vector<Tensor> g = grad({y}, {a, b}, {}, true, true);
  EXPECT_EQ(g[0].item(), 4);
  EXPECT_FALSE(g[1].defined());
  expect_error([&] { grad({y}, {c}); }, "does not require a gradient");
  expect_error([&] { grad({c}, {a}); }, "nothing that led to an output");
  expect_error([&] { grad({y}, {a}, {c, c}); }, "2 gradients for 1 outputs");
}

TEST(Hooks, SeeAndReplaceTheCompleteGradient) {
  const Tensor a = leaf({2}), h = square(a);
  V seen;
  HookHandle first = register_hook(h, [&](const Tensor& g) {
    seen.push_back(g.item());
    return affine(g, 10, 0);
  });
  const HookHandle second = register_hook(h, [&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  const auto run = [&] { backward(add(affine(h, 3, 0), affine(h, 4, 0)), {}, true); };
  run();
  EXPECT_EQ(seen, (V{7, 70}));
  EXPECT_EQ(a.grad().item(), 70 * 4);
  first.remove();
  first.remove();
  seen.clear();
  run();
  EXPECT_EQ(seen, (V{7}));
}

TEST(Hooks, OfALeafSeeTheGradientOfThisRunOnly) {
  Tensor a = leaf({2});
  backward(square(a));
  V seen, after;
  register_hook(a, [&](const Tensor& g) {
    seen.push_back(g.item());
    return neg(g);
  });
  register_post_accumulate_grad_hook(a, [&](Tensor& p) {
    after.push_back(p.grad().item());
    p.set_grad({});
  });
  backward(add(square(a), affine(a, 3, 0)));
  EXPECT_EQ(seen, (V{7}));
  EXPECT_EQ(after, (V{4 - 7}));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(grad({square(a)}, {a})[0].item(), -4);  // hooks on gradients run, those on grad() do not
  EXPECT_EQ(after.size(), 1u);
}

TEST(Hooks, RetainGradKeepsWhatHooksMade) {
  const Tensor a = leaf({2});
  Tensor h = square(a);
  h.retain_grad();
  register_hook(h, [](const Tensor& g) { return affine(g, 2, 0); });
  backward(affine(h, 5, 0), {}, true);
  EXPECT_EQ(h.grad().item(), 10);
  EXPECT_EQ(a.grad().item(), 40);
  backward(affine(h, 5, 0));
  EXPECT_EQ(h.grad().item(), 20);
}

TEST(Hooks, AWrongGradientIsRefusedAndGradStays) {
  Tensor a = leaf({1, 2});
  a.set_grad(make({7, 8}));
  register_hook(a, [](const Tensor& g) { return sum(g); });
  expect_error([&] { backward(sum(square(a))); }, named("a hook returned a % gradient of shape () for one of %"));
  EXPECT_EQ(a.grad().to_vector(), (V{7, 8}));
}

// x^3 * scale, with both written by hand.
struct Cube {
  float scale = 1;
  std::vector<Tensor> forward(FunctionContext& c, const std::vector<Tensor>& x) {
    EXPECT_TRUE(NoGrad::active());
    c.save({x[0]});
    return {affine(mul(square(x[0]), x[0]), scale, 0)};
  }
  std::vector<Tensor> backward(FunctionContext& c, const std::vector<Tensor>& g) {
    EXPECT_TRUE(c.needs(0));
    return {mul(g[0], affine(square(c.saved()[0]), 3 * scale, 0))};
  }
};

TEST(Custom, AFunctionOfTheUsersOwn) {
  const Tensor x = leaf({1, -2});
  const Tensor y = apply(Cube{2}, {x})[0];
  EXPECT_EQ(y.to_vector(), (V{2, -16}));
  EXPECT_FALSE(y.is_leaf());
  backward(sum(mul(y, y)), {}, true);
  EXPECT_EQ(x.grad().to_vector(), (V{2 * 2 * 6, 2 * -16 * 24}));
  EXPECT_FALSE(apply(Cube{2}, {x.detach()})[0].requires_grad());
  const Tensor z = apply(Cube{1}, {x}, "Cube")[0];
  add_(x.detach(), make({1, 1}));
  expect_error([&] { backward(sum(z)); }, named("the backward of Cube needs the % tensor of shape (2,) at version 0"));
}

// Outputs of which some need no gradient, an input that passes through, a gradient that nothing flowed into.
struct Parts {
  std::vector<Tensor> forward(FunctionContext& c, const std::vector<Tensor>& x) {
    c.save({x[0], Tensor()});
    return {x[0], Tensor::from(std::vector<int32_t>{7}, Dims(1)), square(x[0]), Tensor()};
  }
  std::vector<Tensor> backward(FunctionContext& c, const std::vector<Tensor>& g) {
    EXPECT_FALSE(c.saved()[1].defined());
    EXPECT_FALSE(g[1].defined() || g[2].defined());
    return {affine(g[0], 5, 0)};
  }
};

TEST(Custom, OutputsOfSeveralKinds) {
  const Tensor x = leaf({3});
  const std::vector<Tensor> y = apply(Parts(), {x});
  EXPECT_TRUE(y[0].requires_grad() && y[2].requires_grad());
  EXPECT_FALSE(y[1].requires_grad() || y[3].defined() || y[3].requires_grad());
  EXPECT_TRUE(x.is_leaf());
  backward(y[0]);
  EXPECT_EQ(x.grad().item(), 5);
}

TEST(Custom, WhatItSavesIsInTheLedger) {
  LedgerGuard guard;
  const Tensor x = leaf({1, 2});
  Tensor y = apply(Cube{1}, {x})[0];
  EXPECT_EQ(total(guard.ledger().saved()), 256);
  backward(sum(y));
  EXPECT_EQ(total(guard.ledger().saved()), 0);
}

struct Wrong {
  int kind = 0;
  std::vector<Tensor> forward(FunctionContext&, const std::vector<Tensor>& x) { return {square(x[0])}; }
  std::vector<Tensor> backward(FunctionContext&, const std::vector<Tensor>& g) {
    if (kind == 0) return {};
    if (kind == 1) return {sum(g[0])};
    return {Tensor()};
  }
};

TEST(Custom, WrongGradientsAreRefused) {
  const Tensor x = leaf({1, 2});
  expect_error([&] { backward(sum(apply(Wrong{0}, {x}, "Wrong")[0])); }, "Wrong returned 0 gradients for 1 inputs");
  expect_error([&] { backward(sum(apply(Wrong{1}, {x}, "Wrong")[0])); },
               named("the backward of Wrong returned a % gradient of shape () on"));
  backward(sum(apply(Wrong{2}, {x}, "Wrong")[0]));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Tape, ABackwardOverManyInputsIsRecordedFromAVector) {
  std::vector<Tensor> x;
  for (int i = 0; i < 20; ++i) x.push_back(leaf({static_cast<double>(i)}));
  Tensor y = make({1});
  record(Outputs(y), std::vector<std::reference_wrapper<const Tensor>>(x.begin(), x.end()), std::vector<Tensor>(),
         [](Backward& b) {
           for (int i = 0; i < b.inputs(); ++i) b.add(i, affine(b.grad(), static_cast<float>(i), 0));
         });
  backward(y);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(x[static_cast<size_t>(i)].grad().item(), i);
}

TEST(Tape, DeepGraphsRunAndAreFreed) {
  const Tensor a = leaf({1});
  Tensor x = a;
  for (int i = 0; i < 100'000; ++i) x = add(x, a);
  const std::vector<Tensor> g = grad({x}, {a}, {}, true);
  EXPECT_EQ(g[0].item(), 100'001);
  backward(x, {}, true);
  EXPECT_EQ(a.grad().item(), 100'001);
}

// 1,000 scalar adds, forward and backward: the tape's own cost (the issue asks for 1 us an op).
TEST(Tape, ScalarAddsCost) {
  using Clock = std::chrono::steady_clock;
  if (test_device().kind != DeviceKind::kCpu) GTEST_SKIP() << "the host's cost is measured on the CPU";
  double best = 1e9;
  for (int repeat = 0; repeat < 50; ++repeat) {
    const Tensor a = Tensor::from(std::vector<float>{1}, Dims(1)).requires_grad_();
    const auto start = Clock::now();
    Tensor x = a;
    for (int i = 0; i < 1000; ++i) x = add(x, a);
    backward(x);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    ASSERT_EQ(a.grad().item(), 1001);
  }
  if (std::getenv("TALLY_PERF") != nullptr) std::printf("scalar add, forward and backward: %.0f ns\n", best * 1e6);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(best * 1e3, 10) << "ms for 1000 adds: ten times what is measured on a quiet machine";
#endif
}

}  // namespace
}  // namespace tally::test
