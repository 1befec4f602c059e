#include "tally/ops/reduce.h"

#include <limits>

#include "tally/base/parallel.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// What an element counts for.
template <class N>
N mapped(const ReduceArgs& a, N x, N shift) {
  switch (a.op) {
    case ReduceOp::kSumDeviations: {
      const N d = x - shift;
      return d * d;
    }
    case ReduceOp::kSumExp:
      return num_exp(x - shift);
    case ReduceOp::kSumAbs:
    case ReduceOp::kMaxAbs:
      return num_max(x, -x);
    case ReduceOp::kSumSquares:
      return x * x;
    case ReduceOp::kSumPower:
      return num_pow(num_max(x, -x), N(a.power));
    default:
      return x;
  }
}

const bool reduce_reference = register_reference<ReduceArgs>([](const ReduceArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x), shift = io.in(has_shift(a.op) ? a.shift : a.x);
  auto& y = io.out(a.out);
  const double inf = std::numeric_limits<double>::infinity();
  const bool most = a.op == ReduceOp::kMax, least = a.op == ReduceOp::kMin;
  for (int64_t k = 0; k < a.out.numel(); ++k)
    y.flat(k) = N(most ? -inf : least ? inf : a.op == ReduceOp::kProd ? 1.0 : 0.0);
  for (int64_t k = 0; k < a.x.numel(); ++k) {
    const int64_t place = reduced_place(k, a.x.size, a.out.size);
    N& into = y.flat(place);
    const N v = mapped<N>(a, x.flat(k), has_shift(a.op) ? N(shift.flat(place)) : N(0.0));
    if (most || a.op == ReduceOp::kMaxAbs) {
      into = num_max(into, v);
    } else if (least) {
      into = -num_max(-into, -v);
    } else {
      into = a.op == ReduceOp::kProd ? into * v : into + v;
    }
  }
  if (a.scale != 1.0)
    for (int64_t k = 0; k < a.out.numel(); ++k) y.flat(k) *= N(a.scale);
});

const bool formula_reference = register_reference<ReduceBackwardArgs>([](const ReduceBackwardArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto grad = io.in(a.grad), x = io.in(a.x), y = io.in(a.y);
  auto& dx = io.out(a.dx);
  for (int64_t k = 0; k < a.dx.numel(); ++k) {
    const N g = grad.flat(k), v = x.flat(k);
    const auto sign = [&] {
      return num_where(
          v, [](auto n) { return n < 0; }, N(-1.0), N(1.0));
    };
    switch (a.op) {
      case ReduceOp::kSumDeviations:
        dx.flat(k) = g * (v - y.flat(k)) * N(a.scale);
        break;
      case ReduceOp::kSumExp:
        dx.flat(k) = g * num_exp(v - y.flat(k));
        break;
      case ReduceOp::kSumAbs:
        dx.flat(k) = g * sign();
        break;
      case ReduceOp::kSumSquares:
        dx.flat(k) = num_where(
            y.flat(k), [](auto n) { return n != 0; }, g * (v / y.flat(k)), N(0.0));
        break;
      default:
        dx.flat(k) = g * sign() * num_pow(num_max(v, -v) / y.flat(k), N(a.power - 1));
    }
  }
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
        x.flat(k), [&](auto v) { return v == most.flat(place) || (a.magnitudes && -v == most.flat(place)); }, N(1.0),
        N(0.0));
    share[place] += hits[k];
  }
  for (int64_t k = 0; k < a.max.numel(); ++k) share[k] = grad.flat(k) / share[k];
  for (int64_t k = 0; k < n; ++k) {
    dx.flat(k) = share[reduced_place(k, a.x.size, a.max.size)] * hits[k];
    if constexpr (!std::is_same_v<N, Counted>)
      if (a.magnitudes && x.flat(k) < 0) dx.flat(k) = -dx.flat(k);
  }
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

using Op = std::function<Tensor(const Tensor&, const Dims&, bool)>;

void run_all(const char* name, const Op& op) {
  for (const Shape& s : shapes())
    for (const bool keepdim : {false, true})
      run_op_case({std::string(name) + " " + str(s.size) + " over " + str(s.axes),
                   {{s.size}},
                   [&](const std::vector<Tensor>& x) { return op(x[0], s.axes, keepdim); }});
}

const float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor floats(const std::vector<float>& values) {
  return Tensor::from(values, Dims(static_cast<int64_t>(values.size())));
}
Tensor whole(const std::vector<int32_t>& values, const Dims& size, DType dtype = DType::kI32) {
  return to(Tensor::from(values, size), dtype);
}

Op plain(Tensor (*op)(const Tensor&, const Dims&, bool, std::optional<DType>)) {
  return [op](const Tensor& x, const Dims& axes, bool keepdim) { return op(x, axes, keepdim, {}); };
}
Op extreme(Tensor (*op)(const Tensor&, const Dims&, bool)) { return op; }

TEST(Reduce, Sum) {
  run_all("sum", plain(sum));
  EXPECT_EQ(sum(Tensor::empty(Dims(0, 3)), Dims(0)).to_vector(), std::vector<double>(3, 0.0));
  EXPECT_EQ(sum(Tensor::empty(Dims(0))).item(), 0.0);
}

TEST(Reduce, Mean) {
  run_all("mean", plain(mean));
  EXPECT_TRUE(std::isnan(mean(Tensor::empty(Dims(0, 3)), Dims(0)).to_vector()[2]));
  expect_error([] { mean(whole({1, 2}, Dims(2))); }, "mean: could not infer output dtype");
  expect_error([] { mean(floats({1, 2}), {}, false, DType::kI64); }, "mean: could not infer output dtype");
  EXPECT_EQ(mean(whole({1, 2}, Dims(2)), {}, false, DType::kF32).item(), 1.5);
}

TEST(Reduce, Extremes) {
  run_all("amax", extreme(amax));
  run_all("amin", extreme(amin));
  for (const Op& op : {extreme(amax), extreme(amin), extreme(max), extreme(min)}) {
    try {
      op(Tensor::empty(Dims(0, 3)), Dims(0), false);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kIndex);
      EXPECT_NE(std::string(e.what()).find("Expected reduction dim 0 to have non-zero size: shape (0, 3)"),
                std::string::npos);
    }
    EXPECT_EQ(op(Tensor::empty(Dims(0, 3)), Dims(1), false).sizes(), Dims(0));
  }
}

TEST(Reduce, Products) {
  run_all("prod",
          [](const Tensor& x, const Dims& axes, bool keepdim) { return prod(affine(x, 0.1f, 1.0f), axes, keepdim); });
  EXPECT_EQ(prod(Tensor::empty(Dims(0, 2)), Dims(0)).to_vector(), std::vector<double>(2, 1.0));
  // With no, one and two zeros among the factors.
  Tensor x = Tensor::from(std::vector<float>{2, 3, 4, 2, 0, 4, 0, 0, 4}, Dims(3, 3)).set_requires_grad();
  const Tensor y = prod(x, Dims(1));
  EXPECT_EQ(y.to_vector(), (std::vector<double>{24, 0, 0}));
  backward(y, floats({1, 10, 1}));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{12, 8, 6, 0, 80, 0, 0, 0, 0}));
}

TEST(Reduce, Variances) {
  for (const Shape& s : shapes())
    for (const bool keepdim : {false, true}) {
      const int mask = reduced_axes("test", Tensor::empty(s.size), s.axes);
      int64_t n = 1;
      for (int i = 0; i < s.size.rank; ++i) n *= mask >> i & 1 ? s.size[i] : 1;
      const double correction = n > 1 ? 1 : 0;
      const std::string what = str(s.size) + " over " + str(s.axes);
      run_op_case({"var " + what, {{s.size}}, [=](const auto& x) { return var(x[0], s.axes, correction, keepdim); }});
      if (n > 1 || s.size.numel() == 0)
        run_op_case({"std " + what, {{s.size}}, [=](const auto& x) { return std(x[0], s.axes, correction, keepdim); }});
    }
  const Tensor x = floats({1, 2, 4, 9});
  EXPECT_NEAR(var(x).item(), 38.0 / 3, 1e-5);
  EXPECT_NEAR(var(x, {}, 0).item(), 9.5, 1e-5);
  EXPECT_TRUE(std::isnan(var(floats({3})).item()));
  EXPECT_NEAR(var(floats({1e6f, 1e6f + 1, 1e6f + 2})).item(), 1, 1e-6);  // no cancellation
  Tensor same = floats({3, 3, 3}).set_requires_grad();
  backward(std(same));
  EXPECT_EQ(same.grad().to_vector(), std::vector<double>(3, 0.0));
  expect_error([] { var(whole({1, 2}, Dims(2))); }, "var: only supports floating point dtypes, not i32");
}

TEST(Reduce, LogSumExp) {
  run_all("logsumexp", extreme(logsumexp));
  EXPECT_NEAR(logsumexp(floats({1000, 1000})).item(), 1000 + std::log(2.0), 1e-4);
  EXPECT_NEAR(logsumexp(whole({0, 0}, Dims(2))).item(), std::log(2.0), 1e-6);
  EXPECT_EQ(logsumexp(floats({-kInf, -kInf})).item(), -kInf);
  EXPECT_EQ(logsumexp(floats({-kInf, kInf})).item(), kInf);
  EXPECT_TRUE(std::isnan(logsumexp(floats({kNaN, 1})).item()));
  EXPECT_EQ(logsumexp(Tensor::empty(Dims(0, 2)), Dims(0)).to_vector(), std::vector<double>(2, -kInf));
  Tensor x = Tensor::from(std::vector<float>{-kInf, -kInf, 0, 0}, Dims(2, 2)).set_requires_grad();
  backward(sum(logsumexp(x, Dims(1))));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, 0.5, 0.5}));
}

TEST(Reduce, Norms) {
  for (const double p : {1.0, 2.0, 3.0, 1.5, static_cast<double>(kInf)})
    for (const Shape& s : shapes()) {
      if (std::isinf(p) && s.size.numel() == 0) continue;
      if (p != 2 && s.size.numel() > 1000) continue;
      for (const bool keepdim : {false, true})
        run_op_case({"norm " + std::to_string(p) + " of " + str(s.size) + " over " + str(s.axes),
                     {{s.size}},
                     [=](const auto& x) { return norm(x[0], p, s.axes, keepdim); }});
    }
  const Tensor x = floats({3, -4, 0});
  EXPECT_EQ(norm(x).item(), 5);
  EXPECT_EQ(norm(x, 1).item(), 7);
  EXPECT_EQ(norm(x, kInf).item(), 4);
  EXPECT_EQ(norm(x, 0).item(), 2);
  for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0, static_cast<double>(kInf)}) {
    Tensor zero = floats({0, 0}).set_requires_grad();
    const Tensor y = norm(zero, p);
    EXPECT_EQ(y.item(), 0) << p;
    backward(y);
    EXPECT_EQ(zero.grad().to_vector(), std::vector<double>(2, 0.0)) << p;
  }
  Tensor ties = floats({-2, 1, 2}).set_requires_grad();
  backward(norm(ties, kInf));
  EXPECT_EQ(ties.grad().to_vector(), (std::vector<double>{-0.5, 0, 0.5}));
  expect_error([&] { norm(x, -1); }, "norm: p is -1; it must be 0 or more");
  expect_error([] { norm(whole({1}, Dims(1))); }, "norm: only supports floating point dtypes, not i32");
}

TEST(Reduce, Integers) {
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI16, DType::kU16, DType::kI8, DType::kU8}) {
    const Tensor x = whole({1, 2, 3, 4, 5, 100}, Dims(2, 3), dtype);
    EXPECT_EQ(sum(x).item(), 115);
    EXPECT_EQ(sum(x, Dims(0)).to_vector(), (std::vector<double>{5, 7, 103}));
    EXPECT_EQ(sum(x).dtype(), DType::kI64);
    EXPECT_EQ(prod(x, Dims(1)).to_vector(), (std::vector<double>{6, 2000}));
    EXPECT_EQ(prod(x).dtype(), DType::kI64);
    EXPECT_EQ(amax(x, Dims(1)).to_vector(), (std::vector<double>{3, 100}));
    EXPECT_EQ(amin(x, Dims(1)).dtype(), dtype);
  }
  const Tensor truth = whole({1, 0, 1}, Dims(3), DType::kBool);
  EXPECT_EQ(sum(truth).item(), 2);
  EXPECT_EQ(sum(truth).dtype(), DType::kI64);
  EXPECT_EQ(amax(truth).dtype(), DType::kBool);
  EXPECT_EQ(sum(truth, {}, false, DType::kF32).dtype(), DType::kF32);
  EXPECT_EQ(sum(floats({1.75f, 2.75f}), {}, false, DType::kI32).item(), 3);
  EXPECT_EQ(sum(floats({1.75f, 2.75f}), {}, false, DType::kI32).dtype(), DType::kI32);
  EXPECT_EQ(sum(whole({}, Dims(0))).item(), 0);
  EXPECT_EQ(prod(whole({}, Dims(0))).item(), 1);
  Tensor narrow = to(floats({1, 2}), DType::kBF16).set_requires_grad();
  const Tensor wide = sum(narrow, {}, false, DType::kF32);
  EXPECT_EQ(wide.dtype(), DType::kF32);
  backward(wide);
  EXPECT_EQ(narrow.grad().to_vector(), std::vector<double>(2, 1.0));
}

TEST(Reduce, TensorsWithoutAxes) {
  Tensor x = Tensor::from(std::vector<float>{3}, Dims());
  EXPECT_EQ(sum(x, Dims(-1)).item(), 3);
  EXPECT_EQ(amax(x, Dims(0)).item(), 3);
  EXPECT_EQ(norm(x).item(), 3);
  expect_error([&] { sum(x, Dims(1)); }, "sum: Dimension out of range");
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

// A million times 0.1, in a tree of leaves: one chain of additions in f32 gives 100958.
TEST(Reduce, LongSumsStayClose) {
  const Tensor x = Tensor::from(std::vector<float>(1000000, 0.1f), Dims(1000000));
  EXPECT_NEAR(sum(x).item(), 100000.0014901161, 0.1);
  const Tensor columns = expand(unsqueeze(x, 1), Dims(1000000, 3));
  EXPECT_EQ(sum(columns, Dims(0)).to_vector(), std::vector<double>(3, sum(x).item()));
}

// Long outputs are cut between threads, or not, or lie in columns: the same bits.
TEST(Reduce, LongOutputsHaveOneResult) {
  const int before = num_threads();
  for (const int64_t n : {4095, 4096, 4097, 131072, 131073, 200000, 300001}) {
    const Tensor x = random_tensor({Dims(n)}, DType::kF32, 7);
    std::vector<double> all[3];
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      for (const auto& op : {plain(sum), extreme(amax), extreme(amin), extreme(logsumexp)})
        all[threads].push_back(op(x, {}, false).item());
      all[threads].push_back(var(x).item());
    }
    EXPECT_EQ(all[1], all[2]) << n;
    const Tensor columns = transpose(contiguous(expand(unsqueeze(x, 0), Dims(40, n))), 0, 1);
    EXPECT_EQ(sum(columns, Dims(0)).to_vector(), std::vector<double>(40, all[1][0])) << n;
    EXPECT_EQ(sum(contiguous(columns), Dims(0)).to_vector(), std::vector<double>(40, all[1][0])) << n;
    EXPECT_EQ(var(contiguous(columns), Dims(0)).to_vector(), std::vector<double>(40, all[1][4])) << n;
  }
  set_num_threads(before);
}

TEST(Reduce, MetaCostsTheSame) {
  Cost costs[2];
  for (const bool meta : {false, true}) {
    Tensor x = Tensor::empty(Dims(6, 9), DType::kF32, meta ? kMetaCpu : kCpu);
    fill_(x, 1);
    x.set_requires_grad();
    LedgerGuard guard;
    backward(add(add(sum(norm(x, 3, Dims(1))), logsumexp(x)), add(sum(std(x, Dims(0))), add(prod(x), amin(x)))));
    costs[meta] = guard.ledger().cost();
  }
  EXPECT_EQ(costs[0], costs[1]);
}

// Kinds of errors and texts are PyTorch's.
TEST(Reduce, ScalarsAndNothing) {
  const Tensor one = Tensor::from(std::vector<float>{-3}, Dims()), none = Tensor::empty(Dims(0)),
               rows = Tensor::empty(Dims(0, 3));
  for (const int axis : {0, -1}) {
    const Dims d(axis);
    EXPECT_EQ(sum(one, d).item(), -3);
    EXPECT_EQ(mean(one, d).item(), -3);
    EXPECT_EQ(prod(one, d).item(), -3);
    EXPECT_EQ(amax(one, d).item(), -3);
    EXPECT_EQ(norm(one, 2, d).item(), 3);
    EXPECT_EQ(logsumexp(one, d).item(), -3);
    EXPECT_TRUE(std::isnan(var(one, d).item()));
    EXPECT_EQ(sum(one, d, true).sizes(), Dims());
  }
  for (const auto& f : {+[](const Tensor&x, const Dims&d) { return sum(x, d); },
                        +[](const Tensor&x, const Dims&d) { return logsumexp(x, d); },
                        +[](const Tensor&x, const Dims&d) { return var(x, d); }}) {
    EXPECT_EQ(error_kind([&] { f(one, Dims(1)); }), ErrorKind::kIndex);
    expect_error([&] { f(one, Dims(0, -1)); }, "dim 0 appears multiple times in the list of dims");
  }
  EXPECT_EQ(sum(none).item(), 0);
  EXPECT_EQ(prod(none).item(), 1);
  EXPECT_TRUE(std::isnan(mean(none).item()));
  EXPECT_EQ(logsumexp(none, Dims(0)).item(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(norm(none).item(), 0);
  EXPECT_EQ(sum(rows, Dims(0)).to_vector(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(amax(rows, Dims(1)).sizes(), Dims(0));
  EXPECT_EQ(error_kind([&] { amax(rows, Dims(0)); }), ErrorKind::kIndex);
  expect_error([&] { max(none); }, "Expected reduction dim to be specified for input.numel() == 0");
  EXPECT_EQ(error_kind([&] { amin(none); }), ErrorKind::kRuntime);
}

TEST(Reduce, WrongAxesAreNamed) {
  const Tensor x = Tensor::empty(Dims(2, 3));
  expect_error([&] { sum(x, Dims(0, -2)); }, "sum: dim 0 appears multiple times in the list of dims");
  expect_error([&] { mean(x, Dims(2)); }, "mean");
  expect_error([&] { sum(Tensor{}); }, "sum: an input is missing");
  expect_error([&] { sum(Tensor::empty(Dims(2), DType::kF8E4M3)); }, "sum: takes a float tensor");
}

}  // namespace
}  // namespace tally::test
