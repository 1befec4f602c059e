#include "tally/ops/dropout.h"

#include <limits>

#include "tally/base/parallel.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

const bool reference = test::register_reference<DropoutArgs>([](const DropoutArgs& a, auto& io) {
  using N = test::NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto& out = io.out(a.out);
  const double step = a.step.size.rank > 0 ? io.index(a.step).flat(0) : 0;
  const uint64_t stream = a.stream + static_cast<uint64_t>(step) * kDropoutSteps;
  for (int64_t i = 0; i < a.out.numel(); ++i) {
    const N kept = x.flat(i) * N(a.scale);
    out.flat(i) = uniform_from_u32(random_u32(a.seed, stream, static_cast<uint64_t>(i))) >= a.p ? kept : N(0);
  }
});

Tensor ones(const Dims& size, DType dtype = DType::kF32) {
  Tensor x = Tensor::empty(size, dtype);
  fill_(x, 1);
  return x;
}

TEST(Dropout, Cases) {
  for (const float p : {0.1f, 0.5f, 0.999f, 1.0f})
    for (const Dims& size : {Dims(1), Dims(3), Dims(5, 7), Dims(2, 3, 4), Dims(1, 2000), Dims(0, 4), Dims(65, 17)})
      test::run_op_case({"dropout " + str(size), {{size}}, [=](const auto& in) { return dropout(in[0], p, 7, 9); }});
}

// A step on the device has the mask of the stream that a host would have computed, forward and backward.
TEST(Dropout, StepsOnTheDevice) {
  Tensor number = Tensor::empty({1}, DType::kI64);
  *number.data<int64_t>() = 37;
  const Tensor there = to(number, test::test_device());
  test::VerifyLaunches verify;
  std::vector<double> results[2][2];
  for (int k = 0; k < 2; ++k) {
    Tensor x = to(ones({3, 50}), test::test_device());
    x.set_requires_grad();
    const Tensor y = k ? dropout(x, 0.4f, 7, 9, there) : dropout(x, 0.4f, 7, 9 + 37 * kDropoutSteps);
    results[k][0] = y.to_vector();
    backward(y, to(ones({3, 50}), test::test_device()));
    results[k][1] = x.grad().to_vector();
  }
  EXPECT_EQ(results[0][0], results[1][0]);
  EXPECT_EQ(results[0][1], results[1][1]);
  EXPECT_EQ(results[0][0], results[0][1]);
  test::expect_error([&] { dropout(ones({2}), 0.5f, 1, 2, ones({1})); }, "step is one i64");
}

TEST(Dropout, TrapO14EndsOfP) {
  const float infinity = std::numeric_limits<float>::infinity();
  Tensor x = Tensor::from(std::vector<float>{1, -2, infinity, std::nanf("")}, {4});
  x.set_requires_grad();
  const Tensor none = dropout(x, 1, 123, 0);
  EXPECT_EQ(none.to_vector(), std::vector<double>(4, 0.0));
  backward(none, Tensor::from(std::vector<float>{1, infinity, std::nanf(""), 3}, {4}));
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(4, 0.0));
  EXPECT_TRUE(dropout(x, 0, 123, 0).shares_storage(x));
}

TEST(Dropout, TrapO14OneMaskForThreadsAndLayouts) {
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<double> one = dropout(ones({6, 6}), 0.5f, 123, 0).to_vector();
  set_num_threads(2);
  EXPECT_EQ(dropout(ones({6, 6}), 0.5f, 123, 0).to_vector(), one);
  EXPECT_EQ(dropout(transpose(ones({6, 6}), 0, 1), 0.5f, 123, 0).to_vector(), one);
  set_num_threads(before);
  int kept = 0;
  for (const double v : one) {
    EXPECT_TRUE(v == 0 || v == 2) << v;
    kept += v == 2;
  }
  EXPECT_GT(kept, 6);
  EXPECT_LT(kept, 30);
  EXPECT_NE(dropout(ones({6, 6}), 0.5f, 123, 1).to_vector(), one);
  EXPECT_NE(dropout(ones({6, 6}), 0.5f, 124, 0).to_vector(), one);
}

TEST(Dropout, MaskDoesNotDependOnTheDtype) {
  const std::vector<double> f32 = dropout(ones({999}), 0.25f, 1, 2).to_vector();
  const std::vector<double> f64 = dropout(ones({999}, DType::kF64), 0.25f, 1, 2).to_vector();
  for (int i = 0; i < 999; ++i) EXPECT_EQ(f32[i] == 0, f64[i] == 0) << i;
}

TEST(Dropout, KeepsTheRightShare) {
  const int64_t n = 1 << 20;
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    double kept = 0;
    for (const double v : dropout(ones({n}), p, 11, 3).to_vector()) kept += v != 0;
    // five standard deviations
    EXPECT_NEAR(kept / n, 1 - p, 5 * std::sqrt(p * (1 - p) / static_cast<double>(n))) << p;
  }
}

TEST(Dropout, BackwardUsesTheSameMask) {
  Tensor x = ones({3, 5000}).set_requires_grad();
  Tensor y = dropout(x, 0.3f, 5, 6);
  const std::vector<double> forward = y.to_vector();
  backward(y, ones({3, 5000}));
  EXPECT_EQ(x.grad().to_vector(), forward);
}

TEST(Dropout, Errors) {
  test::expect_error([] { dropout(ones({2}), 1.5f, 0, 0); }, "p = 1.5 is not in [0, 1]");
  test::expect_error([] { dropout(ones({2}), -0.1f, 0, 0); }, "is not in [0, 1]");
  test::expect_error([] { dropout(ones({2}), std::nanf(""), 0, 0); }, "is not in [0, 1]");
  test::expect_error([] { dropout(Tensor::from(std::vector<int32_t>{1}, {1}), 0.5f, 0, 0); }, "takes a float tensor");
}

}  // namespace
}  // namespace tally
