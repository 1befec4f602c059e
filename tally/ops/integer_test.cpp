#include "tally/ops/integer.h"

#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"

namespace tally::test {
namespace {

// Small whole numbers, so that f64 and f32 hold every result exactly.
template <class N>
N value_of(IntegerOp op, N x, N y) {
  if constexpr (std::is_same_v<N, Counted>) {
    return Counted::one();
  } else {
    const auto a = static_cast<int64_t>(x), b = static_cast<int64_t>(y);
    switch (op) {
      case IntegerOp::kAdd:
        return x + y;
      case IntegerOp::kSub:
        return x - y;
      case IntegerOp::kMul:
        return x * y;
      case IntegerOp::kFloorDiv:
        return b == 0 ? 0 : std::floor(x / y);
      case IntegerOp::kTruncDiv:
        return b == 0 ? 0 : std::trunc(x / y);
      case IntegerOp::kRemainder:
        return b == 0 ? 0 : x - y * std::floor(x / y);
      case IntegerOp::kPow:
        return b < 0 ? std::trunc(std::pow(x, y)) : std::pow(x, y);
      case IntegerOp::kMaximum:
        return std::max(x, y);
      case IntegerOp::kMinimum:
        return std::min(x, y);
      case IntegerOp::kAnd:
        return static_cast<N>(a & b);
      case IntegerOp::kOr:
        return static_cast<N>(a | b);
      case IntegerOp::kXor:
        return static_cast<N>(a ^ b);
      case IntegerOp::kShiftLeft:
        return x * std::exp2(y);
      case IntegerOp::kShiftRight:
        return std::floor(x / std::exp2(y));
      case IntegerOp::kAbs:
        return std::abs(x);
      case IntegerOp::kSign:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    }
    return 0;
  }
}
const bool registered = register_reference<IntegerArgs>([](const IntegerArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.number == IntegerArgs::kA ? a.b : a.a), y = io.in(a.number == IntegerArgs::kB ? a.a : a.b);
  auto& z = io.out(a.out);
  const N number(static_cast<double>(a.value));
  for (int64_t k = 0; k < a.out.numel(); ++k)
    z.flat(k) = value_of<N>(a.op, a.number == IntegerArgs::kA ? number : x.flat(k),
                            a.number == IntegerArgs::kB ? number : y.flat(k));
});

Tensor small_numbers(const Dims& size, DType dtype, int least, int seed) {
  std::vector<int32_t> v(static_cast<size_t>(size.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = least + static_cast<int>(random_below(seed, 0, i, 6));
  return to(to(Tensor::from(v, size), dtype), test_device());
}

TEST(Integer, EveryOpDtypeAndLayout) {
  VerifyLaunches verify;
  const Dims shapes[] = {Dims(), Dims(5), Dims(3, 300), Dims(0, 2), Dims(2, 3, 4)};
  for (int i = 0; i < kIntegerOps; ++i) {
    const auto op = static_cast<IntegerOp>(i);
    const bool divides = op == IntegerOp::kFloorDiv || op == IntegerOp::kTruncDiv || op == IntegerOp::kRemainder;
    const bool natural =
        divides || op == IntegerOp::kPow || op == IntegerOp::kShiftLeft || op == IntegerOp::kShiftRight;
    for (const DType t : {DType::kI64, DType::kI32, DType::kI16, DType::kI8}) {
      if (t == DType::kI8 && (op == IntegerOp::kPow || op == IntegerOp::kShiftLeft)) continue;  // wraps
      for (const Dims& size : shapes) {
        LaunchObserver* const observer = set_launch_observer(nullptr);
        const Tensor a = small_numbers(size, t, -3, 7), b = small_numbers(size, DType::kI8, natural ? 1 : -3, 8);
        set_launch_observer(observer);
        integer(op, a, b, t);
        integer(op, a, 3, t);
        integer(op, 3, b, t);
        if (size.rank < 2) continue;
        const Tensor at = transpose(a, 0, 1), bt = transpose(b, 0, 1);
        integer(op, at, bt, t);
        integer(op, at, slice(bt, 0, 0, 1), t);
        if (op == IntegerOp::kAbs || op == IntegerOp::kSign) integer(op, at);
      }
    }
  }
  EXPECT_GT(verify.launches(), 500);
}

TEST(Integer, ThreadsDoNotMatter) {
  const Tensor a = small_numbers(Dims(7, 10000), DType::kI32, -3, 1), b = small_numbers(Dims(10000), DType::kI32, 1, 2);
  EXPECT_EQ(integer(IntegerOp::kPow, a, b, DType::kI32).to_vector(),
            integer(IntegerOp::kPow, transpose(transpose(a, 0, 1), 0, 1), b, DType::kI32).to_vector());
}

}  // namespace
}  // namespace tally::test
