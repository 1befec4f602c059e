// The numbered lines of the course notes about element-wise ops, and reported bugs of peers in the same field.
#include "tally/core/tape.h"
#include "tally/ops/compare.h"
#include "tally/ops/op_test.h"
#include "tally/ops/operators.h"
#include "tally/ops/view.h"
#include "tally/ops/where.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor of(std::vector<float> v, const Dims& size, DType t = DType::kF32) {
  return to(to(Tensor::from(v, size), t), test_device());
}
Tensor squares() { return of({1, 4, 9}, Dims(3), DType::kI64); }
void expect_is(const Tensor& t, DType dtype, const V& values) {
  EXPECT_EQ(t.dtype(), dtype);
  EXPECT_EQ(t.to_vector(), values);
}

TEST(Notes, A100_PowOfIntegersIsExact) { expect_is(pow(squares(), 2), DType::kI64, {1, 16, 81}); }

TEST(Notes, A101_SqrtOfIntegersIsF32) { expect_is(sqrt(squares()), DType::kF32, {1, 2, 3}); }

TEST(Notes, A102_RsqrtOfIntegersIsF32) {
  const Tensor y = rsqrt(squares());
  expect_is(y, DType::kF32, {1, 1.0f / 2.0f, 1.0f / 3.0f});
  EXPECT_FLOAT_EQ(y.to_vector()[2], 0.3333333432674408);
}

TEST(Notes, A103_SumsAndMultiplesOfIntegersStayIntegers) {
  expect_is(squares() + squares(), DType::kI64, {2, 8, 18});
  expect_is(squares() * 2, DType::kI64, {2, 8, 18});
}

TEST(Notes, A104_TrueDivisionOfIntegersIsF32) { expect_is(squares() / 0.5, DType::kF32, {2, 8, 18}); }

TEST(Notes, A105_AnElementWiseOpReturnsANewTensor) {
  const Tensor x = squares();
  for (const Tensor& y : {pow(x, 2), sqrt(x), x + x, x * 2, x / 0.5, abs(x), floor(x)}) {
    EXPECT_EQ(y.sizes(), x.sizes());
    EXPECT_FALSE(y.shares_storage(x));
  }
}

TEST(Notes, A106_TriuKeepsTheDiagonal) {
  const Tensor ones = of(std::vector<float>(9, 1.0f), Dims(3, 3));
  expect_is(triu(ones), DType::kF32, {1, 1, 1, 0, 1, 1, 0, 0, 1});
  // The causal mask: nothing of the future.
  expect_is(eq(triu(ones, 1), 0), DType::kBool, {1, 0, 0, 1, 1, 0, 1, 1, 1});
}

TEST(Notes, A107_AddingCostsOneFlopAnElement) {
  for (const Device device : {test_device(), kMetaCpu}) {
    LedgerGuard guard;
    const Tensor a = Tensor::empty(Dims(16, 32), DType::kF32, device),
                 b = Tensor::empty(Dims(16, 32), DType::kF32, device);
    add(a, b);
    EXPECT_EQ(guard.ledger().cost().other_flops, 512);
    EXPECT_EQ(guard.ledger().cost().matmul_flops, 0);
  }
}

TEST(Traps, O01_InPlaceOnOverlappingMemory) {
  const Tensor x = of({2}, Dims(1));
  Tensor wide = expand(x, Dims(3));
  expect_error([&] { mul_(wide, 2); },
               "more than one element of the written-to tensor refers to a single memory location");
  EXPECT_EQ(x.item(), 2);
  for (const DType t : {DType::kF32, DType::kI64}) {
    Tensor a = of({0, 1, 2, 3, 4, 5, 6, 7}, Dims(2, 2, 2), t);
    sub_(a, slice(a, 0, 0, 1));
    EXPECT_EQ(a.to_vector(), (V{0, 0, 0, 0, 4, 4, 4, 4}));
    Tensor b = of({0, 1, 2, 3, 4, 5, 6, 7}, Dims(2, 2, 2), t);
    add_(b, transpose(b, 1, 2));
    EXPECT_EQ(b.to_vector(), (V{0, 3, 3, 6, 8, 11, 11, 14}));
    Tensor c = of({0, 1, 2, 3}, Dims(4), t);
    Tensor tail = slice(c, 0, 1, 4);
    assign_(tail, slice(c, 0, 0, 3));
    EXPECT_EQ(c.to_vector(), (V{0, 0, 1, 2}));
  }
}

TEST(Traps, O03_PromotionWithTensorsOfRankZero) {
  const Tensor u = of({190, 220}, Dims(2), DType::kU8), i = of({-66, -46}, Dims(2), DType::kI8);
  expect_is(u + i, DType::kI16, {124, 174});
  expect_is(u + of({-46}, Dims(), DType::kI8), DType::kU8, {144, 174});
  expect_is(u + 1.5, DType::kF32, {191.5, 221.5});
  EXPECT_EQ(result_type({of({1}, Dims(1), DType::kI64), Tensor::empty(Dims(1), DType::kF16)}), DType::kF16);
}

}  // namespace
}  // namespace tally::test
