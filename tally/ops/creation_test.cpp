#include "tally/ops/creation.h"

#include <cmath>

#include "tally/ops/creation_kernels.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

const bool reference = register_reference<SequenceArgs>([](const SequenceArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto& out = io.out(a.out);
  const int64_t n = a.out.numel();
  for (int64_t i = 0; i < n; ++i) {
    const double from_end = static_cast<double>(n - 1 - i);
    if (a.whole)
      out.flat(i) = N(static_cast<double>(a.first)) + N(static_cast<double>(i)) * N(static_cast<double>(a.by));
    else if (i < a.middle)
      out.flat(i) = N(a.start) + N(static_cast<double>(i)) * N(a.step);
    else
      out.flat(i) = N(a.end) - N(from_end) * N(a.step);
    if (!is_floating(a.out.dtype))
      if constexpr (!std::is_same_v<N, Counted>) out.flat(i) = std::trunc(out.flat(i));
  }
});

using V = std::vector<double>;

TEST(Creation, KernelAgainstTheReference) {
  VerifyLaunches verify;
  for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kI64, DType::kI32, DType::kI16})
    for (const int64_t n : {0, 1, 2, 5, 1000, 16385}) {
      const TensorOptions there{.dtype = t, .device = test_device()};
      EXPECT_EQ(arange(n, there).numel(), n);
      EXPECT_EQ(linspace(-3, 11, n, there).numel(), n);
    }
  EXPECT_GT(verify.launches(), 60);
}

TEST(Creation, Filled) {
  EXPECT_EQ(zeros({2, 3}).to_vector(), V(6, 0));
  EXPECT_EQ(ones({2}, {.dtype = DType::kI32}).to_vector(), V(2, 1));
  EXPECT_EQ(full({2}, 7).dtype(), DType::kI64);
  EXPECT_EQ(full({2}, 7.0).dtype(), DType::kF32);
  EXPECT_EQ(full({2}, true).dtype(), DType::kBool);
  EXPECT_EQ(full({}, 2.5, {.dtype = DType::kF16}).item(), 2.5);
  EXPECT_EQ(full({2}, int64_t{9007199254740993}).to_vector<int64_t>()[1], 9007199254740993);
  EXPECT_EQ(full({0, 3}, 1).numel(), 0);
  EXPECT_EQ(empty({4, 8}, {.dtype = DType::kBF16}).nbytes(), 64);
  EXPECT_TRUE(zeros({2}, {.requires_grad = true}).requires_grad());
  EXPECT_EQ(zeros({2}, {.category = Category::kData}).category(), Category::kData);
  const Tensor x = zeros({3, 0, 2}, {.dtype = DType::kI16, .device = kMetaCuda});
  EXPECT_EQ(x.device(), kMetaCuda);
  EXPECT_EQ(ones_like(x).sizes(), x.sizes());
  EXPECT_EQ(ones_like(x).dtype(), DType::kI16);
  EXPECT_EQ(ones_like(x).device(), kMetaCuda);
  EXPECT_EQ(full_like(x, 3, {.dtype = DType::kF32, .device = kCpu}).device(), kCpu);
  EXPECT_EQ(empty_like(zeros({2, 5})).sizes(), Dims(2, 5));
  EXPECT_EQ(zeros_like(ones({2})).to_vector(), V(2, 0));
  expect_error([] { zeros({-1}); }, "negative size");
  expect_error([] { zeros({int64_t{1} << 62, int64_t{1} << 62}); }, "larger than any memory");
  expect_error([] { full({2}, 256, {.dtype = DType::kU8}); }, "full: 256 does not fit u8");
  expect_error([] { full({2}, -1, {.dtype = DType::kU16}); }, "does not fit u16");
  expect_error([] { full({2}, NAN, {.dtype = DType::kI32}); }, "does not fit i32");
  expect_error([] { full({2}, 1e19, {.dtype = DType::kI64}); }, "does not fit i64");
  expect_error([] { zeros({2}, {.dtype = DType::kI64, .requires_grad = true}); }, "cannot require a gradient");
  EXPECT_EQ(full({1}, -32768, {.dtype = DType::kI16}).item(), -32768);
  EXPECT_EQ(full({1}, 2.7, {.dtype = DType::kI32}).item(), 2);
}

TEST(Creation, Sequences) {
  EXPECT_EQ(arange(5).to_vector(), (V{0, 1, 2, 3, 4}));
  EXPECT_EQ(arange(5).dtype(), DType::kI64);
  EXPECT_EQ(arange(5.0).dtype(), DType::kF32);
  EXPECT_EQ(arange(1, 2.5, 0.5).to_vector(), (V{1, 1.5, 2}));
  EXPECT_EQ(arange(5, 0, -2).to_vector(), (V{5, 3, 1}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(arange(0, 1, 0.1).numel(), 10);
  EXPECT_EQ(arange(int64_t{9007199254740993}, int64_t{9007199254740995}).to_vector<int64_t>(),
            (std::vector<int64_t>{9007199254740993, 9007199254740994}));
  EXPECT_EQ(arange(INT64_MIN, INT64_MAX, INT64_MAX).to_vector<int64_t>(),
            (std::vector<int64_t>{INT64_MIN, -1, INT64_MAX - 1}));
  EXPECT_EQ(linspace(0, 1, 5).to_vector(), (V{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(3, 9, 1).to_vector(), (V{3}));
  EXPECT_EQ(linspace(0, 0.1, 3, {.dtype = DType::kF64}).to_vector()[2], 0.1);  // the end exactly
  EXPECT_EQ(eye(3).to_vector(), (V{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(eye(2, 3, {.dtype = DType::kI32}).to_vector(), (V{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(3, 2).to_vector(), (V{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(eye(0).numel(), 0);
  expect_error([] { arange(0, 3, 0); }, "the step must not be zero");
  expect_error([] { arange(0, 3, -1); }, "leads nowhere");
  expect_error([] { arange(0.0, INFINITY); }, "is not a finite number");
  expect_error([] { arange(0, 300, 1, {.dtype = DType::kU8}); }, "arange: 299 does not fit u8");
  expect_error([] { arange(0.0, 1e300, 1e-9); }, "more than any memory");
  expect_error([] { linspace(0, 1, -1); }, "must not be negative");
  expect_error([] { eye(-1); }, "a matrix of -1 by -1");
}

TEST(Creation, FromNestedLists) {
  EXPECT_EQ(tensor({1, 2, 3}).dtype(), DType::kI64);
  EXPECT_EQ(tensor({1, 2.0, 3}).dtype(), DType::kF32);
  EXPECT_EQ(tensor({true, false}).dtype(), DType::kBool);
  EXPECT_EQ(tensor({true, 2}).dtype(), DType::kI64);
  EXPECT_EQ(tensor({true, 2.5}).dtype(), DType::kF32);
  EXPECT_EQ(tensor(3).dim(), 0);
  EXPECT_EQ(tensor(3.5).item(), 3.5);
  EXPECT_EQ(tensor({{1, 2, 3}}).sizes(), Dims(1, 3));
  EXPECT_EQ(tensor({{{1}, {2}}, {{3}, {4}}}).sizes(), Dims(2, 2, 1));
  EXPECT_EQ(tensor({{}, {}}).sizes(), Dims(2, 0));
  EXPECT_EQ(tensor({1.5, 2.5}, {.dtype = DType::kI64}).to_vector(), (V{1, 2}));
  EXPECT_EQ(tensor({1e-8}, {.dtype = DType::kF16}).item(), 0);
  EXPECT_EQ(tensor({1, 2}, {.device = kMetaCpu}).sizes(), Dims(2));
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}, {.device = test_device()}).to_vector(), (V{1, 2, 3, 4}));
  EXPECT_EQ(tensor(std::vector<float>{1, 2, 3, 4}, {2, 2}).dtype(), DType::kF32);
  EXPECT_EQ(tensor(std::vector<double>{1}, {1}).dtype(), DType::kF32);
  EXPECT_EQ(tensor(std::vector<int32_t>{1}, {1}).dtype(), DType::kI64);
  EXPECT_EQ(tensor(std::vector<bool>{true, false}, {2}).dtype(), DType::kBool);
  EXPECT_EQ(tensor(std::vector<double>{}, {0}).dtype(), DType::kF32);
  EXPECT_EQ(tensor({int64_t{9007199254740993}}).item<int64_t>(), 9007199254740993);
  expect_error([] { tensor({{1, 2}, {3}}); }, "a list of 1 where one of 2 is expected at axis 1");
  expect_error([] { tensor({{1, 2}, 3}); }, "a number where a list of 2 is expected");
  expect_error([] { tensor({1, {2, 3}}); }, "a list where a number is expected");
  expect_error([] { tensor({{{{{{{{{1}}}}}}}}}); }, "nested more than 8 deep");
  expect_error([] { tensor({300}, {.dtype = DType::kU8}); }, "tensor: 300 does not fit u8");
  expect_error([] { tensor(std::vector<int>{1, 2}, {3}); }, "2 values do not fill the shape (3,)");
}

TEST(Creation, MetaCostsWhatTheCpuCosts) {
  Cost cost[2];
  for (int k = 0; k < 2; ++k) {
    LedgerGuard guard;
    const TensorOptions there{.device = k ? kMetaCpu : kCpu};
    const Tensor all[] = {zeros({5, 6}, there), full({7}, 3, there), arange(100, there), linspace(0, 1, 9, there),
                          eye(4, 3, there)};
    EXPECT_EQ(guard.ledger().live_bytes(), 256 + 256 + 1024 + 256 + 256);
    cost[k] = guard.ledger().cost();
  }
  EXPECT_EQ(cost[0], cost[1]);
}

}  // namespace
}  // namespace tally::test
