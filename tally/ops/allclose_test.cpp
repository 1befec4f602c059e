#include "tally/ops/allclose.h"

#include <cmath>
#include <limits>

#include "tally/ops/allclose_kernels.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/random.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

const bool reference = register_reference<CountUnequalArgs>([](const CountUnequalArgs& c, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto a = io.index(c.a), b = io.index(c.b);
  auto& out = io.inout(c.out);
  double count = 0;
  for (int64_t i = 0; i < c.a.numel(); ++i) {
    num_where(
        N(a.flat(i)) - N(b.flat(i)), [](auto) { return true; }, N(0), N(c.atol) + N(c.rtol) * N(b.flat(i)));
    const double x = a.flat(i), y = b.flat(i);
    const bool near = c.rtol + c.atol > 0 && std::isfinite(x - y) && std::abs(x - y) <= c.atol + c.rtol * std::abs(y);
    count += !(x == y || near || (c.equal_nan && std::isnan(x) && std::isnan(y)));
  }
  if constexpr (!std::is_same_v<N, Counted>) out.flat(0) = static_cast<N>(static_cast<double>(out.flat(0)) + count);
});

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor there(const Tensor& x) { return to(x, test_device()); }

TEST(Allclose, CountsAgainstTheReference) {
  VerifyLaunches verify;
  for (const Dims& size : {Dims(), Dims(1), Dims(1000), Dims(65, 33), Dims(0, 3), Dims(2, 1, 3, 2, 1, 5)}) {
    const Tensor a = there(random_tensor({size}, DType::kF32, 1)), b = there(random_tensor({size}, DType::kF32, 2));
    EXPECT_TRUE(equal(a, a));
    EXPECT_EQ(equal(a, b), size.numel() == 0);
    EXPECT_EQ(allclose(a, b, 0.1, 0.1), size.numel() == 0);
    EXPECT_TRUE(allclose(a, b, 0, 100));
  }
  const Tensor x = there(random_tensor({Dims(40, 30)}, DType::kF32, 3));
  EXPECT_FALSE(equal(x, transpose(view(x, Dims(30, 40)), 0, 1)));
  EXPECT_TRUE(equal(transpose(x, 0, 1), contiguous(transpose(x, 0, 1))));
  EXPECT_GT(verify.launches(), 0);
}

TEST(Allclose, EqualOfValues) {
  const Tensor f = tensor({1.0, 2.0, 3.0});
  EXPECT_TRUE(equal(f, tensor({1, 2, 3})));
  EXPECT_FALSE(equal(f, tensor({1, 2, 4})));
  EXPECT_FALSE(equal(f, tensor({{1, 2, 3}})));  // another shape
  EXPECT_FALSE(equal(tensor({NAN}), tensor({NAN})));
  EXPECT_TRUE(equal(tensor({0.0}), tensor({-0.0})));
  EXPECT_TRUE(equal(tensor({true, false}), tensor({1, 0})));
  // Integers exactly, where f64 has not the digits; with f32 in f32.
  EXPECT_FALSE(equal(tensor({9007199254740993}), tensor({9007199254740992})));
  EXPECT_TRUE(equal(tensor({16777217}), tensor({16777216.0})));
  EXPECT_FALSE(equal(tensor({16777217}), tensor({16777216.0}, {.dtype = DType::kF64})));
}

TEST(Allclose, TolerancesAndSpecialValues) {
  EXPECT_TRUE(allclose(tensor({1.0}), tensor({1.000001})));
  EXPECT_FALSE(allclose(tensor({1.0}), tensor({1.001})));
  EXPECT_TRUE(allclose(tensor({1.0}), tensor({1.001}), 1e-2));
  EXPECT_TRUE(allclose(tensor({kInf, -kInf}), tensor({kInf, -kInf})));
  EXPECT_FALSE(allclose(tensor({kInf}), tensor({-kInf}), 1e30, 1e30));
  EXPECT_FALSE(allclose(tensor({1.0}), tensor({kInf}), 1, 1));
  EXPECT_FALSE(allclose(tensor({NAN}), tensor({NAN})));
  EXPECT_TRUE(allclose(tensor({NAN}), tensor({NAN}), 1e-5, 1e-8, true));
  EXPECT_TRUE(allclose(tensor({{1.0, 1.0}, {1.0, 1.0}}), tensor({1.0})));  // broadcasts
  EXPECT_TRUE(allclose(tensor({3, 4}), tensor({3.0, 4.0})));
}

TEST(Allclose, Errors) {
  const Tensor x = tensor({1.0, 2.0});
  expect_error([&] { equal(x, Tensor()); }, "equal: an input is missing");
  expect_error([&] { equal(x, zeros({2}, {.device = kMetaCpu})); }, "devices cpu and meta:cpu differ");
  expect_error([&] { equal(zeros({2}, {.device = kMetaCpu}), zeros({2}, {.device = kMetaCpu})); }, "has no values");
  expect_error([&] { allclose(x, tensor({1.0, 2.0, 3.0})); }, "allclose: shapes (2,) and (3,) do not broadcast");
  expect_error([&] { allclose(x, x, -1); }, "must not be negative");
}

}  // namespace
}  // namespace tally::test
