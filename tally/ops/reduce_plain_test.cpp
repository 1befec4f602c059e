#include "tally/ops/reduce_plain.h"

#include <cmath>
#include <limits>

#include "tally/ops/backward.h"
#include "tally/ops/op_test.h"
#include "tally/ops/order_keys.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

const bool plain_reference = register_reference<ReducePlainArgs>([](const ReducePlainArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto real = io.index(a.x);
  auto& y = io.out(a.out);
  const double inf = std::numeric_limits<double>::infinity();
  const PlainOp op = a.op;
  const bool one = op == PlainOp::kProd || op == PlainOp::kAll;
  for (int64_t k = 0; k < a.out.numel(); ++k)
    y.flat(k) = N(op == PlainOp::kMax ? -inf : op == PlainOp::kMin ? inf : one ? 1.0 : 0.0);
  for (int64_t k = 0; k < a.x.numel(); ++k) {
    N& into = y.flat(reduced_place(k, a.x.size, a.out.size));
    const N truth = real.flat(k) != 0 ? 1.0 : 0.0;
    switch (op) {
      case PlainOp::kSum:
        into = into + x.flat(k);
        break;
      case PlainOp::kProd:
        into = into * x.flat(k);
        break;
      case PlainOp::kMax:
        into = num_max(into, x.flat(k));
        break;
      case PlainOp::kMin:
        into = -num_max(-into, -x.flat(k));
        break;
      case PlainOp::kAny:
        into = num_max(into, truth);
        break;
      case PlainOp::kAll:
        into = into * truth;
    }
  }
});

const bool arg_reference = register_reference<ArgReduceArgs>([](const ArgReduceArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.index(a.x);
  auto& y = io.out(a.out);
  std::vector<double> best(static_cast<size_t>(a.out.numel()));
  std::vector<bool> seen(best.size());
  for (int64_t k = 0; k < a.x.numel(); ++k) {
    num_max(N(0.0), N(0.0));  // the comparison
    const int64_t place = reduced_place(k, a.x.size, a.out.size);
    int64_t i = k;
    for (int axis = a.x.rank() - 1; axis > a.axis; --axis) i /= a.x.size[axis];
    const double v = a.least ? -x.flat(k) : x.flat(k);
    const bool better = !std::isnan(best[place]) && (std::isnan(v) || v > best[place]);
    if (seen[place] && !better) continue;
    seen[place] = true, best[place] = v;
    y.flat(place) = N(static_cast<double>(i % a.x.size[a.axis]));
  }
});

const bool product_reference = register_reference<ProdBackwardArgs>([](const ProdBackwardArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x), grad = io.in(a.grad);
  auto real = io.index(a.x);
  auto& dx = io.out(a.dx);
  const int64_t outputs = a.grad.numel();
  std::vector<N> product(static_cast<size_t>(outputs), N(1.0));
  std::vector<int> zeros(static_cast<size_t>(outputs));
  for (int64_t k = 0; k < a.x.numel(); ++k) {
    const int64_t place = reduced_place(k, a.x.size, a.grad.size);
    zeros[place] += real.flat(k) == 0;
    product[place] *= num_where(
        x.flat(k), [](auto v) { return v != 0; }, x.flat(k), N(1.0));
  }
  for (int64_t p = 0; p < outputs; ++p) product[p] *= grad.flat(p);
  for (int64_t k = 0; k < a.x.numel(); ++k) {
    const int64_t place = reduced_place(k, a.x.size, a.grad.size);
    const N quotient = product[place] / x.flat(k);
    if (a.x.data == nullptr || zeros[place] == 0) dx.flat(k) = quotient;
    if (zeros[place] > 0) dx.flat(k) = zeros[place] == 1 && real.flat(k) == 0 ? product[place] : N(0.0);
  }
});

const float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor whole(const std::vector<int32_t>& values, const Dims& size, DType dtype = DType::kI32) {
  return to(Tensor::from(values, size), dtype);
}

struct Shape {
  Dims size, axes;
};
std::vector<Shape> shapes() {
  return {{Dims(1), {}},
          {Dims(7), Dims(0)},
          {Dims(), {}},
          {Dims(3, 5), Dims(0)},
          {Dims(3, 5), Dims(-1)},
          {Dims(4, 1), Dims(1)},
          {Dims(2, 3, 33), Dims(0, 2)},
          {Dims(2, 3, 33), Dims(1)},
          {Dims(5, 3, 17), Dims(1, 2)},
          {Dims(2, 2, 2, 3, 2, 9), Dims(1, 3, 5)},
          {Dims(37, 140), Dims(0)},
          {Dims(2, 1037), Dims(1)},
          {Dims(140000), {}},
          {Dims(0, 3), Dims(1)},
          {Dims(3, 2, 0), Dims(0)}};
}

TEST(ReducePlain, CasesOfIntegers) {
  for (const Shape& s : shapes())
    for (const bool keepdim : {false, true}) {
      const std::string what = str(s.size) + " over " + str(s.axes);
      run_op_case({"sum of i32 " + what, {{s.size, Input::kIndex, 100}}, [=](const auto& x) {
                     return sum(x[0], s.axes, keepdim);
                   }});
      if (s.size.numel() > 0)
        run_op_case({"amax of i32 " + what, {{s.size, Input::kIndex, 100}}, [=](const auto& x) {
                       return amax(x[0], s.axes, keepdim);
                     }});
      if (s.size.numel() > 0)
        run_op_case({"amin of i32 " + what, {{s.size, Input::kIndex, 100}}, [=](const auto& x) {
                       return amin(x[0], s.axes, keepdim);
                     }});
      if (s.size.numel() < 100)
        run_op_case({"prod of i32 " + what, {{s.size, Input::kIndex, 2}}, [=](const auto& x) {
                       return prod(x[0], s.axes, keepdim);
                     }});
    }
}

TEST(ReducePlain, CasesOfTruth) {
  for (const Shape& s : shapes())
    for (const int64_t limit : {2, 100}) {
      const std::string what = str(s.size) + " over " + str(s.axes);
      run_op_case(
          {"any of " + what, {{s.size, Input::kIndex, limit}}, [=](const auto& x) { return any(x[0], s.axes); }});
      run_op_case(
          {"all of " + what, {{s.size, Input::kIndex, limit}}, [=](const auto& x) { return all(x[0], s.axes); }});
      run_op_case({"any of f32 " + what, {{s.size}}, [=](const auto& x) { return any(x[0], s.axes, true); }});
    }
  EXPECT_EQ(any(Tensor::empty(Dims(0, 2)), Dims(0)).to_vector(), std::vector<double>(2, 0.0));
  EXPECT_EQ(all(Tensor::empty(Dims(0, 2)), Dims(0)).to_vector(), std::vector<double>(2, 1.0));
  EXPECT_EQ(all(Tensor::from(std::vector<float>{kNaN, -0.5f, kInf}, Dims(3))).item(), 1);
  EXPECT_EQ(any(Tensor::from(std::vector<float>{-0.0f, 0.0f}, Dims(2))).item(), 0);
  EXPECT_EQ(any(Tensor::empty(Dims(2))).dtype(), DType::kBool);
  expect_error([] { any(Tensor::empty(Dims(2), DType::kF8E4M3)); }, "any: does not take f8");
}

TEST(ReducePlain, CasesOfPlaces) {
  for (const Dims& size : {Dims(1), Dims(7), Dims(3, 5), Dims(4, 1), Dims(2, 3, 33), Dims(2, 2, 2, 3, 2, 9),
                           Dims(37, 140), Dims(2, 1037), Dims(3, 0, 2)})
    for (int axis = -1; axis < size.rank; ++axis) {
      if (size[axis < 0 ? size.rank - 1 : axis] == 0) continue;
      const std::string what = str(size) + " over " + std::to_string(axis);
      run_op_case({"argmax " + what, {{size}}, [=](const auto& x) { return argmax(x[0], axis); }});
      run_op_case({"argmin " + what, {{size}}, [=](const auto& x) { return argmin(x[0], axis, true); }});
      run_op_case({"argmin of few numbers " + what, {{size, Input::kIndex, 3}}, [=](const auto& x) {
                     return argmin(x[0], axis);
                   }});
      run_op_case({"max " + what, {{size}}, [=](const auto& x) { return max(x[0], axis).values; }});
      run_op_case({"min " + what, {{size}}, [=](const auto& x) { return min(x[0], axis, true).values; }});
    }
  run_op_case({"argmax of all", {{Dims(3, 5)}}, [](const auto& x) { return argmax(x[0]); }});
  run_op_case(
      {"argmax of a long row", {{Dims(100000), Input::kIndex, 70}}, [](const auto& x) { return argmax(x[0]); }});
}

TEST(ReducePlain, FirstOfTiesAndNaN) {
  const Tensor x = Tensor::from(std::vector<float>{1, 5, 5, kNaN, 2, kNaN, -kInf, -kInf, -kInf}, Dims(3, 3));
  EXPECT_EQ(argmax(x, 1).to_vector(), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(argmin(x, 1).to_vector(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(argmax(x, 0).to_vector(), (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(argmin(x, 0).to_vector(), (std::vector<double>{1, 2, 1}));
  EXPECT_EQ(argmax(x).item(), 3);
  EXPECT_EQ(argmin(x).item(), 3);
  EXPECT_TRUE(std::isnan(max(x, 1).values.to_vector()[1]));
  EXPECT_EQ(argmax(Tensor::from(std::vector<float>{-0.0f, 0.0f}, Dims(2))).item(), 0);
  EXPECT_EQ(argmin(Tensor::from(std::vector<float>{0.0f, -0.0f}, Dims(2))).item(), 0);
  EXPECT_EQ(argmax(Tensor::from(std::vector<double>{-1, 3, 3}, Dims(3))).item(), 1);
  for (const DType dtype : {DType::kI64, DType::kI16, DType::kI8, DType::kF16, DType::kBF16, DType::kF64}) {
    const Tensor y = to(whole({-3, 7, -100, 7}, Dims(4)), dtype);
    EXPECT_EQ(argmax(y).item(), 1) << name_of(dtype);
    EXPECT_EQ(argmin(y).item(), 2) << name_of(dtype);
  }
  Tensor large = Tensor::empty(Dims(2), DType::kI64);
  large.data<int64_t>()[0] = INT64_MAX, large.data<int64_t>()[1] = INT64_MAX - 1;
  EXPECT_EQ(argmin(large).item(), 1);
  EXPECT_EQ(argmax(large).item(), 0);
}

TEST(ReducePlain, MaxOfAnAxisGivesItsGradientToOne) {
  Tensor x = Tensor::from(std::vector<float>{1, 4, 4, 2, 5, 0}, Dims(2, 3)).set_requires_grad();
  const ValuesIndices y = max(x, 1);
  EXPECT_EQ(y.values.to_vector(), (std::vector<double>{4, 5}));
  EXPECT_EQ(y.indices.to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(y.indices.dtype(), DType::kI64);
  backward(y.values, Tensor::from(std::vector<float>{1, 3}, Dims(2)));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 1, 0, 0, 3, 0}));
  EXPECT_EQ(max(x, 0, true).values.sizes(), Dims(1, 3));
  const ValuesIndices one = min(Tensor::from(std::vector<float>{3}, Dims()), -1);
  EXPECT_EQ(one.values.item(), 3);
  EXPECT_EQ(one.indices.item(), 0);
  EXPECT_EQ(one.indices.sizes(), Dims());
}

TEST(ReducePlain, Errors) {
  const auto index_error = [](const auto& f, const std::string& part) {
    try {
      f();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kIndex);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  index_error([] { argmax(Tensor::empty(Dims(0, 3))); },
              "argmax: Expected reduction dim to be specified for input.numel() == 0");
  index_error([] { argmin(Tensor::empty(Dims(0, 3)), 0); }, "argmin: Expected reduction dim 0 to have non-zero size");
  index_error([] { max(Tensor::empty(Dims(3, 0)), 1); }, "max: Expected reduction dim 1 to have non-zero size");
  EXPECT_EQ(argmax(Tensor::empty(Dims(0, 3)), 1).sizes(), Dims(0));
  expect_error([] { argmax(Tensor::empty(Dims(2)), 1); }, "argmax: Dimension out of range");
  expect_error([] { argmax(Tensor{}); }, "argmax: an input is missing");
  expect_error([] { max(Tensor::empty(Dims(2), DType::kF8E5M2), 0); }, "max: does not take f8");
}

// Rows of f32 go by values, blocks with a NaN by keys: the first NaN, else the first extreme; -0 is 0.
TEST(ReducePlain, PlacesInLongRows) {
  for (const int64_t n : {5, 16, 511, 512, 513, 1300})
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      std::vector<float> v(static_cast<size_t>(n), -0.0f);
      for (size_t i = 0; i < v.size(); i += 2) v[i] = 0.0f;
      const auto places = [&] {
        const Tensor x = Tensor::from(v, Dims(1, n));
        return std::pair(argmax(x, 1).to_vector()[0], argmin(x, 1).to_vector()[0]);
      };
      EXPECT_EQ(places(), std::pair(0.0, 0.0));
      const double place = static_cast<double>(at);
      v[static_cast<size_t>(at)] = 3;
      EXPECT_EQ(places(), std::pair(place, at == 0 ? 1.0 : 0.0));
      v[static_cast<size_t>(at)] = -3;
      EXPECT_EQ(places(), std::pair(at == 0 ? 1.0 : 0.0, place));
      v[static_cast<size_t>(at)] = NAN;
      if (at > 0) v[0] = INFINITY;
      EXPECT_EQ(places(), std::pair(place, place)) << n << " " << at;
    }
}

}  // namespace
}  // namespace tally::test
