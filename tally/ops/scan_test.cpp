#include "tally/ops/scan.h"

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// Elements before k along the axis, and the place along it.
int64_t step_of(const Dims& size, int axis) {
  int64_t step = 1;
  for (int i = size.rank - 1; i > axis; --i) step *= size[i];
  return step;
}

const bool scan_reference = register_reference<ScanArgs>([](const ScanArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto& y = io.out(a.out);
  const int64_t step = step_of(a.x.size, a.axis), n = a.x.size[a.axis], all = a.x.numel();
  for (int64_t count = 0; count < all; ++count) {
    const int64_t k = a.reverse ? all - 1 - count : count, i = k / step % n;
    const bool first = i == (a.reverse ? n - 1 : 0);
    const N before = first ? N(a.op == ScanOp::kSum ? 0.0 : 1.0) : y.flat(k + (a.reverse ? step : -step));
    y.flat(k) = a.op == ScanOp::kSum ? before + x.flat(k) : before * x.flat(k);
  }
});

const bool gradient_reference = register_reference<CumprodBackwardArgs>([](const CumprodBackwardArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto grad = io.in(a.grad), x = io.in(a.x), y = io.in(a.y);
  auto& dx = io.out(a.dx);
  const int64_t step = step_of(a.dx.size, a.axis), n = a.dx.size[a.axis];
  std::vector<N> s(static_cast<size_t>(a.dx.numel()));
  for (int64_t k = a.dx.numel() - 1; k >= 0; --k) {
    const bool last = k / step % n == n - 1, first = k / step % n == 0;
    s[k] = grad.flat(k) + (last ? N(0.0) : N(x.flat(k + step))) * (last ? N(0.0) : s[k + step]);
    dx.flat(k) = s[k] * (first ? N(1.0) : N(y.flat(k - step)));
  }
});

const std::vector<Dims> kSizes = {
    Dims(1),      Dims(7),      Dims(3, 5), Dims(4, 1),   Dims(2, 3, 33), Dims(2, 2, 2, 3, 2, 9),
    Dims(20, 70), Dims(2, 300), Dims(0, 3), Dims(3, 0, 2)};

TEST(Scan, Cases) {
  for (const Dims& size : kSizes)
    for (int axis = -1; axis < size.rank; ++axis) {
      const std::string what = str(size) + " along " + std::to_string(axis);
      run_op_case({"cumsum " + what, {{size}}, [=](const auto& x) { return cumsum(x[0], axis); }});
      run_op_case({"cumprod " + what, {{size}}, [=](const auto& x) { return cumprod(affine(x[0], 0.1f, 1), axis); }});
      run_op_case(
          {"cumsum of i32 " + what, {{size, Input::kIndex, 50}}, [=](const auto& x) { return cumsum(x[0], axis); }});
    }
  run_op_case({"cumsum of a scalar", {{Dims()}}, [](const auto& x) { return cumsum(x[0], -1); }});
}

TEST(Scan, SumsOfWholeNumbersAreI64) {
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI8, DType::kI16, DType::kI64}) {
    const Tensor y = cumsum(to(Tensor::from(std::vector<int32_t>{1, 0, 1, 1}, Dims(4)), dtype), 0);
    EXPECT_EQ(y.dtype(), DType::kI64);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{1, 1, 2, 3}));
  }
  EXPECT_EQ(cumsum(Tensor::from(std::vector<int32_t>{1, 2}, Dims(2)), 0, DType::kF32).dtype(), DType::kF32);
  EXPECT_EQ(cumprod(Tensor::from(std::vector<int32_t>{2, 3, 4}, Dims(3)), -1).to_vector(),
            (std::vector<double>{2, 6, 24}));
}

TEST(Scan, LongSumsStayClose) {
  const Tensor x = Tensor::from(std::vector<float>(100000, 0.1f), Dims(100000));
  EXPECT_NEAR(cumsum(x, 0).to_vector().back(), 10000.000149, 1e-3);
}

TEST(Scan, ProductsWithZerosHaveGradients) {
  Tensor x = Tensor::from(std::vector<float>{2, 0, 3, 0, 5}, Dims(5)).set_requires_grad();
  const Tensor y = cumprod(x, 0);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{2, 0, 0, 0, 0}));
  backward(y, Tensor::from(std::vector<float>{1, 1, 1, 1, 1}, Dims(5)));
  // d/dx0 = 1, d/dx1 = x0 (1 + x2 + x2 x3 + ..) = 2 * (1 + 3), the others have a zero before them.
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 8, 0, 0, 0}));
}

TEST(Scan, Errors) {
  expect_error([] { cumsum(Tensor::empty(Dims(2, 3)), 2); }, "cumsum: Dimension out of range");
  expect_error([] { cumsum(Tensor{}, 0); }, "cumsum: an input is missing");
  expect_error([] { cumprod(Tensor::empty(Dims(2), DType::kF8E4M3), 0); }, "cumprod: takes a float tensor");
}

// Rows run side by side, the last few alone: each has the bits of a row by itself.
TEST(Scan, RowsSideBySide) {
  for (const Dims& size : {Dims(19, 37), Dims(2, 8, 16), Dims(8, 1), Dims(17, 130)})
    for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kI32}) {
      const Tensor x = to(mul(random_tensor({size}, DType::kF32, 3), 40), t), y = cumsum(x, -1);
      const Tensor rows = reshape(x, Dims(-1, size[size.rank - 1])), sums = reshape(y, rows.sizes());
      for (int64_t i = 0; i < rows.size(0); ++i)
        EXPECT_EQ(select(sums, 0, i).to_vector(), cumsum(select(rows, 0, i), 0).to_vector()) << str(size);
    }
}

}  // namespace
}  // namespace tally::test
