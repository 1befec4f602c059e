#include "tally/ops/reduce.h"

#include <limits>

#include "tally/ops/backward.h"
#include "tally/ops/op_test.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// Where logical element k of `size` falls in the reduced shape `out` (sizes of 1).
int64_t reduced_place(int64_t k, const Dims& size, const Dims& out) {
  int64_t place = 0, step = 1;
  for (int i = size.rank - 1; i >= 0; --i) {
    if (out[i] != 1) place += k % size[i] * step;
    step *= out[i];
    k /= size[i];
  }
  return place;
}

const bool reduce_reference = register_reference<ReduceArgs>([](const ReduceArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto& y = io.out(a.out);
  const bool sums = a.op == ReduceOp::kSum;
  for (int64_t k = 0; k < a.out.numel(); ++k) y.flat(k) = N(sums ? 0.0 : -std::numeric_limits<double>::infinity());
  for (int64_t k = 0; k < a.x.numel(); ++k) {
    N& into = y.flat(reduced_place(k, a.x.size, a.out.size));
    into = sums ? into + x.flat(k) : num_max(into, x.flat(k));
  }
  if (a.scale != 1.0)
    for (int64_t k = 0; k < a.out.numel(); ++k) y.flat(k) *= N(a.scale);
});

const bool max_reference = register_reference<MaxBackwardArgs>([](const MaxBackwardArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto grad = io.in(a.grad), x = io.in(a.x), most = io.in(a.max);
  auto& dx = io.out(a.dx);
  const int64_t n = a.x.numel();
  std::vector<N> hits(static_cast<size_t>(n)), share(static_cast<size_t>(a.max.numel()), N(0.0));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t place = reduced_place(k, a.x.size, a.max.size);
    hits[k] = num_where(
        x.flat(k), [&](auto v) { return v == most.flat(place); }, N(1.0), N(0.0));
    share[place] += hits[k];
  }
  for (int64_t k = 0; k < a.max.numel(); ++k) share[k] = grad.flat(k) / share[k];
  for (int64_t k = 0; k < n; ++k) dx.flat(k) = share[reduced_place(k, a.x.size, a.max.size)] * hits[k];
});

struct Shape {
  Dims size, axes;
};
std::vector<Shape> shapes() {
  return {{Dims(1), {}},
          {Dims(7), Dims(0)},
          {Dims(), {}},
          {Dims(3, 5), Dims(0)},
          {Dims(3, 5), Dims(-1)},
          {Dims(3, 5), {}},
          {Dims(4, 1), Dims(1)},
          {Dims(2, 3, 33), Dims(0, 2)},
          {Dims(2, 3, 33), Dims(1)},
          {Dims(5, 3, 17), Dims(1, 2)},
          {Dims(2, 2, 2, 3, 2, 9), Dims(1, 3, 5)},
          {Dims(2, 2, 2, 3, 2, 9), Dims(0, 2, 4)},
          {Dims(37, 140), Dims(0)},
          {Dims(2, 1037), Dims(1)},
          {Dims(0, 3), Dims(1)},
          {Dims(3, 2, 0), Dims(0)}};
}

using Op = Tensor (*)(const Tensor&, const Dims&, bool);

void run_all(const char* name, Op op) {
  for (const Shape& s : shapes())
    for (const bool keepdim : {false, true})
      run_op_case({std::string(name) + " " + str(s.size) + " over " + str(s.axes),
                   {{s.size}},
                   [&](const std::vector<Tensor>& x) { return op(x[0], s.axes, keepdim); }});
}

TEST(Reduce, Sum) {
  run_all("sum", sum);
  EXPECT_EQ(sum(Tensor::empty(Dims(0, 3)), Dims(0)).to_vector(), std::vector<double>(3, 0.0));
  EXPECT_EQ(sum(Tensor::empty(Dims(0))).item(), 0.0);
}

TEST(Reduce, Mean) {
  run_all("mean", mean);
  expect_error([] { mean(Tensor::empty(Dims(0, 3)), Dims(0)); }, "mean: no elements to average in shape (0, 3)");
}

TEST(Reduce, Max) {
  run_all("max", max);
  expect_error([] { max(Tensor::empty(Dims(0, 3)), Dims(0)); }, "max: no elements to compare in shape (0, 3)");
}

TEST(Reduce, MaxSharesItsGradientAmongTies) {
  Tensor x = Tensor::from(std::vector<float>{1, 4, 4, 2, 5, 0}, Dims(2, 3)).set_requires_grad();
  const Tensor y = max(x, Dims(1));
  EXPECT_EQ(y.to_vector(), (std::vector<double>{4, 5}));
  backward(y, Tensor::from(std::vector<float>{1, 3}, Dims(2)));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0.5, 0.5, 0, 3, 0}));
}

TEST(Reduce, MaxOfInfinitiesAndNaN) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from(std::vector<float>{-inf, -inf, nan, 1, 2, inf}, Dims(3, 2));
  const std::vector<double> rows = max(x, Dims(1)).to_vector(), columns = max(x, Dims(0)).to_vector();
  EXPECT_EQ(rows[0], -inf);
  EXPECT_TRUE(std::isnan(rows[1]));
  EXPECT_EQ(rows[2], inf);
  EXPECT_TRUE(std::isnan(columns[0]));
  EXPECT_EQ(columns[1], inf);
}

// A million times 0.1 in 16 parts: nearer to the truth than one chain of additions (100958 in f32).
TEST(Reduce, LongSumsStayClose) {
  Tensor x = Tensor::from(std::vector<float>(1000000, 0.1f), Dims(1000000));
  EXPECT_NEAR(sum(x).item(), 100000.0014901161, 100);
}

TEST(Reduce, WrongAxesAreNamed) {
  const Tensor x = Tensor::empty(Dims(2, 3));
  expect_error([&] { sum(x, Dims(0, -2)); }, "sum: axis -2 is given twice");
  expect_error([&] { mean(x, Dims(2)); }, "mean");
  expect_error([&] { sum(Tensor{}); }, "sum: an input is missing");
  expect_error([&] { sum(Tensor::empty(Dims(2), DType::kI32)); }, "sum: takes a float tensor");
}

}  // namespace
}  // namespace tally::test
