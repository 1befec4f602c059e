#include "tally/nn/conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tally/core/tape.h"
#include "tally/nn/module.h"
#include "tally/ops/backward.h"
#include "tally/ops/reduce.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

TEST(ConvModules, NamesShapesAndValues) {
  Init init(3, kCpu);
  Conv1d::How grouped;
  grouped.stride = 2, grouped.padding = 1, grouped.groups = 2;
  Conv1d one(init, 4, 6, 3, grouped);
  Conv2d two(init, 3, 8, {3, 5});
  EXPECT_EQ(one.weight.sizes(), Dims(6, 2, 3));
  EXPECT_EQ(two.weight.sizes(), Dims(8, 3, 3, 5));
  const StateDict names = state_dict(two);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].first + " " + names[1].first, "weight bias");
  const double bound = 1 / std::sqrt(3 * 3 * 5);
  for (const Tensor& t : {two.weight, two.bias}) {
    double most = 0;
    for (const double v : t.to_vector()) most = std::max(most, std::abs(v));
    EXPECT_LE(most, bound);
    EXPECT_GT(most, bound / 2);  // 8 draws are all below with a chance of 1 in 256
  }
  EXPECT_EQ(one(Tensor::empty(Dims(2, 4, 9))).sizes(), Dims(2, 6, 5));
  EXPECT_EQ(two(Tensor::empty(Dims(3, 9, 9))).sizes(), Dims(8, 7, 5));
}

TEST(ConvModules, LearnAndHaveNoBiasWhereToldSo) {
  Init init(3, kCpu);
  Conv2d::How how;
  how.padding = {1, 0}, how.bias = false;
  Conv2d conv(init, 2, 4, 3, how);
  EXPECT_EQ(state_dict(conv).size(), 1u);
  conv.weight.set_requires_grad();
  Tensor x = init.normal(Dims(1, 2, 4, 4), 1);
  const Tensor y = conv(x);
  EXPECT_EQ(y.sizes(), Dims(1, 4, 4, 2));
  backward(sum(y));
  EXPECT_EQ(conv.weight.grad().sizes(), conv.weight.sizes());
}

TEST(ConvModules, GroupsThatDoNotDivideAreRefused) {
  Init init(3, kMetaCpu);
  Conv1d::How how;
  for (const int64_t groups : {3, 0, -1}) {
    how.groups = groups;
    expect_error([&] { Conv1d(init, 4, 6, 3, how); }, "do not divide 4 channels in and 6 out");
  }
}

}  // namespace
}  // namespace tally::test
