#include "tally/ops/inplace.h"

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/compare.h"
#include "tally/ops/op_test.h"
#include "tally/ops/operators.h"
#include "tally/ops/view.h"
#include "tally/ops/where.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor floats(std::vector<float> v) {
  const auto n = static_cast<int64_t>(v.size());
  return Tensor::from(v, Dims(n));
}
Tensor ints(std::vector<int32_t> v, DType t = DType::kI64) {
  const auto n = static_cast<int64_t>(v.size());
  return to(Tensor::from(v, Dims(n)), t);
}

// An in-place function beside the one that it stands for.
struct Pair {
  const char* name;
  void (*in_place)(Tensor& x, const Tensor& y);
  Tensor (*apart)(const Tensor& x, const Tensor& y);
};
#define UNARY(f)                                                                                        \
  {                                                                                                     \
#f, [](Tensor & x, const Tensor&) { f##_(x); }, [](const Tensor& x, const Tensor&) { return f(x); } \
  }
#define BINARY(f)                                                                                                 \
  {                                                                                                               \
#f, [](Tensor & x, const Tensor& y) { f##_(x, y); }, [](const Tensor& x, const Tensor& y) { return f(x, y); } \
  }
const Pair kPairs[] = {
    UNARY(relu),
    UNARY(sigmoid),
    UNARY(tanh),
    UNARY(exp),
    UNARY(log),
    UNARY(sqrt),
    UNARY(rsqrt),
    UNARY(sin),
    UNARY(reciprocal),
    UNARY(cos),
    UNARY(erf),
    UNARY(neg),
    UNARY(abs),
    UNARY(sign),
    UNARY(floor),
    UNARY(square),
    UNARY(ceil),
    UNARY(round),
    UNARY(trunc),
    BINARY(add),
    BINARY(sub),
    BINARY(mul),
    BINARY(div),
    BINARY(pow),
    BINARY(floor_divide),
    BINARY(remainder),
    {"add scaled", [](Tensor& x, const Tensor& y) { add_(x, y, 0.5); },
     [](const Tensor& x, const Tensor& y) { return add(x, y, 0.5); }},
    {"sub a number", [](Tensor& x, const Tensor&) { sub_(x, 0.5, 3); },
     [](const Tensor& x, const Tensor&) { return sub(x, 0.5, 3); }},
    {"mul by a number", [](Tensor& x, const Tensor&) { mul_(x, 3); },
     [](const Tensor& x, const Tensor&) { return mul(x, 3); }},
    {"div by a number", [](Tensor& x, const Tensor&) { div_(x, 3); },
     [](const Tensor& x, const Tensor&) { return div(x, 3); }},
    {"clamp", [](Tensor& x, const Tensor&) { clamp_(x, 0.5, 1); },
     [](const Tensor& x, const Tensor&) { return clamp(x, 0.5, 1); }},
    {"masked_fill", [](Tensor& x, const Tensor&) { masked_fill_(x, gt(x, 1), 7); },
     [](const Tensor& x, const Tensor&) { return masked_fill(x, gt(x, 1), 7); }},
    {"copy", [](Tensor& x, const Tensor& y) { assign_(x, y); },
     [](const Tensor& x, const Tensor& y) { return expand(y, x.sizes()); }},
    {"fill", [](Tensor& x, const Tensor&) { fill_(x, 3); },
     [](const Tensor& x, const Tensor&) { return floor(x * 0) + 3; }},
};

TEST(InPlace, GivesTheValuesOfTheFunction) {
  for (const Pair& p : kPairs) {
    for (const bool transposed : {false, true}) {
      const Tensor x = random_tensor({Dims(5, 7), Input::kPositive}, DType::kF32, 3);
      const Tensor y = random_tensor({transposed ? Dims(5) : Dims(7), Input::kPositive}, DType::kF32, 4);
      const Tensor shown = transposed ? transpose(x, 0, 1) : x;
      const V want = p.apart(shown, y).to_vector();
      Tensor target = shown;
      p.in_place(target, y);
      EXPECT_EQ(shown.to_vector(), want) << p.name;
      EXPECT_TRUE(target.shares_storage(x));
    }
  }
}

// d/dx and d/dy of sum(w * f(2 x, y)) with f in place and apart.
TEST(InPlace, RecordsTheGradientsOfTheFunction) {
  for (const Pair& p : kPairs) {
    std::vector<V> got;
    for (const bool in_place : {true, false}) {
      Tensor x = random_tensor({Dims(3, 4), Input::kPositive}, DType::kF64, 3);
      Tensor y = random_tensor({Dims(4), Input::kPositive}, DType::kF64, 4);
      x.set_requires_grad(), y.set_requires_grad();
      Tensor z = x * 2;
      if (in_place) {
        p.in_place(z, y);
      } else {
        z = p.apart(z, y);
      }
      backward(z, random_tensor({z.sizes()}, DType::kF64, 5));
      for (const Tensor& t : {x, y}) got.push_back(t.grad().defined() ? t.grad().to_vector() : V{});
      got.push_back(z.to_vector());
    }
    EXPECT_EQ(got[0], got[3]) << p.name;
    EXPECT_EQ(got[1], got[4]) << p.name;
    EXPECT_EQ(got[2], got[5]) << p.name;
  }
}

TEST(InPlace, AConstantTakesTheGradientOfWhatIsAdded) {
  Tensor w = floats({1, 2}), x = floats({3, 4});
  w.set_requires_grad();
  mul_(x, w);
  EXPECT_TRUE(x.requires_grad());
  backward(x, floats({1, 1}));
  EXPECT_EQ(w.grad().to_vector(), (V{3, 4}));
}

TEST(InPlace, LeavesAreRefused) {
  Tensor x = floats({1, 4});
  x.set_requires_grad();
  const Tensor mask = gt(x, 2);
  for (const Pair& p : kPairs)
    expect_error(
        [&] {
          p.in_place(x, floats({1, 2}));
        },
        "a leaf tensor that requires grad is being used in an in-place");
  expect_error([&] { zero_(x); }, "fill_: a leaf tensor that requires grad");
  EXPECT_EQ(x.to_vector(), (V{1, 4}));
  NoGrad quiet;
  add_(x, 1);
  EXPECT_EQ(x.to_vector(), (V{2, 5}));
  EXPECT_TRUE(x.requires_grad());
}

TEST(InPlace, ResultsThatCannotBeCast) {
  Tensor n = ints({1, 2}), b = to(n, DType::kBool), u = ints({1, 2}, DType::kU8);
  expect_error([&] { add_(n, 1.5); }, "add_: result type f32 can't be cast to the desired output type i64");
  expect_error([&] { div_(n, 2); }, "div_: result type f32 can't be cast");
  expect_error([&] { sqrt_(n); }, "sqrt_: result type f32 can't be cast");
  expect_error([&] { add_(b, 1); }, "add_: result type i64 can't be cast to the desired output type bool");
  expect_error([&] { add_(n, ints({1, 2, 3})); }, "do not broadcast");
  expect_error(
      [&] {
        add_(n, Tensor::from(std::vector<int32_t>{1, 2, 3, 4}, Dims(2, 2)));
      },
      "add_: a tensor of shape (2,) doesn't match the broadcast shape (2, 2)");
  EXPECT_EQ(n.to_vector(), (V{1, 2}));
  add_(n, 3), mul_(n, n), neg_(n);
  EXPECT_EQ(n.to_vector(), (V{-16, -25}));
  floor_divide_(n, 3), abs_(n), sub_(n, 1, 2), pow_(n, 2);
  EXPECT_EQ(n.to_vector(), (V{16, 49}));
  add_(u, ints({300, 300}));
  EXPECT_EQ(u.to_vector(), (V{45, 46}));
  bitwise_and_(b, to(ints({1, 0}), DType::kBool));
  EXPECT_EQ(b.to_vector(), (V{1, 0}));
  Tensor f = floats({1, 2});
  add_(f, ints({1, 1})), add_(f, to(floats({0.5, 0.5}), DType::kF64));
  EXPECT_EQ(f.to_vector(), (V{2.5, 3.5}));
  Tensor half = to(floats({1, 2}), DType::kBF16);
  add_(half, f);
  EXPECT_EQ(half.to_vector(), (V{3.5, 5.5}));
  EXPECT_EQ(half.dtype(), DType::kBF16);
}

TEST(InPlace, PartsOfALargerTensorWhileRecording) {
  Tensor x = floats({1, 2, 3, 4}), w = floats({5, 6});
  w.set_requires_grad();
  Tensor part = slice(x, 0, 0, 2);
  add_(part, 1);
  EXPECT_EQ(x.to_vector(), (V{2, 3, 3, 4}));
  {
    NoGrad quiet;
    add_(part, w);
    EXPECT_FALSE(x.requires_grad());
  }
  EXPECT_EQ(x.to_vector(), (V{7, 9, 3, 4}));
  mul_(part, w);  // the rest is in changes_test.cpp
  EXPECT_TRUE(x.requires_grad());
}

TEST(InPlace, OperatorsWriteToTheirTensor) {
  Tensor x = floats({1, 2});
  const Tensor same = x;
  x += 1, x *= floats({2, 3}), x -= 1, x /= 2;
  EXPECT_EQ(same.to_vector(), (V{1.5, 4}));
}

TEST(InPlace, MetaIsThePlan) {
  const auto run = [](Device device) {
    LedgerGuard guard;
    Tensor x = Tensor::empty(Dims(4, 8), DType::kF32, device), y = Tensor::empty(Dims(8), DType::kF32, device);
    fill_(x, 2), fill_(y, 3);
    for (const Pair& p : kPairs) p.in_place(x, y);
    const Cost c = guard.ledger().cost();
    return std::vector<int64_t>{c.other_flops, c.bytes_read, c.bytes_written, guard.ledger().peak_bytes()};
  };
  EXPECT_EQ(run(kCpu), run(kMetaCpu));
}

}  // namespace
}  // namespace tally::test
