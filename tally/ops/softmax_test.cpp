#include "tally/ops/softmax.h"

#include <cstring>
#include <limits>

#include "tally/core/tape.h"
#include "tally/ops/arithmetic.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/random.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

const bool softmax_reference = register_reference<SoftmaxArgs>([](const SoftmaxArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto& y = io.out(a.out);
  const int64_t n = a.x.size[a.x.rank() - 1];
  for (int64_t first = 0; first < a.x.numel(); first += n) {
    N most = -std::numeric_limits<double>::infinity(), sum = 0.0;
    std::vector<N> less, e;
    for (int64_t i = 0; i < n; ++i) most = num_max(most, x.flat(first + i));
    if constexpr (!std::is_same_v<N, Counted>)
      if (most == -std::numeric_limits<double>::infinity()) most = 0;  // everything masked: zeros, for the sum is 0 too
    for (int64_t i = 0; i < n; ++i) {
      less.push_back(x.flat(first + i) - most), e.push_back(num_exp(less.back()));
      sum += e.back();
    }
    if constexpr (!std::is_same_v<N, Counted>)
      if (sum == 0 && !a.log) sum = 1;
    N log_sum = 0.0;
    if (a.log) log_sum = num_log(sum);
    for (int64_t i = 0; i < n; ++i) y.flat(first + i) = a.log ? less[i] - log_sum : e[i] / sum;
  }
});

const bool softmax_backward_reference =
    register_reference<SoftmaxBackwardArgs>([](const SoftmaxBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto g = io.in(a.grad), y = io.in(a.y);
      auto& dx = io.out(a.dx);
      const int64_t n = a.y.size[a.y.rank() - 1];
      for (int64_t first = 0; first < a.y.numel(); first += n) {
        N dot = 0.0;
        if (a.log) {
          for (int64_t i = 0; i < n; ++i) dot += g.flat(first + i);
          for (int64_t i = 0; i < n; ++i) dx.flat(first + i) = g.flat(first + i) - num_exp(y.flat(first + i)) * dot;
          continue;
        }
        for (int64_t i = 0; i < n; ++i) dot += g.flat(first + i) * y.flat(first + i);
        for (int64_t i = 0; i < n; ++i) dx.flat(first + i) = y.flat(first + i) * (g.flat(first + i) - dot);
      }
    });

TEST(Softmax, Cases) {
  for (const Dims& size : {Dims(1), Dims(5), Dims(3, 7), Dims(2, 3, 33), Dims(4, 64), Dims(3, 1030), Dims(2, 3, 2, 5),
                           Dims(40, 70), Dims(3, 35, 2, 9), Dims(0, 4), Dims(4, 0)})
    for (int axis = 0; axis < size.rank; ++axis)
      run_op_case({"softmax " + str(size) + " over " + std::to_string(axis), {{size}}, [axis](const auto& x) {
                     return softmax(x[0], axis);
                   }});
}

// Conformance case C13.
TEST(Softmax, CaseC13ShiftedRows) {
  const std::vector<float> row = {.4655f, .8303f, .9608f, .9656f, .6840f};
  std::vector<float> both = row;
  for (const float v : row) both.push_back(v + 100);
  const std::vector<double> want = {0.143383, 0.206504, 0.235291, 0.236423, 0.178399};
  const std::vector<double> got = softmax(Tensor::from(both, Dims(2, 5))).to_vector();
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(got[i], want[i % 5], 1e-5);
}

// Trap O04: one answer for all lengths, and finite gradients.
TEST(Softmax, TrapO04FullyMaskedRows) {
  const float inf = std::numeric_limits<float>::infinity();
  for (int64_t n = 1; n <= 300; ++n) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      Tensor x = Tensor::empty(Dims(2, n), dtype);
      fill_(x, -inf);
      x.set_requires_grad();
      const Tensor y = softmax(x);
      Tensor ones = Tensor::empty(Dims(2, n), dtype);
      fill_(ones, 1);
      backward(y, ones);
      const std::vector<double> zeros(static_cast<size_t>(2 * n), 0.0);
      ASSERT_EQ(y.to_vector(), zeros) << n;
      ASSERT_EQ(x.grad().to_vector(), zeros) << n;
    }
  }
}

// Columns have tiles of their own: the same bits as of rows.
TEST(Softmax, ColumnsAsRows) {
  for (const DType t : {DType::kF32, DType::kBF16})
    for (const int64_t n : {1, 2, 5, 16, 31, 32, 33, 70, 600})
      for (const auto f : {softmax, log_softmax}) {
        const auto run = [&](bool columns) {
          Generator g(7);
          Tensor x = mul(randn(Dims(2, n, 75), {}, g), 4);
          Tensor masked = select(select(x, 0, 1), 1, 3);
          fill_(masked, -std::numeric_limits<float>::infinity());
          x = to(columns ? x : contiguous(transpose(x, 1, 2)), t);
          x.set_requires_grad();
          const Tensor y = f(x, columns ? 1 : 2);
          const Tensor grad = to(randn(Dims(2, n, 75), {}, g), t);
          backward(y, columns ? grad : contiguous(transpose(grad, 1, 2)));
          const auto in_order = [&](const Tensor& z) {
            const Tensor one = z.detach();
            return to(contiguous(columns ? one : transpose(one, 1, 2)), DType::kF32);
          };
          return std::pair(in_order(y), in_order(x.grad()));
        };
        const auto [y, dx] = run(true);
        const auto [y_rows, dx_rows] = run(false);
        const size_t bytes = static_cast<size_t>(y.numel()) * 4;
        EXPECT_EQ(std::memcmp(y.data<float>(), y_rows.data<float>(), bytes), 0) << name_of(t) << n;
        EXPECT_EQ(std::memcmp(dx.data<float>(), dx_rows.data<float>(), bytes), 0) << name_of(t) << n;
      }
}

TEST(Softmax, NaNAndInfinityShow) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> y =
      softmax(Tensor::from(std::vector<float>{nan, 1, nan, nan, -inf, 0, inf, 0}, Dims(4, 2))).to_vector();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  EXPECT_EQ(y[4], 0);
  EXPECT_EQ(y[5], 1);
  EXPECT_TRUE(std::isnan(y[6]));
}

TEST(Softmax, OfAScalarAndOfNothing) {
  for (const int axis : {0, -1}) {
    Tensor x = Tensor::from(std::vector<float>{3}, Dims());
    x.set_requires_grad();
    for (Tensor (*f)(const Tensor&, int) : {softmax, log_softmax}) {
      const Tensor y = f(x, axis);
      EXPECT_EQ(y.sizes(), Dims());
      EXPECT_EQ(y.item(), f == softmax ? 1 : 0);
      backward(y);
    }
    EXPECT_EQ(x.grad().item(), 0);
    EXPECT_EQ(softmax(Tensor::empty(Dims(0, 3)), axis).sizes(), Dims(0, 3));
    EXPECT_EQ(log_softmax(Tensor::empty(Dims(3, 0)), axis).sizes(), Dims(3, 0));
  }
  expect_error([] { softmax(Tensor::empty(Dims()), 1); },
               "softmax: Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  EXPECT_EQ(error_kind([] { log_softmax(Tensor::empty(Dims()), -2); }), ErrorKind::kIndex);
}

TEST(Softmax, Errors) {
  expect_error([] { softmax(Tensor::empty(Dims(2, 3)), 2); }, "softmax");
  expect_error([] { softmax(Tensor::empty(Dims(2, 3), DType::kI32)); }, "softmax: takes a float tensor");
}

}  // namespace
}  // namespace tally::test
