#include "tally/ops/arrange.h"

#include <numeric>

#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor count_up(const Dims& size) {
  std::vector<float> v(static_cast<size_t>(size.numel()));
  std::iota(v.begin(), v.end(), 0.0f);
  return to(Tensor::from(v, size), test_device());
}
void expect_values(const Tensor& y, const Dims& size, const V& values) {
  EXPECT_EQ(y.sizes(), size);
  EXPECT_EQ(y.to_vector(), values);
}

TEST(Arrange, Stack) {
  for (const int axis : {0, 1, -1})
    run_op_case({"stack on " + std::to_string(axis), {{Dims(2, 3)}, {Dims(2, 3)}, {Dims(2, 3)}}, [axis](const auto& x) {
                   return stack({x[0], square(x[1]), x[2]}, axis);
                 }});
  expect_values(stack({count_up(Dims(2)), count_up(Dims(2))}, 1), Dims(2, 2), {0, 0, 1, 1});
  expect_values(stack({count_up(Dims()), count_up(Dims())}), Dims(2), {0, 0});
  expect_error([] { stack({}); }, "stack: takes a non-empty list");
  expect_error(
      [] {
        stack({Tensor::empty(Dims(2)), Tensor::empty(Dims(3))});
      },
      "expects each tensor to be equal size, but got (2,) at entry 0 and (3,) at entry 1");
}

TEST(Arrange, Flip) {
  EXPECT_EQ(flip(count_up(Dims()), Dims(-1)).sizes(), Dims());
  for (const Dims& size : {Dims(5), Dims(3, 4), Dims(2, 1, 9), Dims(0, 3), Dims(2, 2, 3, 1, 2, 4)})
    for (int axis = 0; axis < size.rank; ++axis)
      run_op_case({"flip " + str(size), {{size}}, [axis](const auto& x) { return flip(x[0], Dims(axis)); }});
  run_op_case({"flip both", {{Dims(3, 5)}}, [](const auto& x) { return flip(x[0], Dims(0, -1)); }});
  expect_values(flip(count_up(Dims(2, 3)), Dims(0, 1)), Dims(2, 3), {5, 4, 3, 2, 1, 0});
  expect_values(flip(count_up(Dims(2, 2)), Dims()), Dims(2, 2), {0, 1, 2, 3});
  for (const DType dtype : {DType::kI64, DType::kU8, DType::kBF16})
    expect_values(flip(to(count_up(Dims(3)), dtype), Dims(0)), Dims(3), {2, 1, 0});
  expect_error([] { flip(Tensor::empty(Dims(2, 3)), Dims(0, -2)); }, "appears multiple times");
  expect_error([] { flip(Tensor::empty(Dims(2)), Dims(1)); }, "flip");
}

TEST(Arrange, Roll) {
  for (const int64_t shift : {0, 1, -2, 7})
    run_op_case({"roll", {{Dims(3, 4)}}, [shift](const auto& x) { return roll(x[0], Dims(shift, 1), Dims(1, 0)); }});
  run_op_case({"roll flat", {{Dims(3, 4)}}, [](const auto& x) { return roll(x[0], Dims(5)); }});
  expect_values(roll(count_up(Dims(2, 3)), Dims(1)), Dims(2, 3), {5, 0, 1, 2, 3, 4});
  expect_values(roll(count_up(Dims(2, 3)), Dims(-1), Dims(-1)), Dims(2, 3), {1, 2, 0, 4, 5, 3});
  EXPECT_EQ(roll(Tensor::empty(Dims(0, 3)), Dims(2), Dims(0)).sizes(), Dims(0, 3));
  expect_error([] { roll(Tensor::empty(Dims(2)), Dims(1), Dims(0, 1)); }, "must have one length");
}

TEST(Arrange, Pad) {
  const std::vector<std::vector<int64_t>> amounts = {{1, 2}, {0, 0, 2, 0}, {1, 0, -1, 3}, {-2, 2}, {-1, -1, -1, -1}};
  for (const auto& a : amounts) run_op_case({"pad", {{Dims(3, 4)}}, [&](const auto& x) { return pad(x[0], a); }});
  for (const PadMode mode : {PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular})
    run_op_case({"pad by its own", {{Dims(2, 3, 4)}}, [mode](const auto& x) { return pad(x[0], {2, 3, 1, 0}, mode); }});
  expect_values(pad(count_up(Dims(2, 2)), {1, 0, 0, 1}, PadMode::kConstant, 7), Dims(3, 3),
                {7, 0, 1, 7, 2, 3, 7, 7, 7});
  expect_values(pad(count_up(Dims(4)), {2, 3}, PadMode::kReflect), Dims(9), {2, 1, 0, 1, 2, 3, 2, 1, 0});
  expect_values(pad(count_up(Dims(3)), {2, 1}, PadMode::kReplicate), Dims(6), {0, 0, 0, 1, 2, 2});
  expect_values(pad(count_up(Dims(3)), {2, 1}, PadMode::kCircular), Dims(6), {1, 2, 0, 1, 2, 0});
  expect_values(pad(count_up(Dims(0)), {2, 1}, PadMode::kConstant, 3), Dims(3), {3, 3, 3});
  EXPECT_EQ(pad(Tensor::empty(Dims(3), DType::kF32, kMetaCpu), {1, 1}, PadMode::kReflect).sizes(), Dims(5));
  expect_error([] { pad(Tensor::empty(Dims(3)), {1}); }, "takes two amounts for each");
  expect_error([] { pad(Tensor::empty(Dims(3)), {1, 1, 1, 1}); }, "up to 1 axes");
  expect_error([] { pad(Tensor::empty(Dims(3)), {-2, -2}); }, "leaves nothing of axis 0");
  expect_error([] { pad(Tensor::empty(Dims(3)), {3, 0}, PadMode::kReflect); }, "more than 3 elements can give");
  expect_error([] { pad_mode_from_name("mirror"); }, "not 'mirror'");
  EXPECT_EQ(pad_mode_from_name("circular"), PadMode::kCircular);
}

TEST(Arrange, Repeat) {
  for (const Dims& repeats : {Dims(2, 3), Dims(1, 1), Dims(3, 1), Dims(2, 1, 2), Dims(0, 2)})
    run_op_case({"repeat " + str(repeats), {{Dims(2, 3)}}, [&](const auto& x) { return repeat(x[0], repeats); }});
  run_op_case({"repeat of six axes", {{Dims(2, 1, 2, 1, 3, 2)}}, [](const auto& x) {
                 return repeat(x[0], Dims(1, 2, 2, 1, 1, 3));
               }});
  run_op_case({"tile", {{Dims(2, 3)}}, [](const auto& x) { return tile(x[0], Dims(2)); }});
  for (int axis = 0; axis < 3; ++axis)
    run_op_case(
        {"repeat_interleave", {{Dims(2, 3, 4)}}, [axis](const auto& x) { return repeat_interleave(x[0], 3, axis); }});
  const Tensor x = count_up(Dims(2, 2));
  expect_values(repeat(x, Dims(1, 2)), Dims(2, 4), {0, 1, 0, 1, 2, 3, 2, 3});
  expect_values(repeat_interleave(x, 2, 1), Dims(2, 4), {0, 0, 1, 1, 2, 2, 3, 3});
  expect_values(repeat_interleave(x, to(Tensor::from(std::vector<int32_t>{0, 3}, Dims(2)), test_device()), 0),
                Dims(3, 2), {2, 3, 2, 3, 2, 3});
  EXPECT_FALSE(repeat(x, Dims(1, 1)).shares_storage(x));
  expect_error([&] { repeat(x, Dims(2)); }, "1 repeats for a tensor of 2 axes");
  expect_error([&] { repeat(x, Dims(-1, 2)); }, "negative");
  expect_error([&] { repeat_interleave(x, -1, 0); }, "must be non-negative");
}

TEST(Arrange, Meshgrid) {
  const std::vector<Tensor> g = meshgrid({count_up(Dims(2)), count_up(Dims(3))});
  expect_values(g[0], Dims(2, 3), {0, 0, 0, 1, 1, 1});
  expect_values(g[1], Dims(2, 3), {0, 1, 2, 0, 1, 2});
  run_op_case({"meshgrid", {{Dims(2)}, {Dims(3)}}, [](const auto& x) {
                 const std::vector<Tensor> y = meshgrid({x[0], x[1]});
                 return mul(y[0], y[1]);
               }});
}

}  // namespace
}  // namespace tally::test
