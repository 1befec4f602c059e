// Facts of the course's notes that reductions and losses stand for, by their numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/losses.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"

namespace tally::test {
namespace {

Tensor ones(const Dims& size) {
  Tensor x = Tensor::empty(size);
  fill_(x, 1);
  return x;
}

// Logits are log-probabilities up to a constant: softmax takes them back.
TEST(Notes, A019_LogitsAreUnnormalisedLogProbabilities) {
  const std::vector<float> p = {0.1f, 0.2f, 0.7f};
  std::vector<float> logits;
  for (const float q : p) logits.push_back(std::log(q) + 3);
  const std::vector<double> y = softmax(Tensor::from(logits, Dims(3))).to_vector();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(y[i], p[i], 1e-6);
}

TEST(Notes, A122_MeanOverTheLastAxis) {
  const Tensor y = mean(ones(Dims(2, 3, 4)), -1);
  EXPECT_EQ(y.sizes(), Dims(2, 3));
  EXPECT_EQ(y.to_vector(), std::vector<double>(6, 1.0));
}

TEST(Notes, A123_SumIsNotMean) {
  const Tensor x = ones(Dims(2, 3, 4));
  EXPECT_EQ(sum(x, -1).to_vector(), std::vector<double>(6, 4.0));
  EXPECT_EQ(mean(x, -1).to_vector(), std::vector<double>(6, 1.0));
}

TEST(Notes, A225_GradientOfTheMeanSquaredError) {
  const int64_t rows = 5, d = 3;
  const Tensor x = random_tensor({Dims(rows, d)}, DType::kF64, 1), y = random_tensor({Dims(rows, 1)}, DType::kF64, 2);
  Tensor w = random_tensor({Dims(d, 1)}, DType::kF64, 3).set_requires_grad();
  backward(mse_loss(matmul(x, w), y));
  const Tensor off = sub(matmul(x, w.detach()), y);
  const std::vector<double> want = matmul(transpose(x, 0, 1), off).to_vector(), got = w.grad().to_vector();
  for (int i = 0; i < d; ++i) EXPECT_NEAR(got[i], 2.0 / rows * want[i], 1e-12);
}

TEST(Notes, A227_MseLossIsTheMeanOfSquaredDifferences) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 4, 8}, Dims(2, 2));
  const Tensor y = Tensor::from(std::vector<float>{0, 4, 4, 5}, Dims(2, 2));
  EXPECT_EQ(mse_loss(x, y).item(), (1 + 4 + 0 + 9) / 4.0);
  EXPECT_EQ(mse_loss(x, y).item(), mean(square(sub(x, y))).item());
}

}  // namespace
}  // namespace tally::test
