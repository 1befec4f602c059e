#include "tally/ops/arithmetic.h"

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/operators.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor ints(std::vector<int32_t> v, DType t = DType::kI64) {
  const auto n = static_cast<int64_t>(v.size());
  return to(Tensor::from(v, Dims(n)), t);
}
Tensor floats(std::vector<float> v, DType t = DType::kF32) {
  const auto n = static_cast<int64_t>(v.size());
  return to(Tensor::from(v, Dims(n)), t);
}
void expect_is(const Tensor& t, DType dtype, const V& values) {
  EXPECT_EQ(t.dtype(), dtype);
  EXPECT_EQ(t.to_vector(), values);
}
void expect_kind(ErrorKind kind, const std::function<void()>& f, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_EQ(e.kind, kind) << e.what();
  }
}

TEST(Arithmetic, PairsWithBroadcast) {
  using Op = Tensor (*)(const Operand&, const Operand&);
  const std::pair<const char*, Op> ops[] = {
      {"add", [](const Operand& a, const Operand& b) { return add(a, b); }},
      {"add scaled", [](const Operand& a, const Operand& b) { return add(a, b, -0.75); }},
      {"sub", [](const Operand& a, const Operand& b) { return sub(a, b); }},
      {"sub scaled", [](const Operand& a, const Operand& b) { return sub(a, b, 2); }},
      {"mul", [](const Operand& a, const Operand& b) { return mul(a, b); }},
      {"div", [](const Operand& a, const Operand& b) { return div(a, b); }},
      {"maximum", maximum},
      {"minimum", minimum},
      {"floor_divide", floor_divide},
      {"remainder", remainder}};
  const std::pair<Dims, Dims> pairs[] = {
      {Dims(5), Dims(5)},          {Dims(3, 4), Dims(4)}, {Dims(3, 1), Dims(1, 4)}, {Dims(2, 3, 17), Dims(3, 1)},
      {Dims(2, 1, 5), Dims(3, 5)}, {Dims(), Dims(3, 2)},  {Dims(0, 4), Dims(4)},    {Dims(8, 64), Dims(8, 64)}};
  for (const auto& [name, op] : ops)
    for (const auto& [a, b] : pairs)
      run_op_case({std::string(name) + " " + str(a) + " " + str(b),
                   {{a}, {b, Input::kPositive}},
                   [op = op](const std::vector<Tensor>& x) { return op(x[0], x[1]); }});
  for (const auto& [a, b] : pairs)
    run_op_case({"pow " + str(a) + " " + str(b), {{a, Input::kPositive}, {b}}, [](const std::vector<Tensor>& x) {
                   return pow(x[0], x[1]);
                 }});
}

TEST(Arithmetic, TensorsWithNumbers) {
  using F = Tensor (*)(const Tensor&);
  const std::pair<const char*, F> ops[] = {{"x + 1", [](const Tensor& x) { return x + 1; }},
                                           {"2 + x", [](const Tensor& x) { return 2 + x; }},
                                           {"2 + 3 x", [](const Tensor& x) { return add(2, x, 3); }},
                                           {"x - 1.5", [](const Tensor& x) { return x - 1.5; }},
                                           {"1.5 - x", [](const Tensor& x) { return 1.5 - x; }},
                                           {"3 x", [](const Tensor& x) { return 3 * x; }},
                                           {"x / 3", [](const Tensor& x) { return x / 3; }},
                                           {"3 / x", [](const Tensor& x) { return 3 / x; }},
                                           {"-x", [](const Tensor& x) { return -x; }},
                                           {"x^0", [](const Tensor& x) { return pow(x, 0); }},
                                           {"x^1", [](const Tensor& x) { return pow(x, 1); }},
                                           {"x^2", [](const Tensor& x) { return pow(x, 2); }},
                                           {"x^3", [](const Tensor& x) { return pow(x, 3); }},
                                           {"x^.5", [](const Tensor& x) { return pow(x, 0.5); }},
                                           {"x^-.5", [](const Tensor& x) { return pow(x, -0.5); }},
                                           {"x^-1", [](const Tensor& x) { return pow(x, -1); }},
                                           {"x^1.7", [](const Tensor& x) { return pow(x, 1.7); }},
                                           {"1.7^x", [](const Tensor& x) { return pow(1.7, x); }},
                                           {"0^x", [](const Tensor& x) { return pow(0.0, x); }},
                                           {"max 1", [](const Tensor& x) { return maximum(x, 1); }},
                                           {"x // .4", [](const Tensor& x) { return floor_divide(x, 0.4); }},
                                           {"x % -.4", [](const Tensor& x) { return remainder(x, -0.4); }},
                                           {"clamp", [](const Tensor& x) { return clamp(x, 0.5, 1); }},
                                           {"clamp low", [](const Tensor& x) { return clamp(x, 0.8); }},
                                           {"clamp high", [](const Tensor& x) { return clamp(x, {}, 0.8); }}};
  for (const auto& [name, f] : ops)
    for (const Dims& size : {Dims(3, 5), Dims(), Dims(0, 2)})
      run_op_case({name, {{size, Input::kPositive}}, [f = f](const std::vector<Tensor>& x) { return f(x[0]); }});
}

TEST(Arithmetic, IntegersStayAndWrap) {
  const Tensor x = ints({1, -4, 9});
  expect_is(x + x, DType::kI64, {2, -8, 18});
  expect_is(x - 10, DType::kI64, {-9, -14, -1});
  expect_is(10 - x, DType::kI64, {9, 14, 1});
  expect_is(x * 2, DType::kI64, {2, -8, 18});
  expect_is(add(x, x, 3), DType::kI64, {4, -16, 36});
  expect_is(sub(x, 2, 3), DType::kI64, {-5, -10, 3});
  expect_is(-x, DType::kI64, {-1, 4, -9});
  expect_is(abs(x), DType::kI64, {1, 4, 9});
  expect_is(sign(x), DType::kI64, {1, -1, 1});
  expect_is(square(x), DType::kI64, {1, 16, 81});
  expect_is(floor(x), DType::kI64, {1, -4, 9});
  expect_is(relu(x), DType::kI64, {1, 0, 9});
  expect_is(clamp(x, -1, 3), DType::kI64, {1, -1, 3});
  expect_is(clamp(x, 0.5, 1.5), DType::kF32, {1, 0.5, 1.5});
  expect_is(maximum(x, 2), DType::kI64, {2, 2, 9});
  expect_is(x / 2, DType::kF32, {0.5, -2, 4.5});
  expect_is(pow(2, ints({1, 4, 9})), DType::kI64, {2, 16, 512});
  expect_is(pow(x, 0.0), DType::kF32, {1, 1, 1});
  expect_is(pow(ints({2, 3, -1, 1, 0}), ints({-1, -2, -3, -4, -5})), DType::kI64, {0, 0, -1, 1, 0});
  expect_is(exp(ints({0})), DType::kF32, {1});
  // Every narrow dtype wraps at its own width.
  expect_is(ints({100, -100}, DType::kI8) + 100, DType::kI8, {-56, 0});
  expect_is(ints({200}, DType::kU8) + ints({100}, DType::kU8), DType::kU8, {44});
  expect_is(ints({30000}, DType::kI16) * 3, DType::kI16, {24464});
  expect_is(ints({2000000000}, DType::kI32) * 2, DType::kI32, {-294967296});
  expect_is(-ints({-128}, DType::kI8), DType::kI8, {-128});
  expect_is(ints({60000}, DType::kU16) + ints({10000}, DType::kU16), DType::kU16, {4464});
  expect_is(ints({3}, DType::kI32) * int64_t{5000000000}, DType::kI32, {2115098112});
}

TEST(Arithmetic, QuotientsOfIntegersArePythons) {
  const Tensor a = ints({7, -7, 7, -7, 6, -6}), b = ints({2, 2, -2, -2, 3, -3});
  expect_is(floor_divide(a, b), DType::kI64, {3, -4, -4, 3, 2, 2});
  expect_is(remainder(a, b), DType::kI64, {1, 1, -1, -1, 0, 0});
  expect_is(div(a, b, Rounding::kTrunc), DType::kI64, {3, -3, -3, 3, 2, 2});
  expect_is(div(a, 2, Rounding::kFloor), DType::kI64, {3, -4, 3, -4, 3, -3});
  expect_is(floor_divide(floats({7, -7}), 2), DType::kF32, {3, -4});
  expect_is(remainder(floats({7.5, -7.5}), -2), DType::kF32, {-0.5, -1.5});
  expect_is(div(floats({7, -7}), 2, Rounding::kTrunc), DType::kF32, {3, -3});
  EXPECT_EQ(floor_divide(floats({1}), 0).item(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(remainder(floats({1}), 0).item()));

  for (const Operand& zero : {Operand(0), Operand(b)}) {
    const Tensor with_zero = ints({1, 2, 3, 4, 5, 0});
    const Operand o = zero.is_tensor() ? Operand(with_zero) : zero;
    expect_error([&] { floor_divide(a, o); }, "ZeroDivisionError");
    expect_error([&] { remainder(a, o); }, "ZeroDivisionError");
    expect_error([&] { div(a, o, Rounding::kTrunc); }, "ZeroDivisionError");
  }
  // The one quotient that does not exist in i64, and the same in i8.
  Tensor least = ints({0});
  fill_(least, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(least.data<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(floor_divide(least, -1).data<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(floor_divide(least, ints({-1})).data<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(remainder(least, -1).data<int64_t>()[0], 0);
  EXPECT_EQ(div(least, -1, Rounding::kTrunc).data<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(abs(least).data<int64_t>()[0], std::numeric_limits<int64_t>::min());
  expect_is(floor_divide(ints({-128}, DType::kI8), -1), DType::kI8, {-128});
  // Beyond the 53 bits of a double.
  Tensor large = ints({0});
  fill_(large, (int64_t{1} << 53) + 1);
  EXPECT_EQ((large + large).data<int64_t>()[0], (int64_t{1} << 54) + 2);
  EXPECT_EQ(pow(ints({3}), 39).data<int64_t>()[0], 4052555153018976267);
}

TEST(Arithmetic, BoolAndBits) {
  const Tensor t = to(ints({1, 1, 0, 0}), DType::kBool), u = to(ints({1, 0, 1, 0}), DType::kBool);
  expect_is(t + u, DType::kBool, {1, 1, 1, 0});
  expect_is(t * u, DType::kBool, {1, 0, 0, 0});
  expect_is(t + 1, DType::kI64, {2, 2, 1, 1});
  expect_is(t + 1.5, DType::kF32, {2.5, 2.5, 1.5, 1.5});
  expect_is(t / (u + u + 1), DType::kF32, {0.5, 1, 0, 0});
  expect_is(bitwise_and(t, u), DType::kBool, {1, 0, 0, 0});
  expect_is(bitwise_xor(t, u), DType::kBool, {0, 1, 1, 0});
  expect_is(bitwise_or(t, u), DType::kBool, {1, 1, 1, 0});
  expect_is(bitwise_not(t), DType::kBool, {0, 0, 1, 1});
  expect_is(bitwise_not(ints({1, 2, -3})), DType::kI64, {-2, -3, 2});
  expect_is(bitwise_and(ints({12}), 10), DType::kI64, {8});
  expect_is(bitwise_xor(ints({5}), true), DType::kI64, {4});
  expect_is(bitwise_left_shift(ints({1, -1}, DType::kI8), 3), DType::kI8, {8, -8});
  expect_is(bitwise_right_shift(ints({-9, 9}), 70), DType::kI64, {-1, 0});
  expect_kind(
      ErrorKind::kRuntime, [&] { t - u; }, "sub: bool has no difference");
  for (const Operand& other : {Operand(1), Operand(1.5), Operand(true)}) {  // as PyTorch: no side of it is bool
    expect_kind(
        ErrorKind::kRuntime, [&] { sub(t, other); }, "sub: bool has no difference");
    expect_kind(
        ErrorKind::kRuntime, [&] { sub(other, t); }, "sub: bool has no difference");
  }
  expect_kind(
      ErrorKind::kRuntime, [&] { -t; }, "neg: a bool tensor");
  expect_kind(
      ErrorKind::kType, [&] { bitwise_and(floats({1}), 1); }, "takes integers and bool, not f32");
}

TEST(Arithmetic, WrongUseIsNamed) {
  const Tensor f8 = floats({1}, DType::kF8E4M3), x = floats({1, 2});
  expect_kind(
      ErrorKind::kType, [&] { add(f8, f8); }, "add: f8e4m3 is for storage and has no arithmetic; convert");
  expect_kind(
      ErrorKind::kType, [&] { exp(f8); }, "exp: f8e4m3");
  expect_error([&] { add(x, Tensor::empty(Dims(2), DType::kF32, kMetaCpu)); }, "devices cpu and meta:cpu differ");
  expect_error([&] { add(x, floats({1, 2, 3})); }, "add: shapes (2,) and (3,) do not broadcast");
  expect_error([&] { mul(Tensor(), x); }, "mul: an input is missing");
  expect_error([&] { add(ints({1}), ints({1}), 0.5); }, "alpha must be whole");
  expect_error([&] { pow(ints({2}), -1); }, "integers to the negative power -1");
  expect_kind(
      ErrorKind::kValue, [&] { clamp(x, {}, {}); }, "clamp: at least one of");
  expect_kind(
      ErrorKind::kType, [&] { add(1, 2); }, "at least one operand must be a tensor");
}

TEST(Arithmetic, GradientsPassThroughPromotion) {
  Tensor a = floats({1, 2}), b = floats({3, 4}, DType::kBF16), n = ints({5, 6});
  a.set_requires_grad(), b.set_requires_grad();
  const Tensor y = a * b + n;
  EXPECT_EQ(y.dtype(), DType::kF32);
  EXPECT_EQ(y.to_vector(), (V{8, 14}));
  backward(y, floats({1, 1}));
  EXPECT_EQ(a.grad().to_vector(), (V{3, 4}));
  EXPECT_EQ(b.grad().to_vector(), (V{1, 2}));
}

TEST(Arithmetic, GradientsAtTheEdges) {
  const auto gradient = [](Tensor x, const std::function<Tensor(const Tensor&)>& f) {
    x.set_requires_grad();
    const Tensor y = f(x);
    std::vector<float> ones(static_cast<size_t>(y.numel()), 1.0f);
    backward(y, Tensor::from(ones, y.sizes()));
    return x.grad().to_vector();
  };
  EXPECT_EQ(gradient(floats({0, 2}), [](const Tensor& x) { return pow(x, 0); }), (V{0, 0}));
  EXPECT_EQ(gradient(floats({0, 1}), [](const Tensor& x) { return pow(0.0, x); }), (V{0, 0}));
  EXPECT_EQ(gradient(floats({0, 0}), [](const Tensor& x) { return pow(x, floats({0, 1})); }), (V{0, 1}));
  EXPECT_EQ(gradient(floats({2, 3}), [](const Tensor& x) { return pow(floats({0, 1}), x); }), (V{0, 0}));
  EXPECT_EQ(gradient(floats({1, 2, 3}), [](const Tensor& x) { return maximum(x, 2); }), (V{0, 0.5, 1}));
  EXPECT_EQ(gradient(floats({1, 2, 3}), [](const Tensor& x) { return clamp(x, 1, 2); }), (V{0, 0, 0}));
  EXPECT_EQ(gradient(floats({1, 1.5f, 3}), [](const Tensor& x) { return clamp(x, 1, 2); }), (V{0, 1, 0}));
  EXPECT_EQ(gradient(floats({-1, 0, 2}), [](const Tensor& x) { return abs(x); }), (V{-1, 0, 1}));
  EXPECT_EQ(gradient(floats({-1, 0, 2}), [](const Tensor& x) { return round(x) + sign(x); }), (V{0, 0, 0}));
}

using Bound = std::optional<Operand>;

// Values and gradients are PyTorch 2.15's.
TEST(Arithmetic, ClampTakesTensors) {
  Tensor x = floats({1, 2, 3, 4, 5}), low = floats({2, 2, 2, 5, 6}), high = floats({3, 3, 3, 4, 4});
  x.set_requires_grad(), low.set_requires_grad(), high.set_requires_grad();
  const Tensor y = clamp(x, Bound(low), Bound(high));
  EXPECT_EQ(y.to_vector(), (V{2, 2, 3, 4, 4}));
  backward(y, floats({1, 1, 1, 1, 1}));
  EXPECT_EQ(x.grad().to_vector(), (V{0, 0.5, 0.5, 0, 0}));
  EXPECT_EQ(low.grad().to_vector(), (V{1, 0.5, 0, 0, 0}));
  EXPECT_EQ(high.grad().to_vector(), (V{0, 0, 0.5, 1, 1}));
  // Broadcast, promotion, a number beside a tensor, one bound, NaN.
  const Tensor column = Tensor::from(std::vector<float>{0, 5}, Dims(2, 1));
  EXPECT_EQ(clamp(column, Bound(floats({1, 2})), Bound(4)).to_vector(), (V{1, 2, 4, 4}));
  EXPECT_EQ(clamp(ints({0, 3}), Bound(), Bound(ints({1, 1}))).to_vector(), (V{0, 1}));
  const Tensor half = Tensor::from(std::vector<float>{1.5f}, Dims());
  EXPECT_EQ(clamp(ints({0, 3}), Bound(half), Bound()).dtype(), DType::kF32);
  EXPECT_TRUE(std::isnan(clamp(floats({1}), Bound(floats({NAN})), Bound()).item()));
  EXPECT_EQ(clamp(floats({1, 9}), Bound(2), Bound(3)).to_vector(), (V{2, 3}));
  expect_error([&] { clamp(x, Bound(), Bound()); }, "clamp: at least one of min and max");
  expect_error([&] { clamp(x, Bound(floats({1, 2})), Bound()); }, "do not broadcast");
  Tensor z = floats({1, 9});
  clamp_(z, Bound(floats({2, 2})), Bound(3));
  EXPECT_EQ(z.to_vector(), (V{2, 3}));
  const Tensor wide = Tensor::from(std::vector<float>{1, 2, 3, 4}, Dims(2, 2));
  expect_error([&] { clamp_(z, Bound(wide), Bound()); }, "doesn't match the broadcast shape");
  Tensor w = floats({1, 5}), u = floats({2, 2});
  u.set_requires_grad();
  clamp_(w, Bound(u), Bound());  // recorded by its bound
  backward(w, floats({1, 1}));
  EXPECT_EQ(u.grad().to_vector(), (V{1, 0}));
}

TEST(Arithmetic, MetaHasTheShapesAndCosts) {
  const auto run = [](Device device) {
    LedgerGuard guard;
    Tensor x = Tensor::empty(Dims(4, 8), DType::kF32, device), n = Tensor::empty(Dims(8), DType::kI64, device);
    fill_(x, 2), fill_(n, 3);
    x.set_requires_grad();
    const Tensor y = maximum(pow(x, 1.5) * n, remainder(x, n)) / 3 + clamp(x, 0, 1);
    backward(y, Tensor::empty(y.sizes(), y.dtype(), device));
    EXPECT_EQ(y.sizes(), Dims(4, 8));
    EXPECT_EQ(floor_divide(n, 2).sizes(), Dims(8));
    const Cost c = guard.ledger().cost();
    return std::vector<int64_t>{c.other_flops, c.bytes_read, c.bytes_written, guard.ledger().peak_bytes()};
  };
  EXPECT_EQ(run(kCpu), run(kMetaCpu));
}

}  // namespace
}  // namespace tally::test
