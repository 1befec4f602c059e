#include "tally/ops/compare.h"

#include <cmath>
#include <limits>

#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

template <class N>
N answer(CompareOp op, N x, N y) {
  if constexpr (std::is_same_v<N, Counted>) {
    return Counted::one();
  } else {
    switch (op) {
      case CompareOp::kEq:
        return x == y;
      case CompareOp::kNe:
        return x != y;
      case CompareOp::kLt:
        return x < y;
      case CompareOp::kLe:
        return x <= y;
      case CompareOp::kGt:
        return x > y;
      case CompareOp::kGe:
        return x >= y;
      case CompareOp::kAnd:
        return x != 0 && y != 0;
      case CompareOp::kOr:
        return x != 0 || y != 0;
      case CompareOp::kXor:
        return (x != 0) != (y != 0);
      case CompareOp::kNot:
        return x == 0;
      case CompareOp::kIsNan:
        return std::isnan(x);
      case CompareOp::kIsInf:
        return std::isinf(x);
      case CompareOp::kIsFinite:
        return std::isfinite(x);
    }
    return 0;
  }
}
const bool registered = register_reference<CompareArgs>([](const CompareArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.number == CompareArgs::kA ? a.b : a.a), y = io.in(a.number == CompareArgs::kB ? a.a : a.b);
  auto& z = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k)
    z.flat(k) = answer<N>(a.op, a.number == CompareArgs::kA ? N(a.real) : x.flat(k),
                          a.number == CompareArgs::kB ? N(a.real) : y.flat(k));
});

TEST(Compare, EveryQuestionDtypeAndLayout) {
  VerifyLaunches verify;
  for (int i = 0; i < kCompareOps; ++i) {
    const auto op = static_cast<CompareOp>(i);
    for (const DType t : {DType::kF32, DType::kBF16, DType::kI64, DType::kI32, DType::kU8, DType::kBool}) {
      for (const Dims& size : {Dims(), Dims(5), Dims(3, 300), Dims(0, 2), Dims(2, 3, 4)}) {
        LaunchObserver* const observer = set_launch_observer(nullptr);
        const Tensor a = to(to(random_tensor({size, Input::kIndex, 4}, t, 1), t), test_device());
        const Tensor b = to(to(random_tensor({size, Input::kIndex, 4}, t, 2), t), test_device());
        set_launch_observer(observer);
        EXPECT_EQ(compare(op, a, b).dtype(), DType::kBool);
        compare(op, a, 1);
        compare(op, 2, b);
        if (size.rank < 2) continue;
        compare(op, transpose(a, 0, 1), transpose(b, 0, 1));
        compare(op, transpose(a, 0, 1), slice(transpose(b, 0, 1), 0, 0, 1));
      }
    }
  }
  EXPECT_GT(verify.launches(), 500);
}

Tensor floats(std::vector<float> v) {
  const auto n = static_cast<int64_t>(v.size());
  return Tensor::from(v, Dims(n));
}

TEST(Compare, FloatsThatAreNoNumbers) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const Tensor x = floats({1, -inf, inf, nan, 0, 3e38f});
  for (const DType t : {DType::kF32, DType::kF64, DType::kBF16}) {
    const Tensor y = to(x, t);
    EXPECT_EQ(isnan(y).to_vector(), (V{0, 0, 0, 1, 0, 0}));
    EXPECT_EQ(isinf(y).to_vector(), (V{0, 1, 1, 0, 0, 0}));
    EXPECT_EQ(isfinite(y).to_vector(), (V{1, 0, 0, 0, 1, 1}));
    EXPECT_EQ(eq(y, y).to_vector(), (V{1, 1, 1, 0, 1, 1}));
    EXPECT_EQ(ne(y, y).to_vector(), (V{0, 0, 0, 1, 0, 0}));
    EXPECT_EQ(logical_not(y).to_vector(), (V{0, 0, 0, 0, 1, 0}));
  }
  const Tensor n = Tensor::from(std::vector<int32_t>{0, 3}, Dims(2));
  EXPECT_EQ(isnan(n).to_vector(), (V{0, 0}));
  EXPECT_EQ(isfinite(n).to_vector(), (V{1, 1}));
  EXPECT_EQ(logical_not(n).to_vector(), (V{1, 0}));
}

TEST(Compare, PromotesAsArithmeticDoes) {
  const Tensor u = to(Tensor::from(std::vector<int32_t>{190}, Dims(1)), DType::kU8);
  EXPECT_EQ(gt(u, -46).item(), 0);  // -46 is 210 in u8, as in PyTorch
  EXPECT_EQ(gt(u, to(Tensor::from(std::vector<int32_t>{-46}, Dims(1)), DType::kI8)).item(), 1);  // i16
  const Tensor n = to(Tensor::from(std::vector<int32_t>{16777217}, Dims(1)), DType::kI64);
  EXPECT_EQ(eq(n, floats({16777216})).item(), 1);  // as f32
  EXPECT_EQ(eq(n, to(floats({16777216}), DType::kF64)).item(), 0);
  Tensor large = to(n, DType::kI64);
  fill_(large, (int64_t{1} << 53) + 1);
  EXPECT_EQ(eq(large, int64_t{1} << 53).item(), 0);  // i64, exact
  EXPECT_EQ(logical_and(floats({0.5, 0, 2}), Tensor::from(std::vector<int32_t>{1, 1, 0}, Dims(3))).to_vector(),
            (V{1, 0, 0}));
  EXPECT_EQ(logical_not(to(Tensor::from(std::vector<double>{1e-300}, Dims(1)), DType::kF64)).item(), 0);
  EXPECT_EQ(eq(to(floats({0.1f}), DType::kBF16), 0.1).item(), 1);  // the number is rounded to bf16 too
}

TEST(Compare, WrongUseIsNamed) {
  expect_error([] { eq(floats({1, 2}), floats({1, 2, 3})); }, "eq: shapes (2,) and (3,) do not broadcast");
  expect_error([] { lt(floats({1}), Tensor()); }, "lt: an input is missing");
  expect_error([] { isnan(to(floats({1}), DType::kF8E5M2)); }, "isnan: f8e5m2 is for storage");
  expect_error([] { logical_and(floats({1}), Tensor::empty(Dims(1), DType::kBool, kMetaCpu)); },
               "devices cpu and meta");
  expect_error([] { ge(1, 2); }, "at least one operand must be a tensor");
}

}  // namespace
}  // namespace tally::test
