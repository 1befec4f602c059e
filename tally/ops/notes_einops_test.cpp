// Facts A099 and A116-A129 of the course's notes and traps O08 and O09, by number. (A129, that rearrange, reduce and
// repeat are the main three, is prose.)
#include "tally/ops/einops.h"
#include "tally/ops/einops_test.h"
#include "tally/ops/einsum.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/expect.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor full(const Dims& size, double value) {
  Tensor x = Tensor::empty(size, DType::kF32, test_device());
  fill_(x, value);
  return x;
}
Tensor arange(const Dims& size) {
  std::vector<float> v(static_cast<size_t>(size.numel()));
  std::iota(v.begin(), v.end(), 0.0f);
  return to(Tensor::from(v, size), test_device());
}
V all(int64_t n, double value) { return V(static_cast<size_t>(n), value); }

TEST(Notes, A099_SplittingHeadsIsAView) {
  const Tensor x = arange(Dims(2, 3, 8)), y = rearrange(x, "b s (heads hidden) -> b s heads hidden", {{"heads", 2}});
  EXPECT_EQ(y.sizes(), Dims(2, 3, 2, 4));
  EXPECT_TRUE(y.shares_storage(x));
}

TEST(Notes, A116_ShapeAnnotation) {
  const Tensor x = full(Dims(2, 2, 1, 3), 1);
  const Shapes s = expect(x, "batch seq heads hidden");
  EXPECT_EQ(s["batch"], 2);
  EXPECT_EQ(s["seq"], 2);
  EXPECT_EQ(s["heads"], 1);
  EXPECT_EQ(s["hidden"], 3);
  expect_error([&] { expect(x, "batch seq hidden"); }, "3 axes wanted, 4 there");
}

TEST(Notes, A117_EinsumOfTwoSequences) {
  const Tensor x = full(Dims(2, 3, 4), 1);
  const Tensor z = einsum({x, x}, "batch seq1 hidden, batch seq2 hidden -> batch seq1 seq2");
  EXPECT_EQ(z.sizes(), Dims(2, 3, 3));
  EXPECT_EQ(z.to_vector(), all(18, 4));
  EXPECT_EQ(z.to_vector(), matmul(x, transpose(x, -2, -1)).to_vector());
}

TEST(Notes, A118_EllipsisStandsForAnyAxes) {
  const Tensor x = full(Dims(2, 3, 4), 1);
  const char* const text = "... seq1 hidden, ... seq2 hidden -> ... seq1 seq2";
  EXPECT_EQ(einsum({x, x}, text).to_vector(), all(18, 4));
  const Tensor flat = full(Dims(3, 4), 1), deep = full(Dims(2, 1, 3, 4), 1);
  EXPECT_EQ(einsum({flat, flat}, text).sizes(), Dims(3, 3));
  EXPECT_EQ(einsum({deep, deep}, text).sizes(), Dims(2, 1, 3, 3));
}

TEST(Notes, A119_NamesNotInTheResultAreSummed) {
  const Tensor x = arange(Dims(2, 3));
  EXPECT_EQ(einsum({x}, "seq hidden -> seq").to_vector(), (V{3, 12}));
}

TEST(Notes, A120_ReduceTakesSumMeanMaxMin) {
  const Tensor x = arange(Dims(2, 3));
  EXPECT_EQ(reduce(x, "a b -> a", "sum").to_vector(), (V{3, 12}));
  EXPECT_EQ(reduce(x, "a b -> a", "mean").to_vector(), (V{1, 4}));
  EXPECT_EQ(reduce(x, "a b -> a", "max").to_vector(), (V{2, 5}));
  EXPECT_EQ(reduce(x, "a b -> a", "min").to_vector(), (V{0, 3}));
}

TEST(Notes, A121_ReduceSum) {
  const Tensor y = reduce(full(Dims(2, 3, 4), 1), "... hidden -> ...", "sum");
  EXPECT_EQ(y.sizes(), Dims(2, 3));
  EXPECT_EQ(y.to_vector(), all(6, 4));
}

TEST(Notes, A122_MeanOverTheLastAxis) {
  const Tensor y = mean(full(Dims(2, 3, 4), 1), Dims(-1));
  EXPECT_EQ(y.sizes(), Dims(2, 3));
  EXPECT_EQ(y.to_vector(), all(6, 1));
}

// slip: the notes equate reduce "sum" with mean(dim=-1).
TEST(Notes, A123_ReduceSumIsSumAndReduceMeanIsMean) {
  const Tensor x = full(Dims(2, 3, 4), 1);
  EXPECT_EQ(reduce(x, "... hidden -> ...", "sum").to_vector(), sum(x, Dims(-1)).to_vector());
  EXPECT_EQ(reduce(x, "... hidden -> ...", "mean").to_vector(), mean(x, Dims(-1)).to_vector());
  EXPECT_NE(reduce(x, "... hidden -> ...", "sum").to_vector(), mean(x, Dims(-1)).to_vector());
}

// slip: "...hidden" lacks the space.
TEST(Notes, A124_EllipsisStandsApart) {
  const Tensor x = full(Dims(2, 3, 4), 1);
  expect_error([&] { reduce(x, "...hidden -> ...", "sum"); }, "invalid axis name '...hidden'");
  EXPECT_EQ(reduce(x, "... hidden -> ...", "sum").sizes(), Dims(2, 3));
}

TEST(Notes, A125_RearrangeSplitsHeads) {
  const Tensor x = arange(Dims(2, 3, 8));
  const Tensor y = rearrange(x, "... (heads hidden1) -> ... heads hidden1", {{"heads", 2}});
  EXPECT_EQ(y.sizes(), Dims(2, 3, 2, 4));
  EXPECT_EQ(y.to_vector(), x.to_vector());  // out[b, s, h, i] == x[b, s, 4 h + i], both row-major
  EXPECT_TRUE(y.shares_storage(x));
}

TEST(Notes, A126_AGroupNeedsOneSize) {
  const Tensor x = full(Dims(2, 3, 8), 1);
  expect_error([&] { rearrange(x, "... (heads hidden1) -> ... heads hidden1"); },
               "sizes of {heads, hidden1} cannot be inferred");
  EXPECT_EQ(rearrange(x, "... (heads hidden1) -> ... heads hidden1", {{"heads", 2}}).size(-1), 4);
  EXPECT_EQ(rearrange(x, "... (heads hidden1) -> ... heads hidden1", {{"hidden1", 2}}).size(-2), 4);
}

TEST(Notes, A127_EinsumWithAWeight) {
  const Tensor y =
      einsum({full(Dims(2, 3, 2, 4), 1), full(Dims(4, 4), 1)}, "... hidden1, hidden1 hidden2 -> ... hidden2");
  EXPECT_EQ(y.sizes(), Dims(2, 3, 2, 4));
  EXPECT_EQ(y.to_vector(), all(48, 4));
}

TEST(Notes, A128_MergingHeadsIsTheInverse) {
  const Tensor x = arange(Dims(2, 3, 8));
  const Tensor split = rearrange(x, "... (heads hidden2) -> ... heads hidden2", {{"heads", 2}});
  const Tensor back = rearrange(split, "... heads hidden2 -> ... (heads hidden2)");
  EXPECT_EQ(back.sizes(), Dims(2, 3, 8));
  EXPECT_EQ(back.to_vector(), x.to_vector());
  EXPECT_EQ(rearrange(full(Dims(2, 3, 2, 4), 4), "... heads hidden2 -> ... (heads hidden2)").to_vector(), all(48, 4));
}

TEST(Traps, O08_EinsumEllipsisOfUnequalLength) {
  const Tensor a = arange(Dims(2, 1, 3)), b = arange(Dims(3, 2));
  const Tensor r = einsum("i...k,k...j->i...j", {a, b});
  EXPECT_EQ(r.sizes(), Dims(2, 1, 2));
  EXPECT_EQ(r.to_vector(), (V{10, 13, 28, 40}));
  const Tensor s = einsum("...ij , ...jk -> ...ik", {full(Dims(2, 1, 2, 3), 1), full(Dims(4, 3, 2), 1)});
  EXPECT_EQ(s.sizes(), Dims(2, 4, 2, 2));
  EXPECT_EQ(s.to_vector(), all(32, 3));
}

TEST(Traps, O09_EinopsPatterns) {
  const Tensor a = arange(Dims(2, 2));
  EXPECT_EQ(reduce(std::vector<Tensor>{a, affine(a, 10, 0)}, "i j k -> j k", "sum").to_vector(), (V{0, 11, 22, 33}));
  EXPECT_EQ(einsum({a}, "i i -> i").to_vector(), (V{0, 3}));
  expect_error(
      [&] {
        rearrange(full(Dims(2, 3), 1), "a b -> a b", {{"c", 2}});
      },
      "axis 'c', which is not in the pattern");
  EXPECT_EQ(rearrange(full(Dims(3), 1), "a -> () a ()").sizes(), Dims(1, 3, 1));
  EXPECT_EQ(rearrange(full(Dims(0, 0), 0), "... -> 1 ...").sizes(), Dims(1, 0, 0));
}

}  // namespace
}  // namespace tally::test
