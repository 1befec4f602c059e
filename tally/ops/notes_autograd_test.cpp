// The course's notes on gradients, line by line (A156-A171), lines with a slip at the right value.
#include <cmath>

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

// pred = x @ w = 6, loss = 0.5 (pred - 5)^2
struct Linear1 {
  Tensor x = to(Tensor::from(std::vector<float>{1, 2, 3}, Dims(3)), test_device());
  Tensor w = to(Tensor::from(std::vector<float>{1, 1, 1}, Dims(3)), test_device()).requires_grad_();
  Tensor pred = sum(mul(x, w));
  Tensor loss = affine(square(affine(pred, 1, -5)), 0.5f, 0);
};

TEST(Notes, A156_ALinearModelAndItsLoss) {
  const Linear1 m;
  EXPECT_EQ(m.pred.item(), 6);
  EXPECT_EQ(m.loss.item(), 0.5);
}

TEST(Notes, A157_TheGradientOfTheWeights) {
  const Linear1 m;
  backward(m.loss);
  EXPECT_EQ(m.w.grad().to_vector(), (V{1, 2, 3}));
}

TEST(Notes, A158_NoGradientOfWhatIsNoLeafOrNeedsNone) {
  const Linear1 m;
  backward(m.loss);
  EXPECT_FALSE(m.loss.grad().defined());
  EXPECT_FALSE(m.pred.grad().defined());
  EXPECT_FALSE(m.x.grad().defined());
  EXPECT_TRUE(m.w.is_leaf() && m.x.is_leaf());
  EXPECT_FALSE(m.pred.is_leaf() || m.loss.is_leaf());
}

TEST(Notes, A159_TheModelIsLinearAndItsLossSquare) {
  const auto model = [](double w) {
    return sum(mul(Tensor::from(V{1, 2, 3}, Dims(3)), Tensor::from(V{w, w, w}, Dims(3)))).item();
  };
  EXPECT_EQ(model(2), 2 * model(1));
  const auto loss = [&](double w) { return 0.5 * std::pow(model(w) - 5, 2); };
  EXPECT_NE(loss(2), 2 * loss(1));
}

constexpr int64_t kB = 3, kD = 4, kK = 2;

V numbers(int64_t n, double step) {
  V v;
  for (int64_t i = 0; i < n; ++i) v.push_back(step * static_cast<double>(i * 7 % 11 - 5));
  return v;
}

// h1 = x @ w1, h2 = h1 @ w2, loss = mean(h2^2), in double, on the CPU; the hidden layers keep their gradients.
struct Linear2 {
  Tensor x = Tensor::from(numbers(kB * kD, 0.25), Dims(kB, kD));
  Tensor w1 = Tensor::from(numbers(kD * kD, 0.125), Dims(kD, kD)).requires_grad_();
  Tensor w2 = Tensor::from(numbers(kD * kK, 0.5), Dims(kD, kK)).requires_grad_();
  Tensor h1 = matmul(x, w1), h2 = matmul(h1, w2), loss = mean(square(h2));
  Linear2() {
    h1.retain_grad(), h2.retain_grad();
    backward(loss);
  }
};

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const V p = a.to_vector(), q = b.to_vector();
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], q[i], 1e-14) << i;
}

TEST(Notes, A160_TheGradientOfTheSecondLayer) {
  const Linear2 m;
  const V h2 = m.h2.to_vector(), got = m.h2.grad().to_vector();
  for (size_t i = 0; i < h2.size(); ++i) EXPECT_NEAR(got[i], 2 * h2[i] / (kB * kK), 1e-15);
}

TEST(Notes, A161_TheGradientOfW2IsH1TransposedTimesThatOfH2) {
  const Linear2 m;
  expect_near(m.w2.grad(), matmul(transpose(m.h1.detach(), 0, 1), m.h2.grad()));
  EXPECT_EQ(m.w2.grad().sizes(), Dims(kD, kK));
}

// The notes write h2.grad[i,j] in the sum.
TEST(Notes, A162_TheSumGoesOverRowsWithIndexK) {
  const Linear2 m;
  const V h1 = m.h1.to_vector(), g2 = m.h2.grad().to_vector(), got = m.w2.grad().to_vector();
  for (int64_t j = 0; j < kD; ++j)
    for (int64_t k = 0; k < kK; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < kB; ++i) sum += h1[static_cast<size_t>(i * kD + j)] * g2[static_cast<size_t>(i * kK + k)];
      EXPECT_NEAR(got[static_cast<size_t>(j * kK + k)], sum, 1e-14);
    }
}

TEST(Notes, A163_TheGradientOfH1) {
  const Linear2 m;
  expect_near(m.h1.grad(), matmul(m.h2.grad(), transpose(m.w2.detach(), 0, 1)));
  EXPECT_EQ(m.h1.grad().sizes(), Dims(kB, kD));
}

TEST(Notes, A164_TheGradientOfW1AndFiniteDifferences) {
  const Linear2 m;
  expect_near(m.w1.grad(), matmul(transpose(m.x, 0, 1), m.h1.grad()));
  NoGrad quiet;
  const auto loss = [&](const V& w1) {
    const Tensor w = Tensor::from(w1, Dims(kD, kD));
    return mean(square(matmul(matmul(m.x, w), m.w2))).item();
  };
  const V w1 = m.w1.to_vector(), grad = m.w1.grad().to_vector();
  for (size_t i = 0; i < w1.size(); ++i) {
    V up = w1, down = w1;
    up[i] += 1e-4, down[i] -= 1e-4;
    EXPECT_NEAR((loss(up) - loss(down)) / 2e-4, grad[i], 4e-11 * 10);
  }
}

TEST(Notes, A165_AGradientHasItsTensorsShape) {
  const Linear2 m;
  for (const Tensor* t : {&m.w1, &m.w2, &m.h1, &m.h2}) EXPECT_EQ(t->grad().sizes(), t->sizes());
}

TEST(Notes, A166_HiddenGradientsAreKeptOnlyAfterRetainGrad) {
  const Tensor w = Tensor::from(V{2, 3}, Dims(2)).requires_grad_();
  Tensor h = square(w), kept = square(w);
  kept.retain_grad();
  EXPECT_TRUE(kept.retains_grad());
  EXPECT_FALSE(h.retains_grad());
  backward(sum(mul(h, kept)));
  EXPECT_FALSE(h.grad().defined());
  EXPECT_EQ(kept.grad().to_vector(), (V{4, 9}));
}

struct Flops {
  int64_t forward, backward;
};
// Of matrix products of the two layers, on meta.
Flops flops_of(int64_t b, int64_t d, int64_t k, bool x_needs_gradient) {
  LedgerGuard guard;
  Tensor x = Tensor::empty(Dims(b, d), DType::kF32, kMetaCpu).set_requires_grad(x_needs_gradient);
  Tensor w1 = Tensor::empty(Dims(d, d), DType::kF32, kMetaCpu).requires_grad_();
  Tensor w2 = Tensor::empty(Dims(d, k), DType::kF32, kMetaCpu).requires_grad_();
  const Tensor loss = mean(square(matmul(matmul(x, w1), w2)));
  const int64_t forward = guard.ledger().cost().matmul_flops;
  backward(loss);
  return {forward, guard.ledger().cost("backward").matmul_flops};
}

TEST(Notes, A167_ForwardFlops) {
  EXPECT_EQ(flops_of(1024, 256, 64, true).forward, 167772160);
  EXPECT_EQ(flops_of(16384, 32768, 8192, true).forward, 43980465111040);
}

TEST(Notes, A168_BackwardFlopsAreTwice) {
  EXPECT_EQ(flops_of(1024, 256, 64, true).backward, 335544320);
  EXPECT_EQ(flops_of(16384, 32768, 8192, true).backward, 87960930222080);
}

TEST(Notes, A169_SixTimesDataTimesParameters) {
  const Flops small = flops_of(1024, 256, 64, true), large = flops_of(16384, 32768, 8192, true);
  EXPECT_EQ(small.forward + small.backward, 503316480);
  EXPECT_EQ(large.forward + large.backward, 131941395333120);
  EXPECT_EQ(503316480, 6 * 1024 * int64_t{81920});
  EXPECT_EQ(131941395333120, 6 * 16384 * int64_t{1342177280});
}

TEST(Notes, A170_TheRuleOfTwoFourSix) {
  for (const auto& [b, d, k] : {std::tuple<int64_t, int64_t, int64_t>{2, 3, 5}, {7, 8, 1}, {1, 1, 1}}) {
    const Flops f = flops_of(b, d, k, true);
    const int64_t parameters = d * d + d * k;
    EXPECT_EQ(f.forward, 2 * b * parameters);
    EXPECT_EQ(f.backward, 4 * b * parameters);
  }
}

TEST(Notes, A171_WithoutAGradientOfXTheFirstLayerCostsLess) {
  const Flops f = flops_of(1024, 256, 64, false);
  EXPECT_EQ(f.forward + f.backward, 369098752);
  EXPECT_EQ(503316480 - 369098752, 2 * 1024 * 256 * 256);
}

}  // namespace
}  // namespace tally::test
