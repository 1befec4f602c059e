#include "tally/ops/sort.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/sort_kernels.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// The places of a row's elements in order.
std::vector<int64_t> order_of(const std::vector<double>& row, bool descending) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double x = row[descending ? b : a], y = row[descending ? a : b];
    return std::isnan(y) ? !std::isnan(x) : x < y;
  });
  return order;
}

template <class A, class I>
void ordered(const A& a, I& io, bool descending) {
  using N = NumberOf<decltype(io)>;
  auto x = io.index(a.x);
  auto &values = io.out(a.values), &indices = io.out(a.indices);
  const int64_t n = a.x.size[a.axis], k = a.values.size[a.axis];
  int64_t step = 1;
  for (int i = a.x.rank() - 1; i > a.axis; --i) step *= a.x.size[i];
  for (int64_t row = 0; row < rows_beside(a.x, a.axis); ++row) {
    const int64_t outer = row / step, inner = row % step;
    std::vector<double> line(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) line[i] = x.flat((outer * n + i) * step + inner);
    const std::vector<int64_t> order = order_of(line, descending);
    for (int64_t i = 0; i < k; ++i) {
      values.flat((outer * k + i) * step + inner) = N(line[order[i]]);
      indices.flat((outer * k + i) * step + inner) = N(static_cast<double>(order[i]));
    }
    for (int64_t i = 0; i < sort_comparisons(k); ++i) num_max(N(0.0), N(0.0));
  }
}

const bool sort_reference =
    register_reference<SortArgs>([](const SortArgs& a, auto& io) { ordered(a, io, a.descending); });
const bool topk_reference = register_reference<TopkArgs>([](const TopkArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  ordered(a, io, a.largest);
  for (int64_t i = 0; i < a.x.numel(); ++i) num_max(N(0.0), N(0.0));
});

const float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<Dims> kSizes = {
    Dims(1),       Dims(7),       Dims(3, 5), Dims(4, 1),   Dims(2, 3, 33), Dims(2, 2, 2, 3, 2, 9),
    Dims(37, 140), Dims(2, 1037), Dims(0, 3), Dims(3, 0, 2)};

// Central differences need elements that stay in order.
Input numbers(const Dims& size) { return {size, Input::kNormal, 0, size.numel() < 64}; }

TEST(Sort, Cases) {
  for (const Dims& size : kSizes)
    for (int axis = -1; axis < size.rank; ++axis)
      for (const bool descending : {false, true}) {
        const std::string what = str(size) + " along " + std::to_string(axis) + (descending ? " descending" : "");
        run_op_case(
            {"sort " + what, {numbers(size)}, [=](const auto& x) { return sort(x[0], axis, descending).values; }});
        run_op_case({"argsort " + what, {{size}}, [=](const auto& x) { return argsort(x[0], axis, descending); }});
        run_op_case({"argsort of few numbers " + what, {{size, Input::kIndex, 3}}, [=](const auto& x) {
                       return argsort(x[0], axis, descending);
                     }});
      }
  run_op_case({"sort of a scalar", {{Dims()}}, [](const auto& x) { return sort(x[0]).values; }});
}

TEST(Sort, LongRows) {
  for (const Dims& size : {Dims(2100), Dims(2, 9000), Dims(70000), Dims(2, 65537)})
    for (const bool descending : {false, true}) {
      OpCase c{"argsort " + str(size), {{size, Input::kNormal, 0, false}}, [=](const auto& x) {
                 return argsort(x[0], -1, descending);
               }};
      run_op_case(c);
      c.inputs = {{size, Input::kIndex, 1000}};
      run_op_case(c);
    }
  VerifyLaunches verify;
  Tensor x = to(random_tensor({Dims(70000)}, DType::kF64, 3), test_device());
  sort(x);
  sort(x, 0, true);
}

TEST(Sort, TopkCases) {
  for (const Dims& size : kSizes)
    for (int axis = -1; axis < size.rank; ++axis)
      for (const bool largest : {false, true})
        for (const int64_t k : {0, 1, 3, 33}) {
          if (k > size[axis < 0 ? size.rank - 1 : axis]) continue;
          const std::string what = std::to_string(k) + " of " + str(size) + " along " + std::to_string(axis);
          run_op_case(
              {"topk " + what, {numbers(size)}, [=](const auto& x) { return topk(x[0], k, axis, largest).values; }});
          if (axis < 0 || k != 3) continue;
          run_op_case({"topk of few numbers " + what, {{size, Input::kIndex, 3}}, [=](const auto& x) {
                         return topk(x[0], k, axis, largest).indices;
                       }});
        }
}

TEST(Sort, TopkOfLongRows) {
  for (const auto& [size, k] : {std::pair(Dims(9, 3000), 10),
                                {Dims(2, 5000), 700},
                                {Dims(9000), 2048},
                                {Dims(9000), 2049},
                                {Dims(300000), 50},
                                {Dims(2, 270000), 1}})
    for (const bool largest : {false, true})
      for (const int64_t limit : {0, 100}) {
        const Input input = limit > 0 ? Input{size, Input::kIndex, limit} : Input{size, Input::kNormal, 0, false};
        run_op_case({"topk " + std::to_string(k) + " of " + str(size), {input}, [=, k = k](const auto& x) {
                       return topk(x[0], k, -1, largest).indices;
                     }});
      }
  // Rows in order: every element is a candidate.
  std::vector<float> rising(20000);
  std::iota(rising.begin(), rising.end(), 0.0f);
  const Tensor x = to(Tensor::from(rising, Dims(20000)), test_device());
  EXPECT_EQ(topk(x, 3).indices.to_vector(), (std::vector<double>{19999, 19998, 19997}));
  EXPECT_EQ(topk(x, 3, 0, false).indices.to_vector(), (std::vector<double>{0, 1, 2}));
}

TEST(Sort, NaNIsTheLargestAndZerosAreEqual) {
  const Tensor x =
      to(Tensor::from(std::vector<float>{kNaN, 1, 0.0f, -kInf, -0.0f, -kNaN, kInf}, Dims(7)), test_device());
  EXPECT_EQ(argsort(x).to_vector(), (std::vector<double>{3, 2, 4, 1, 6, 0, 5}));
  EXPECT_EQ(argsort(x, 0, true).to_vector(), (std::vector<double>{0, 5, 6, 1, 2, 4, 3}));
  EXPECT_TRUE(std::signbit(sort(x).values.to_vector()[2]));
  EXPECT_EQ(topk(x, 2).indices.to_vector(), (std::vector<double>{0, 5}));
  EXPECT_EQ(topk(x, 3, 0, false).indices.to_vector(), (std::vector<double>{3, 2, 4}));
}

TEST(Sort, EveryOrderedDType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32, DType::kI16,
                            DType::kI8, DType::kU8, DType::kU16, DType::kBool}) {
    const bool sign = dtype != DType::kU8 && dtype != DType::kU16 && dtype != DType::kBool;
    const Tensor x = to(Tensor::from(std::vector<int32_t>{1, sign ? -3 : 0, 1, 0}, Dims(4)), dtype);
    const ValuesIndices y = sort(x);
    EXPECT_EQ(y.values.dtype(), dtype);
    EXPECT_EQ(y.indices.dtype(), DType::kI64);
    EXPECT_EQ(y.values.to_vector(), (std::vector<double>{sign ? -3.0 : 0.0, 0, 1, 1})) << name_of(dtype);
    EXPECT_EQ(y.indices.to_vector(), (std::vector<double>{1, 3, 0, 2})) << name_of(dtype);
    EXPECT_EQ(topk(x, 1).indices.item(), 0) << name_of(dtype);
  }
  Tensor large = Tensor::empty(Dims(3), DType::kI64);
  large.data<int64_t>()[0] = INT64_MAX, large.data<int64_t>()[1] = INT64_MIN, large.data<int64_t>()[2] = INT64_MAX - 1;
  EXPECT_EQ(argsort(large).to_vector(), (std::vector<double>{1, 2, 0}));
}

// The same values in a transposed and strided layout, forward and backward: run_op_case has them; here a gradient by
// hand.
TEST(Sort, GradientGoesWhereTheValuesCameFrom) {
  Tensor x = Tensor::from(std::vector<float>{3, 1, 2, 7, 9, 8}, Dims(2, 3)).set_requires_grad();
  backward(topk(x, 2).values, Tensor::from(std::vector<float>{1, 2, 3, 4}, Dims(2, 2)));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 0, 2, 0, 3, 4}));
}

TEST(Sort, MetaCostsTheSame) {
  for (const int64_t n : {30, 3000, 70000}) {
    Cost costs[2];
    for (const bool meta : {false, true}) {
      const Tensor x =
          meta ? Tensor::empty(Dims(2, n), DType::kF32, kMetaCpu) : random_tensor({Dims(2, n)}, DType::kF32, 1);
      LedgerGuard guard;
      sort(x);
      topk(x, 5);
      topk(x, n - 1, 1);
      costs[meta] = guard.ledger().cost();
    }
    EXPECT_EQ(costs[0], costs[1]);
  }
}

TEST(Sort, Errors) {
  const Tensor x = Tensor::empty(Dims(2, 3));
  expect_error([&] { sort(x, 2); }, "sort: Dimension out of range");
  expect_error([&] { topk(x, 4); }, "topk: k is 4, and axis 1 of shape (2, 3) has 3 elements");
  expect_error([&] { topk(x, -1); }, "topk: k is -1");
  expect_error([&] { topk(Tensor::empty(Dims()), 2); }, "topk: k is 2");
  expect_error([&] { sort(Tensor{}); }, "sort: an input is missing");
  expect_error([&] { argsort(Tensor::empty(Dims(2), DType::kF8E4M3)); }, "sort: does not take f8");
}

}  // namespace
}  // namespace tally::test
