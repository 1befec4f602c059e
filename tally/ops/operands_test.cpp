#include "tally/ops/operands.h"

#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

Tensor block(int64_t n) { return Tensor::empty(Dims(n), DType::kF32, kMetaCpu); }

TEST(Operands, TensorsThatOverlapThemselves) {
  const Tensor x = block(64);
  EXPECT_FALSE(overlaps_itself(x));
  EXPECT_FALSE(overlaps_itself(x.alias(Dims(4, 8), Dims(1, 4), 0)));                          // transposed
  EXPECT_FALSE(overlaps_itself(x.alias(Dims(3, 4), Dims(20, 2), 1)));                         // strided
  EXPECT_TRUE(overlaps_itself(x.alias(Dims(3, 4), Dims(0, 1), 0)));                           // broadcast
  EXPECT_TRUE(overlaps_itself(x.alias(Dims(5, 3), Dims(1, 1), 0)));                           // windows
  EXPECT_TRUE(overlaps_itself(x.alias(Dims(3, 3), Dims(2, 1), 0)));                           // 0 1 2, 2 3 4, ...
  EXPECT_FALSE(overlaps_itself(x.alias(Dims(2, 3), Dims(3, 2), 0)));                          // 0 2 4, 3 5 7
  EXPECT_TRUE(overlaps_itself(x.alias(Dims(3, 4), Dims(3, 2), 0)));                           // 6 = 3 * 2 = 2 * 3
  EXPECT_FALSE(overlaps_itself(x.alias(Dims(1, 1, 4), Dims(0, 0, 1), 0)));                    // axes of one element
  EXPECT_FALSE(overlaps_itself(x.alias(Dims(0, 4), Dims(0, 0), 0)));                          // nothing
  EXPECT_TRUE(overlaps_itself(block(1 << 22).alias(Dims(3, 1 << 20), Dims(1 << 18, 3), 0)));  // too many to look at
}

TEST(Operands, TensorsThatOverlapPartly) {
  const Tensor x = block(64);
  const Tensor a = x.alias(Dims(4, 4), Dims(4, 1), 0);
  EXPECT_FALSE(overlap_partly(a, a));
  EXPECT_FALSE(overlap_partly(a, x.alias(Dims(4, 4), Dims(4, 1), 0)));
  EXPECT_FALSE(overlap_partly(a, x.alias(Dims(4, 4), Dims(4, 1), 16)));
  EXPECT_FALSE(overlap_partly(a, block(64)));
  EXPECT_TRUE(overlap_partly(a, x.alias(Dims(4, 4), Dims(4, 1), 15)));
  EXPECT_TRUE(overlap_partly(a, transpose(a, 0, 1)));
  EXPECT_TRUE(overlap_partly(a, slice(a, 0, 0, 1)));
  EXPECT_FALSE(overlap_partly(a, x.alias(Dims(0), Dims(1), 0)));
}

TEST(Operands, OutputsTakeTheOrderOfADenseInput) {
  const Tensor x = Tensor::empty(Dims(2, 3, 4), DType::kF32, kMetaCpu);
  EXPECT_EQ(empty_like_layout(x, DType::kF32).strides(), Dims(12, 4, 1));
  EXPECT_EQ(empty_like_layout(transpose(x, 0, 2), DType::kI8).strides(), Dims(1, 4, 12));
  EXPECT_EQ(empty_like_layout(slice(x, 2, 0, 2), DType::kF32).strides(), Dims(6, 2, 1));  // not dense
  EXPECT_EQ(empty_like_layout(expand(slice(x, 0, 0, 1), Dims(2, 3, 4)), DType::kF32).strides(), Dims(12, 4, 1));
  View views[2] = {transpose(x, 0, 2).raw(), x.alias(Dims(4, 3, 2), Dims(0, 0, 1), 0).raw()};
  order_axes(views);
  EXPECT_EQ(views[0].size, Dims(2, 3, 4));
  EXPECT_EQ(views[0].stride, Dims(12, 4, 1));
  EXPECT_EQ(views[1].size, Dims(2, 3, 4));
  EXPECT_EQ(views[1].stride, Dims(1, 0, 0));
}

}  // namespace
}  // namespace tally::test
