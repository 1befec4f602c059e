#include "tally/ops/losses.h"

#include <limits>

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/losses_kernels.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

template <class N>
N softplus_of_minus(N x) {
  return num_max(-x, N(0.0)) + num_log(N(1.0) + num_exp(-num_max(x, -x)));
}
template <class N>
N log_or_zero(N t) {
  const N log = num_log(t);
  return num_where(
      t, [](auto v) { return v != 0; }, log, N(0.0));
}

const bool loss_reference = register_reference<LossArgs>([](const LossArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto xs = io.in(a.x), ts = io.in(a.target), ws = io.in(a.weight);
  auto& out = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k) {
    const N x = xs.flat(k), t = ts.flat(k), w = ws.flat(k);
    switch (a.op) {
      case LossOp::kMse: {
        const N d = x - t;
        out.flat(k) = d * d;
        break;
      }
      case LossOp::kBce:
        out.flat(k) = (N(1.0) - t) * x + (N(1.0) + (w - N(1.0)) * t) * softplus_of_minus(x);
        break;
      case LossOp::kKl:
        out.flat(k) = t * log_or_zero(t) - t * x;
        break;
      case LossOp::kKlLog:
        out.flat(k) = num_exp(t) * (t - x);
    }
  }
});

const bool gradient_reference = register_reference<LossBackwardArgs>([](const LossBackwardArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto xs = io.in(a.x), ts = io.in(a.target), ws = io.in(a.weight), gs = io.in(a.grad);
  auto& out = io.out(a.d);
  for (int64_t k = 0; k < a.d.numel(); ++k) {
    const N x = xs.flat(k), t = ts.flat(k), w = ws.flat(k), g = gs.flat(k), one = 1.0;
    N& d = out.flat(k);
    switch (a.op) {
      case LossOp::kMse:
        d = N(2.0) * (a.by_target ? t - x : x - t) * g;
        break;
      case LossOp::kBce:
        if (a.by_target) {
          d = g * ((w - one) * softplus_of_minus(x) - x);
        } else {
          d = g * ((one - t) - (one + (w - one) * t) * (one / (one + num_exp(x))));
        }
        break;
      case LossOp::kKl:
        d = a.by_target ? g * (log_or_zero(t) + one - x) : -(g * t);
        break;
      case LossOp::kKlLog:
        d = a.by_target ? g * num_exp(t) * (t - x + one) : -(g * num_exp(t));
    }
  }
});

const bool nll_reference = register_reference<NllArgs>([](const NllArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.logp);
  auto targets = io.index(a.targets);
  auto &losses = io.out(a.losses), &count = io.out(a.count);
  const int64_t n = a.logp.size[a.logp.rank() - 1];
  double valid = 0;
  for (int64_t row = 0; row < a.targets.numel(); ++row) {
    const bool ignored = targets.flat(row) == static_cast<double>(a.ignore_index);
    N loss = -x.flat(row * n + (ignored ? 0 : static_cast<int64_t>(targets.flat(row))));
    if (a.smoothing > 0) {
      N total = 0.0;
      for (int64_t i = 0; i < n; ++i) total += x.flat(row * n + i);
      loss = N(1 - a.smoothing) * loss - N(a.smoothing / static_cast<double>(n)) * total;
    }
    losses.flat(row) = ignored ? N(0.0) : loss;
    valid += !ignored;
  }
  count.flat(0) = N(valid);
});

const bool nll_gradient_reference = register_reference<NllBackwardArgs>([](const NllBackwardArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto grad = io.in(a.grad);
  auto targets = io.index(a.targets);
  auto& dx = io.out(a.dlogp);
  const int64_t n = a.dlogp.size[a.dlogp.rank() - 1];
  for (int64_t row = 0; row < a.targets.numel(); ++row) {
    const bool ignored = targets.flat(row) == static_cast<double>(a.ignore_index);
    const N even = -(grad.flat(row) * N(a.smoothing / static_cast<double>(n)));
    const N at_target = even - grad.flat(row) * N(1 - a.smoothing);
    for (int64_t i = 0; i < n; ++i) dx.flat(row * n + i) = ignored ? N(0.0) : even;
    if (!ignored) dx.flat(row * n + static_cast<int64_t>(targets.flat(row))) = at_target;
  }
});

const bool outside_reference = register_reference<FindOutsideArgs>([](const FindOutsideArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto index = io.index(a.index);
  auto& out = io.out(a.out);
  double found = -1;
  for (int64_t i = a.index.numel() - 1; i >= 0; --i) {
    const double x = index.flat(i);
    if ((x < 0 || x >= static_cast<double>(a.limit)) && x != static_cast<double>(a.allowed))
      found = static_cast<double>(i);
  }
  out.flat(0) = N(found);
});

constexpr Reduction kReductions[] = {Reduction::kMean, Reduction::kSum, Reduction::kNone};

Tensor on_device(const Tensor& t) { return to(t, test_device()); }
Tensor floats(const std::vector<float>& values, const Dims& size) { return on_device(Tensor::from(values, size)); }
Tensor ids(const std::vector<int32_t>& values) {
  return on_device(Tensor::from(values, Dims(static_cast<int64_t>(values.size()))));
}

struct Pair {
  Dims input, target;
};
const std::vector<Pair> kPairs = {{Dims(), Dims()},         {Dims(7), Dims(7)},
                                  {Dims(3, 5), Dims(3, 5)}, {Dims(2, 3, 33), Dims(3, 1)},
                                  {Dims(1, 3), Dims(4, 3)}, {Dims(0, 3), Dims(0, 3)}};

TEST(Losses, MseCases) {
  for (const Pair& p : kPairs)
    for (const Reduction r : kReductions)
      run_op_case({"mse_loss " + str(p.input) + " " + str(p.target), {{p.input}, {p.target}}, [=](const auto& x) {
                     return mse_loss(x[0], x[1], r);
                   }});
}

TEST(Losses, KlCases) {
  for (const Pair& p : kPairs)
    for (const Reduction r : kReductions) {
      run_op_case({"kl_div " + str(p.input) + " " + str(p.target),
                   {{p.input}, {p.target, Input::kPositive}},
                   [=](const auto& x) { return kl_div(x[0], x[1], r); }});
      run_op_case({"kl_div log_target " + str(p.input) + " " + str(p.target),
                   {{p.input}, {p.target}},
                   [=](const auto& x) { return kl_div(x[0], x[1], r, true); }});
    }
  // A probability of 0 adds nothing.
  const Tensor y = kl_div(floats({-1, -2}, Dims(2)), floats({0, 1}, Dims(2)), Reduction::kNone);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{0, 2}));
}

TEST(Losses, BceCases) {
  for (const Dims& size : {Dims(), Dims(7), Dims(3, 5), Dims(2, 3, 33), Dims(0, 3)})
    for (const Reduction r : kReductions) {
      run_op_case({"bce " + str(size), {{size}, {size, Input::kPositive}}, [=](const auto& x) {
                     return binary_cross_entropy_with_logits(x[0], x[1], r);
                   }});
      if (size.rank == 0) continue;
      run_op_case({"bce with weights " + str(size),
                   {{size}, {size, Input::kPositive}, {Dims(size[size.rank - 1]), Input::kPositive, 0, false}},
                   [=](const auto& x) { return binary_cross_entropy_with_logits(x[0], x[1], r, x[2]); }});
    }
}

TEST(Losses, BceIsStable) {
  const Tensor x = floats({100, -100, 100, -100, 20, 0}, Dims(6)), t = floats({1, 0, 0, 1, 1, 0.5f}, Dims(6));
  const std::vector<double> y = binary_cross_entropy_with_logits(x, t, Reduction::kNone).to_vector();
  EXPECT_NEAR(y[0], 3.783506e-44, 2e-45);
  EXPECT_NEAR(y[1], 0, 1e-30);
  EXPECT_EQ(y[2], 100);
  EXPECT_EQ(y[3], 100);
  EXPECT_NEAR(y[4], 2.0611537e-9, 1e-15);
  EXPECT_NEAR(y[5], 0.6931472, 1e-7);
}

TEST(Losses, ClassCases) {
  for (const auto& [input, target] : std::vector<Pair>{{Dims(4), Dims()},
                                                       {Dims(5, 4), Dims(5)},
                                                       {Dims(3, 4, 2), Dims(3, 2)},
                                                       {Dims(2, 7, 3, 2), Dims(2, 3, 2)},
                                                       {Dims(3, 1030), Dims(3)},
                                                       {Dims(0, 4), Dims(0)}})
    for (const Reduction r : kReductions)
      for (const int64_t ignore : {-100, 2})
        for (const double smoothing : {0.0, 0.1, 1.0}) {
          if (target.numel() < 2 && ignore == 2) continue;
          const int64_t classes = input.rank > 1 ? input[1] : input[0];
          OpCase c{"cross_entropy_loss " + str(input) + " smoothing " + std::to_string(smoothing),
                   {{input}, {target, Input::kIndex, classes}},
                   [=](const auto& x) { return cross_entropy_loss(x[0], x[1], ignore, r, smoothing); }};
          if (input.numel() > 1000 && r != Reduction::kMean) continue;
          run_op_case(c);
          if (smoothing > 0) continue;
          c.name = "nll_loss " + str(input);
          c.run = [=](const auto& x) { return nll_loss(x[0], x[1], ignore, r); };
          run_op_case(c);
        }
}

// log softmax = x - 1.7 - log(e^-1.2 + e^-0.2 + 1 ..), by PyTorch 2.
TEST(Losses, LabelSmoothing) {
  const Tensor x = floats({0.5f, 1.5f, 1.7f, -1, 0, 2}, Dims(2, 3));
  const Tensor loss = cross_entropy_loss(x, ids({1, 2}), -100, Reduction::kNone, 0.3);
  const auto by_hand = [](const std::vector<double>& row, int target) {
    double sum = 0, all = 0;
    for (const double v : row) sum += std::exp(v);
    for (const double v : row) all += v - std::log(sum);
    return -0.7 * (row[target] - std::log(sum)) - 0.3 / 3 * all;
  };
  EXPECT_NEAR(loss.to_vector()[0], by_hand({0.5, 1.5, 1.7}, 1), 1e-6);
  EXPECT_NEAR(loss.to_vector()[1], by_hand({-1, 0, 2}, 2), 1e-6);
}

TEST(Losses, LogSoftmax) {
  for (const Dims& size : {Dims(7), Dims(3, 5), Dims(2, 3, 33), Dims(40, 70), Dims(0, 3)})
    for (int axis = -1; axis < size.rank; ++axis) {
      if (size[axis < 0 ? size.rank - 1 : axis] == 0) continue;
      run_op_case({"log_softmax " + str(size) + " along " + std::to_string(axis), {{size}}, [=](const auto& x) {
                     return log_softmax(x[0], axis);
                   }});
    }
  const Tensor large = log_softmax(floats({10000.5f, 10000, 9999}, Dims(3)));
  const double sum = std::exp(0.0) + std::exp(-0.5) + std::exp(-1.5);
  EXPECT_NEAR(large.to_vector()[1], -0.5 - std::log(sum), 1e-6);
}

TEST(Losses, Errors) {
  const Tensor x = floats(std::vector<float>(6, 0), Dims(2, 3));
  const auto value_error = [](const auto& f, const std::string& part) {
    try {
      f();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kValue);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  value_error(
      [&] {
        cross_entropy_loss(x, ids({0, 1, 2}));
      },
      "expected a target of shape (2,) for an input of shape (2, 3)");
  value_error([&] { binary_cross_entropy_with_logits(x, floats({1}, Dims(1))); }, "target size (1,) must be the same");
  expect_error([&] { mse_loss(x, floats({1, 2}, Dims(2))); }, "mse_loss: shapes (2, 3) and (2,) do not broadcast");
  expect_error([&] { cross_entropy_loss(x, x); }, "indices are i32 or i64");
  expect_error([&] { cross_entropy_loss(x, ids({0, 1}), -100, Reduction::kMean, 1.5); }, "label_smoothing is 1.5");
  expect_error([&] { mse_loss(x, to(x, DType::kBF16)); }, "mse_loss: dtypes f32 and bf16 differ");
}

// Only the ignored value may lie outside the classes.
TEST(Traps, O10_CrossEntropyTargets) {
  const Tensor five = floats(std::vector<float>(15, 0), Dims(3, 5)),
               four = floats(std::vector<float>(12, 0), Dims(3, 4));
  for (const auto& bad : {ids({1, 2, -4}), ids({1, 2, 5}),
                          on_device(to(Tensor::from(std::vector<int32_t>{1, -2, 0}, Dims(3)), DType::kI64))})
    for (const double smoothing : {0.0, 0.1}) {
      try {
        cross_entropy_loss(five, bad, -1, Reduction::kMean, smoothing);
        ADD_FAILURE() << "no error";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind, ErrorKind::kIndex) << e.what();
        EXPECT_NE(std::string(e.what()).find("is outside 0..4"), std::string::npos) << e.what();
      }
    }
  const Tensor ignored = ids({1, 255, 3});
  for (const bool by_nll : {false, true}) {
    const auto loss = [&](Reduction r) {
      return by_nll ? nll_loss(log_softmax(four), ignored, 255, r) : cross_entropy_loss(four, ignored, 255, r);
    };
    const std::vector<double> each = loss(Reduction::kNone).to_vector();
    EXPECT_NEAR(each[0], 1.3862944, 1e-6);
    EXPECT_EQ(each[1], 0);
    EXPECT_NEAR(each[2], 1.3862944, 1e-6);
    EXPECT_NEAR(loss(Reduction::kMean).item(), 1.3862944, 1e-6);
  }
}

// Rows that are masked throughout: one answer for every length.
TEST(Traps, O04_SoftmaxOfMaskedRows) {
  for (int64_t n = 1; n <= 300; ++n) {
    const std::vector<float> masked(static_cast<size_t>(n), -std::numeric_limits<float>::infinity());
    Tensor x = floats(masked, Dims(n)).set_requires_grad();
    const Tensor y = softmax(x);
    EXPECT_EQ(y.to_vector(), std::vector<double>(static_cast<size_t>(n), 0.0)) << n;
    backward(y, floats(std::vector<float>(static_cast<size_t>(n), 1), Dims(n)));
    EXPECT_EQ(x.grad().to_vector(), std::vector<double>(static_cast<size_t>(n), 0.0)) << n;
  }
}

}  // namespace
}  // namespace tally::test
