#include "tally/ops/where.h"

#include "tally/core/number.h"
#include "tally/ops/backward.h"
#include "tally/ops/compare.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

const bool where_registered = register_reference<WhereArgs>([](const WhereArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto c = io.index(a.condition);
  auto x = io.in(a.a_number ? a.condition : a.a), y = io.in(a.b_number ? a.condition : a.b);
  auto& z = io.out(a.out);
  const N p(read_number(&a.a_bits, a.out.dtype, 0)), q(read_number(&a.b_bits, a.out.dtype, 0));
  for (int64_t k = 0; k < a.out.numel(); ++k) {
    const N u = a.a_number ? p : x.flat(k), v = a.b_number ? q : y.flat(k);
    if constexpr (std::is_same_v<N, Counted>)
      z.flat(k) = Counted::one();
    else
      z.flat(k) = c.flat(k) != 0 ? u : v;
  }
});
const bool triangle_registered = register_reference<TriangleArgs>([](const TriangleArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto& y = io.out(a.out);
  const int64_t columns = a.out.size[a.out.rank() - 1], rows = a.out.size[a.out.rank() - 2];
  for (int64_t k = 0; k < a.out.numel(); ++k) {
    const int64_t j = k % columns, i = k / columns % rows;
    y.flat(k) = (a.upper ? j - i >= a.diagonal : j - i <= a.diagonal) ? x.flat(k) : N(0.0);
  }
});

// A mask of the given size: about half of it true.
Tensor mask_of(const Dims& size) {
  return to(to(random_tensor({size, Input::kIndex, 2}, DType::kI32, 77), DType::kBool), test_device());
}

TEST(Where, EveryPlaceOfTheOperands) {
  const Dims shapes[][3] = {{Dims(5), Dims(5), Dims(5)},
                            {Dims(3, 4), Dims(4), Dims(3, 1)},
                            {Dims(4), Dims(2, 3, 4), Dims()},
                            {Dims(0, 2), Dims(2), Dims(1, 2)},
                            {Dims(2, 700), Dims(2, 700), Dims(700)}};
  for (const auto& [c, a, b] : shapes) {
    const Tensor mask = mask_of(c);
    run_op_case({"where " + str(c) + str(a) + str(b), {{a}, {b}}, [mask](const std::vector<Tensor>& x) {
                   return where(mask, x[0], x[1]);
                 }});
    run_op_case({"where with a number " + str(c) + str(a), {{a}}, [mask](const std::vector<Tensor>& x) {
                   return where(mask, x[0], 2);
                 }});
    run_op_case({"where of a number " + str(c) + str(a), {{a}}, [mask](const std::vector<Tensor>& x) {
                   return where(mask, -1.5, x[0]);
                 }});
    run_op_case({"masked_fill " + str(c) + str(a), {{a}}, [mask](const std::vector<Tensor>& x) {
                   return masked_fill(x[0], mask, 7);
                 }});
    run_op_case({"masked_fill by a tensor " + str(c) + str(a), {{a}, {Dims()}}, [mask](const std::vector<Tensor>& x) {
                   return masked_fill(x[0], mask, x[1]);
                 }});
  }
}

TEST(Where, DtypesAndErrors) {
  const Tensor mask = to(Tensor::from(std::vector<int32_t>{1, 0}, Dims(2)), DType::kBool);
  const Tensor n = to(Tensor::from(std::vector<int32_t>{1, 2}, Dims(2)), DType::kI64);
  EXPECT_EQ(where(mask, n, 0.5).to_vector(), (V{1, 0.5}));
  EXPECT_EQ(where(mask, n, 0.5).dtype(), DType::kF32);
  EXPECT_EQ(where(mask, 1, 2).dtype(), DType::kI64);
  EXPECT_EQ(where(mask, 1.0, 2).to_vector(), (V{1, 2}));
  EXPECT_EQ(masked_fill(n, mask, 2.5).to_vector(), (V{2, 2}));  // into i64
  EXPECT_EQ(masked_fill(n, mask, -1).to_vector(), (V{-1, 2}));
  for (const DType t : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kBool, DType::kBF16, DType::kF64})
    EXPECT_EQ(masked_fill(to(n, t), mask, 0).to_vector()[0], 0);
  expect_error([&] { where(n, n, n); }, "where: the condition is i64, not bool");
  expect_error([&] { masked_fill(n, n, 0); }, "masked_fill: the condition is i64, not bool");
  expect_error([&] { masked_fill(n, mask, n); }, "a number or a tensor of rank 0, not of shape (2,)");
  expect_error([&] { where(mask, n, Tensor::empty(Dims(3))); }, "do not broadcast");
  expect_error([&] { where(Tensor(), n, n); }, "an input is missing");
}

TEST(Where, NothingOfTheOtherSideLeaksIntoGradients) {
  Tensor x = Tensor::from(std::vector<float>{0, 4}, Dims(2));
  x.set_requires_grad();
  const Tensor y = where(gt(x, 0), sqrt(x), 0);
  backward(y, Tensor::from(std::vector<float>{1, 1}, Dims(2)));
  EXPECT_TRUE(std::isnan(x.grad().to_vector()[0]));  // 0 * inf in sqrt itself, as in PyTorch
  EXPECT_EQ(x.grad().to_vector()[1], 0.25);
}

TEST(Triangle, EveryDiagonal) {
  for (const int64_t d : {-9, -2, -1, 0, 1, 3, 9})
    for (const Dims& size : {Dims(3, 3), Dims(2, 4, 5), Dims(5, 2), Dims(1, 1), Dims(0, 3), Dims(2, 3, 0)}) {
      run_op_case({"triu " + str(size), {{size}}, [d](const std::vector<Tensor>& x) { return triu(x[0], d); }});
      run_op_case({"tril " + str(size), {{size}}, [d](const std::vector<Tensor>& x) { return tril(x[0], d); }});
    }
  VerifyLaunches verify;
  const Tensor x = to(random_tensor({Dims(70, 300)}, DType::kF32, 1), test_device());
  triu(x, 17), tril(x, -3), triu(transpose(x, 0, 1), 2);
  const Tensor n = to(Tensor::from(std::vector<int32_t>{1, 2, 3, 4}, Dims(2, 2)), DType::kI16);
  EXPECT_EQ(triu(n).to_vector(), (V{1, 2, 0, 4}));
  EXPECT_EQ(tril(n, -1).to_vector(), (V{0, 0, 3, 0}));
  EXPECT_EQ(tril(n, std::numeric_limits<int64_t>::max()).to_vector(), (V{1, 2, 3, 4}));
  EXPECT_EQ(triu(n, std::numeric_limits<int64_t>::max()).to_vector(), (V{0, 0, 0, 0}));
  expect_error([] { triu(Tensor::empty(Dims(3))); }, "triu: needs at least 2 axes, not the shape (3,)");
}

}  // namespace
}  // namespace tally::test
