// Where saved tensors are: in the ledger, computed again (recompute), in host memory (OffloadSaved).
#include "tally/core/recompute.h"

#include "tally/base/generator.h"
#include "tally/core/hooks.h"
#include "tally/core/offload.h"
#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/dropout.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

// f64, where the device computes in it.
DType number_type() { return test_device().kind == DeviceKind::kCuda ? DType::kF32 : DType::kF64; }
Tensor tensor_of(const V& v, const Dims& size) { return to(to(Tensor::from(v, size), number_type()), test_device()); }

// Weights of a few layers and an input, on a device (meta too).
struct Net {
  Device device;
  std::vector<Tensor> w;
  Tensor x;
  explicit Net(Device d, int layers = 3, int64_t rows = 64, int64_t width = 32) : device(d) {
    for (int i = 0; i <= layers; ++i) {
      const Dims size = i < layers ? Dims(width, width) : Dims(rows, width);
      Tensor t = Tensor::empty(size, DType::kF32, d, i < layers ? Category::kParameter : Category::kData);
      if (d.kind != DeviceKind::kMeta) {
        std::vector<float> v(static_cast<size_t>(size.numel()));
        for (size_t k = 0; k < v.size(); ++k) v[k] = 0.03f * static_cast<float>(static_cast<int>(k * 37 % 101) - 50);
        copy_(t, to(Tensor::from(v, size), d));
      }
      if (i < layers) w.push_back(t.requires_grad_());
      if (i == layers) x = t;
    }
  }
  Tensor layer(size_t i, const Tensor& h) const {
    const Tensor z = gelu(matmul(h, w[i]));
    return add(dropout(tanh(z), 0.25f, 7, 100 + i), h);
  }
  std::vector<V> gradients() const {
    std::vector<V> all;
    for (const Tensor& t : w) all.push_back(t.grad().to_vector());
    return all;
  }
};

enum class Mode { kStored, kRecomputed, kNested, kOffloaded };

Tensor forward(const Net& n, Mode mode) {
  const auto layers = [&n](size_t from, size_t to, Tensor h, bool again) {
    for (size_t i = from; i < to; ++i) {
      ScopeGuard scope("layers." + std::to_string(i));
      h = again ? recompute([&n, i](const Tensor& t) { return n.layer(i, t); }, h) : n.layer(i, h);
    }
    return h;
  };
  switch (mode) {
    case Mode::kStored:
      return mean(square(layers(0, n.w.size(), n.x, false)));
    case Mode::kRecomputed:
      return mean(square(layers(0, n.w.size(), n.x, true)));
    case Mode::kNested:
      return mean(square(recompute([&n, layers](const Tensor& t) { return layers(0, n.w.size(), t, true); }, n.x)));
    case Mode::kOffloaded:
      break;
  }
  OffloadSaved scope;
  return mean(square(layers(0, n.w.size(), n.x, false)));
}

TEST(Recompute, GradientsAreTheStoredFormsBitForBit) {
  Net stored(test_device());
  backward(forward(stored, Mode::kStored));
  for (const Mode mode : {Mode::kRecomputed, Mode::kNested, Mode::kOffloaded}) {
    Net n(test_device());
    const Tensor loss = forward(n, mode);
    backward(loss, {}, true);
    EXPECT_EQ(n.gradients(), stored.gradients()) << static_cast<int>(mode);
    for (Tensor& w : n.w) w.set_grad({});
    backward(loss);  // of a retained graph, once more
    EXPECT_EQ(n.gradients(), stored.gradients()) << static_cast<int>(mode);
  }
}

TEST(Recompute, KeepsLessAndCountsWhatItComputesAgain) {
  Cost cost[3];
  int64_t saved[3] = {}, peak[3] = {};
  int k = 0;
  for (const Mode mode : {Mode::kStored, Mode::kRecomputed, Mode::kNested}) {
    LedgerGuard guard;
    const Net n(test_device(), 6);
    const Tensor loss = forward(n, mode);
    saved[k] = guard.ledger().saved()[static_cast<size_t>(Category::kActivation)];
    const Cost first = guard.ledger().cost();
    backward(loss);
    cost[k] = guard.ledger().cost("recompute");
    if (mode == Mode::kRecomputed) {
      const int64_t layers = 6 * 2 * 64 * 32 * int64_t{32};
      EXPECT_EQ(cost[k].matmul_flops, layers);
      EXPECT_EQ(first.matmul_flops, layers);
      std::vector<std::string> scopes;
      for (const Ledger::Entry& e : guard.ledger().entries())
        if (e.phase == "recompute" && std::string(e.op) == "matmul") scopes.push_back(e.scope);
      EXPECT_EQ(scopes.size(), 6u);
      EXPECT_EQ(scopes[0], "layers.5");
    }
    EXPECT_EQ(total(guard.ledger().saved()), 0);
    peak[k] = guard.ledger().at_peak()[static_cast<size_t>(Category::kActivation)];
    ++k;
  }
  const int64_t one = 64 * 32 * 4;
  EXPECT_EQ(cost[0].matmul_flops, 0);
  EXPECT_EQ(saved[0], 6 * one * 3);    // h (or x, which is data), matmul's result, gelu's, a layer; the sum
  EXPECT_EQ(saved[1], 5 * one + one);  // the inputs of layers 1 to 5, and of the square
  EXPECT_EQ(saved[2], one);            // of the square
  EXPECT_LT(peak[1], peak[0]);
  EXPECT_EQ(cost[2].matmul_flops, 2 * cost[1].matmul_flops);  // the outer's run, and each inner's
}

TEST(Recompute, ThePlanIsTheRun) {
  for (const Mode mode : {Mode::kRecomputed, Mode::kNested, Mode::kOffloaded}) {
    const Device target = test_device().kind == DeviceKind::kCuda ? kMetaCuda : kMetaCpu;
    const auto numbers = [&](Device d) {
      LedgerGuard guard;
      const Net n(d);
      if (d.kind != DeviceKind::kMeta) guard.ledger().clear_costs(), guard.ledger().reset_peak();
      const Tensor loss = forward(n, mode);
      const int64_t saved = total(guard.ledger().saved()), away = guard.ledger().offloaded_bytes();
      backward(loss);
      return std::vector<int64_t>{saved,
                                  away,
                                  guard.ledger().peak_bytes(),
                                  guard.ledger().cost().matmul_flops,
                                  guard.ledger().cost().other_flops,
                                  guard.ledger().cost().wire_bytes,
                                  guard.ledger().cost("recompute").other_flops,
                                  guard.ledger().launches()};
    };
    EXPECT_EQ(numbers(test_device()), numbers(target)) << static_cast<int>(mode);
  }
}

TEST(Recompute, TheSecondRunDrawsTheSameMasks) {
  const auto run = [](bool again) {
    Generator& g = manual_seed(3);
    g.set_draws(40);
    const Net n(test_device(), 1);
    const auto f = [&](const Tensor& x) {
      Tensor h = matmul(x, n.w[0]);
      for (int i = 0; i < 3; ++i) h = square(dropout(h, 0.5f, g.initial_seed(), g.next_stream()));
      return h;
    };
    const Tensor y = again ? recompute(f, n.x) : f(n.x);
    const Tensor later = dropout(y, 0.5f, g.initial_seed(), g.next_stream());
    EXPECT_EQ(g.draws(), 44u);
    backward(mean(later));
    EXPECT_EQ(g.draws(), 44u);
    return n.gradients();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Recompute, TakesSeveralInputsAndOutputs) {
  const auto leaf = [](double v) { return tensor_of(V{v}, Dims(1)).requires_grad_(); };
  const Tensor a = leaf(2), b = leaf(3), unused = leaf(1);
  const std::vector<Tensor> y = recompute(
      [](const Tensor& p, const Tensor& q, const Tensor&) {
        return std::vector<Tensor>{mul(p, q), square(p)};
      },
      a, b, unused);
  ASSERT_EQ(y.size(), 2u);
  backward(y[0], {}, false);  // one output now
  EXPECT_EQ(a.grad().item(), 3);
  backward(y[1]);  // the other later
  EXPECT_EQ(a.grad().item(), 7);
  EXPECT_EQ(b.grad().item(), 2);
  EXPECT_FALSE(unused.grad().defined());
  NoGrad quiet;
  EXPECT_FALSE(recompute([](const Tensor& p) { return square(p); }, a).requires_grad());
}

TEST(Recompute, GradAndHooksSeeTheWholeGradientOnce) {
  const Net n(test_device());
  int calls = 0;
  register_post_accumulate_grad_hook(n.w[0], [&](Tensor&) { ++calls; });
  const Tensor loss = forward(n, Mode::kNested);
  const std::vector<Tensor> g = grad({loss}, n.w, {}, true);
  backward(loss);
  EXPECT_EQ(calls, 1);
  for (size_t i = 0; i < n.w.size(); ++i) EXPECT_EQ(g[i].to_vector(), n.w[i].grad().to_vector());
}

TEST(Recompute, ADifferentSecondRunIsRefused) {
  const Tensor a = tensor_of(V{2, 3}, Dims(2)).requires_grad_();
  for (const int way : {0, 1, 2}) {
    int calls = 0;
    const Tensor y = recompute(
        [&](const Tensor& x) {
          const bool second = calls++ == 1;
          if (second && way == 0) return x;
          if (second && way == 1) return square(square(x));
          if (second && way == 2) return square(slice(x, 0, 0, 1));
          return square(x);
        },
        a);
    expect_error([&] { backward(sum(y)); }, "recompute: the function saved other tensors the second time");
  }
}

TEST(Recompute, WhatWasChangedInPlaceIsRefused) {
  const Tensor a = tensor_of(V{2, 3}, Dims(2)).requires_grad_();
  Tensor outside = tensor_of(V{5, 6}, Dims(2));
  const Tensor y = recompute([&](const Tensor& x) { return mul(x, outside); }, a);
  add_(outside, outside);
  expect_error([&] { backward(sum(y)); },
               std::string("has been modified by an inplace operation: recompute needs the ") + name_of(number_type()) +
                   " tensor of shape (2,) at version 0, but it is at version 1");
  const Tensor z = recompute([&](const Tensor& x) { return square(x); }, a);
  add_(a.detach(), outside);
  expect_error([&] { backward(sum(z)); }, "has been modified by an inplace operation: the backward of recompute needs");
}

TEST(SavedBytes, StandInTheLedgerByScope) {
  LedgerGuard guard;
  const Net n(test_device(), 2);
  const Tensor loss = forward(n, Mode::kStored);
  const int64_t one = 64 * 32 * 4, w = 32 * 32 * 4;
  const auto all = guard.ledger().saved_by_scope();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].first, "");
  EXPECT_EQ(total(all[0].second), one);  // of the square
  EXPECT_EQ(all[1].first, "layers.0");
  EXPECT_EQ(all[1].second[static_cast<size_t>(Category::kParameter)], w);
  EXPECT_EQ(all[1].second[static_cast<size_t>(Category::kData)], one);
  EXPECT_EQ(all[1].second[static_cast<size_t>(Category::kActivation)], 2 * one);
  EXPECT_EQ(all[2].second[static_cast<size_t>(Category::kActivation)], 3 * one);
  backward(loss);
  EXPECT_EQ(guard.ledger().saved_by_scope().size(), 0u);
}

TEST(Offload, SavedTensorsLeaveTheDevice) {
  int64_t live[2], saved[2], away[2];
  for (const bool offload : {false, true}) {
    LedgerGuard guard;
    const Net n(test_device());
    const Tensor loss = forward(n, offload ? Mode::kOffloaded : Mode::kStored);
    live[offload] = guard.ledger().live_bytes();
    saved[offload] = total(guard.ledger().saved());
    away[offload] = guard.ledger().offloaded_bytes();
    backward(loss);
    EXPECT_EQ(guard.ledger().offloaded_bytes(), 0);
    const int64_t moved = guard.ledger().cost().wire_bytes;
    EXPECT_EQ(moved, 2 * away[offload]);
  }
  const int64_t one = 64 * 32 * 4;
  EXPECT_EQ(away[0], 0);
  EXPECT_EQ(away[1], (3 * 3 + 1) * one);
  EXPECT_EQ(saved[1], 3 * 32 * 32 * 4);       // parameters
  EXPECT_EQ(live[0] - live[1], 3 * 3 * one);  // all but x, which is held here
}

TEST(Offload, SmallTensorsAndPartsStay) {
  const auto away = [](int64_t least, const std::function<Tensor(const Tensor&)>& f) {
    LedgerGuard guard;
    const Tensor x = tensor_of(V(64, 0.5), Dims(8, 8)).requires_grad_();
    OffloadSaved scope(least);
    const Tensor y = f(x);
    const int64_t bytes = guard.ledger().offloaded_bytes();
    backward(sum(y));
    EXPECT_TRUE(x.grad().defined());
    return bytes;
  };
  const auto whole = [](const Tensor& x) { return square(x); };
  const int64_t bytes = 64 * item_size(number_type());
  EXPECT_EQ(away(bytes, whole), bytes);
  EXPECT_EQ(away(bytes + 1, whole), 0);
  EXPECT_EQ(away(0, [](const Tensor& x) { return square(transpose(x, 0, 1)); }), bytes);
  EXPECT_EQ(away(0, [](const Tensor& x) { return square(slice(x, 1, 0, 1)); }), 0);  // a column
  EXPECT_EQ(away(0, [](const Tensor& x) { return square(expand(slice(x, 0, 0, 1), Dims(8, 8))); }), 0);
}

TEST(Offload, OfAView) {
  const Tensor x = tensor_of(V{1, 2, 3, 4, 5, 6}, Dims(2, 3)).requires_grad_();
  OffloadSaved scope;
  const Tensor y = mul(transpose(x, 0, 1), transpose(x, 0, 1));
  backward(sum(y));
  EXPECT_EQ(x.grad().to_vector(), (V{2, 4, 6, 8, 10, 12}));
}

}  // namespace
}  // namespace tally::test
