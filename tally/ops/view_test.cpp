// Views: what they share, when they copy, their gradients, their refusals. Facts A012, A017, A073-A099 of the course.
#include "tally/ops/view.h"

#include <numeric>

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor arange(const Dims& size) {
  std::vector<float> v(static_cast<size_t>(size.numel()));
  std::iota(v.begin(), v.end(), 0.0f);
  return Tensor::from(v, size);
}

Tensor one_to_six() { return Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, Dims(2, 3)); }

TEST(View, RowsAndColumnsShareStorage) {
  const Tensor x = one_to_six(), row = squeeze(slice(x, 0, 0, 1), 0), column = squeeze(slice(x, 1, 1, 2), 1);
  EXPECT_EQ(row.to_vector(), (V{1, 2, 3}));
  EXPECT_EQ(row.strides(), Dims(1));
  EXPECT_EQ(row.storage_offset(), 0);
  EXPECT_EQ(column.to_vector(), (V{2, 5}));
  EXPECT_EQ(column.sizes(), Dims(2));
  EXPECT_EQ(column.strides(), Dims(3));
  EXPECT_EQ(column.storage_offset(), 1);
  EXPECT_TRUE(row.shares_storage(x) && column.shares_storage(x));
}

TEST(View, TransposeSwapsSizesAndStrides) {
  const Tensor x = one_to_six(), y = transpose(x, 1, 0);
  EXPECT_EQ(y.sizes(), Dims(3, 2));
  EXPECT_EQ(x.strides(), Dims(3, 1));
  EXPECT_EQ(y.strides(), Dims(1, 3));
  EXPECT_EQ(y.to_vector(), (V{1, 4, 2, 5, 3, 6}));
  EXPECT_TRUE(y.shares_storage(x));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_FALSE(y.is_contiguous());
  x.data<float>()[0] = 100;
  EXPECT_EQ(y.to_vector()[0], 100);
  const Tensor z = Tensor::empty(Dims(2, 3, 4, 5));
  EXPECT_EQ(transpose(z, -2, -1).sizes(), Dims(2, 3, 5, 4));
  EXPECT_EQ(transpose(z, 0, 2).strides(), Dims(5, 20, 60, 1));
}

TEST(View, ViewOfCompatibleStrides) {
  const Tensor x = one_to_six(), v = view(x, Dims(3, 2));
  EXPECT_EQ(v.to_vector(), (V{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(v.strides(), Dims(2, 1));
  EXPECT_TRUE(v.shares_storage(x));
  const Tensor y = transpose(x, 1, 0);  // (3, 2) with strides (1, 3)
  EXPECT_EQ(view(y, Dims(3, 2)).to_vector(), y.to_vector());
  EXPECT_EQ(view(y, Dims(3, 1, 2)).sizes(), Dims(3, 1, 2));
  EXPECT_TRUE(view(y, Dims(3, 1, 2)).shares_storage(x));
  expect_error([&] { view(y, Dims(2, 3)); }, "view size is not compatible with input tensor's size and stride");
  expect_error([&] { view(y, Dims(6)); }, "use reshape");
}

TEST(View, ReshapeAndContiguousCopyOnlyWhenTheyMust) {
  const Tensor x = one_to_six(), y = transpose(x, 1, 0);
  EXPECT_TRUE(reshape(x, Dims(3, 2)).shares_storage(x));
  EXPECT_TRUE(contiguous(x).shares_storage(x));
  const Tensor copy = contiguous(y);
  EXPECT_FALSE(copy.shares_storage(x));
  EXPECT_TRUE(copy.is_contiguous());
  EXPECT_EQ(view(copy, Dims(2, 3)).to_vector(), (V{1, 4, 2, 5, 3, 6}));
  const Tensor r = reshape(y, Dims(2, 3));
  EXPECT_EQ(r.to_vector(), (V{1, 4, 2, 5, 3, 6}));
  EXPECT_FALSE(r.shares_storage(x));
}

TEST(View, ViewsAllocateNothingAndLaunchNothing) {
  const Tensor x = arange(Dims(2, 3, 8));
  LedgerGuard guard;
  const Tensor all[] = {transpose(x, 0, 1), slice(x, 2, 1, 5),      view(x, Dims(2, 3, 2, 4)),
                        unsqueeze(x, 0),    reshape(x, Dims(6, 8)), expand(slice(x, 0, 0, 1), Dims(5, 3, 8))};
  for (const Tensor& t : all) EXPECT_TRUE(t.shares_storage(x));
  EXPECT_EQ(guard.ledger().live_bytes(), 0);
  EXPECT_EQ(guard.ledger().launches(), 0);
  const Tensor copy = contiguous(all[0]);
  EXPECT_EQ(guard.ledger().live_bytes(), block_bytes(2 * 3 * 8 * 4));
  EXPECT_EQ(guard.ledger().cost().bytes_read, 192);
  EXPECT_EQ(guard.ledger().cost().bytes_written, 192);
}

// (B, T, D) -> (B, H, T, d) is view then transpose; out[b, h, t, i] = x[b, t, h d + i].
TEST(View, SplittingHeads) {
  const Tensor x = arange(Dims(2, 3, 8));
  const Tensor heads = transpose(view(x, Dims(2, 3, 2, 4)), 1, 2);
  EXPECT_EQ(heads.sizes(), Dims(2, 2, 3, 4));
  const V v = heads.to_vector(), all = x.to_vector();
  size_t k = 0;
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < 2; ++h)
      for (int t = 0; t < 3; ++t)
        for (int i = 0; i < 4; ++i) EXPECT_EQ(v[k++], all[(b * 3 + t) * 8 + 4 * h + i]);
  EXPECT_EQ(reshape(transpose(heads, 1, 2), Dims(2, 3, 8)).to_vector(), all);
}

TEST(View, OneSizeMayBeInferred) {
  const Tensor x = arange(Dims(4, 4));
  EXPECT_EQ(reshape(x, Dims(2, -1)).sizes(), Dims(2, 8));
  EXPECT_EQ(view(x, Dims(-1)).sizes(), Dims(16));
  EXPECT_EQ(view(Tensor::empty(Dims(0, 3)), Dims(-1, 3)).sizes(), Dims(0, 3));
  EXPECT_EQ(view(slice(x, 0, 0, 0), Dims(2, 0, 7)).sizes(), Dims(2, 0, 7));
  EXPECT_EQ(view(slice(x, 0, 0, 1), Dims(1, 1, 4, 1)).sizes(), Dims(1, 1, 4, 1));
  EXPECT_EQ(view(Tensor::empty(Dims()), Dims(1, 1)).sizes(), Dims(1, 1));
  EXPECT_EQ(view(Tensor::empty(Dims(1, 1)), Dims()).sizes(), Dims());
  expect_error([&] { view(x, Dims(-1, -1)); }, "only one size can be -1");
  expect_error([&] { view(x, Dims(3, -1)); }, "does not fit 16 elements");
  expect_error([&] { view(x, Dims(5, 3)); }, "does not fit 16 elements of (4, 4)");
  expect_error([&] { view(x, Dims(-2, -8)); }, "invalid size");
  expect_error([&] { view(Tensor::empty(Dims(0)), Dims(-1, 0)); }, "cannot be inferred");
  expect_error([&] { view(x, Dims(int64_t{1} << 62, 4)); }, "view");
  expect_error([&] { view(x, Dims(int64_t{1} << 62, int64_t{1} << 62, -1)); }, "view");
}

// Every way to cut 24 elements into at most three axes, from a contiguous, a transposed and a sliced tensor: a view
// where one exists has the elements in order, and reshape always has.
TEST(View, AllShapesOfTwentyFour) {
  const Tensor base = arange(Dims(4, 3, 4));
  const Tensor sources[] = {view(arange(Dims(24)), Dims(2, 3, 4)),
                            transpose(view(arange(Dims(24)), Dims(2, 3, 4)), 0, 2),
                            slice(base, 0, 1, 3),
                            slice(base, 2, 0, 2),
                            transpose(slice(base, 1, 0, 2), 1, 2),
                            expand(arange(Dims(1, 4)), Dims(6, 4))};
  int views = 0, copies = 0;
  for (const Tensor& x : sources) {
    const auto n = x.numel();
    for (int64_t a = 1; a <= n; ++a)
      for (int64_t b = 1; b <= n / a; ++b) {
        if (n % (a * b) != 0) continue;
        const Dims size(a, b, n / (a * b));
        const Tensor r = reshape(x, size);
        EXPECT_EQ(r.sizes(), size);
        EXPECT_EQ(r.to_vector(), x.to_vector()) << str(size);
        ++(r.shares_storage(x) ? views : copies);
      }
  }
  EXPECT_GT(views, 40);
  EXPECT_GT(copies, 40);
}

TEST(View, SliceBounds) {
  const Tensor x = arange(Dims(5));
  EXPECT_EQ(slice(x, 0, -3, -1).to_vector(), (V{2, 3}));
  EXPECT_EQ(slice(x, -1, 5, 5).numel(), 0);
  EXPECT_EQ(slice(x, 0, 3, 2).numel(), 0);  // as Python's slices
  EXPECT_EQ(slice(x, 0, -9, 9).to_vector(), x.to_vector());
  expect_error([&] { slice(x, 1, 0, 1); },
               "slice: Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  expect_error([&] { transpose(x, 0, 1); },
               "transpose: Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  EXPECT_EQ(transpose(Tensor::empty(Dims()), 0, -1).dim(), 0);
  expect_error([&] { transpose(Tensor::empty(Dims()), 0, 1); },
               "transpose: Dimension out of range (expected to be in range of [-1, 0], but got 1)");
}

TEST(View, ExpandAndUnitAxes) {
  const Tensor x = arange(Dims(3, 1));
  EXPECT_EQ(expand(x, Dims(2, 3, 2)).strides(), Dims(0, 1, 0));
  EXPECT_EQ(expand(x, Dims(-1, 4)).sizes(), Dims(3, 4));
  EXPECT_EQ(unsqueeze(x, -1).sizes(), Dims(3, 1, 1));
  EXPECT_EQ(unsqueeze(x, 0).sizes(), Dims(1, 3, 1));
  EXPECT_EQ(squeeze(x, 1).sizes(), Dims(3));
  EXPECT_EQ(squeeze(x, 0).sizes(), Dims(3, 1));  // not of size 1: as it is
  expect_error([&] { expand(x, Dims(4, 1)); }, "(3, 1)");
  expect_error([&] { expand(x, Dims(3)); }, "(3, 1)");
  expect_error([&] { unsqueeze(x, 3); }, "unsqueeze: Dimension out of range");
  expect_error([&] { unsqueeze(Tensor::empty(Dims(1, 1, 1, 1, 1, 1, 1, 1)), 0); }, "already has 8 axes");
}

TEST(View, ToAnotherDtype) {
  const Tensor x = Tensor::from(std::vector<float>{1, 1 + 0x1p-8f, -2.5f}, Dims(3));
  EXPECT_TRUE(to(x, DType::kF32).shares_storage(x));
  EXPECT_EQ(to(x, DType::kBF16).to_vector(), (V{1, 1, -2.5}));
  EXPECT_EQ(to(to(x, DType::kBF16), DType::kF32).to_vector(), (V{1, 1, -2.5}));
  Tensor w = arange(Dims(2));
  w.set_requires_grad();
  const Tensor half = to(w, DType::kBF16);
  backward(half, to(Tensor::from(std::vector<float>{0.5f, 3}, Dims(2)), DType::kBF16));
  EXPECT_EQ(w.grad().dtype(), DType::kF32);
  EXPECT_EQ(w.grad().category(), Category::kGradient);
  EXPECT_EQ(w.grad().to_vector(), (V{0.5, 3}));
}

TEST(View, Gradients) {
  using T = const std::vector<Tensor>&;
  const auto one = [](Dims size) { return std::vector<Input>{{size}}; };
  run_op_cases({
      {"transpose", one({3, 4, 2}), [](T x) { return transpose(x[0], 0, 2); }},
      {"transpose and back", one({3, 4}), [](T x) { return transpose(transpose(x[0], 0, 1), 0, 1); }},
      {"slice", one({5, 3}), [](T x) { return slice(x[0], 0, 1, 4); }},
      {"slice of nothing", one({5, 3}), [](T x) { return slice(x[0], 1, 2, 2); }},
      {"two slices of one tensor", one({5, 3}),
       [](T x) { return add(slice(x[0], 0, 0, 3), mul(slice(x[0], 0, 2, 5), slice(x[0], 0, 1, 4))); }},
      {"slice of a transpose", one({4, 5}), [](T x) { return slice(transpose(x[0], 0, 1), 0, 1, 3); }},
      {"expand", one({3, 1}), [](T x) { return expand(x[0], Dims(2, 3, 4)); }},
      {"expand twice used", one({1, 4}), [](T x) { return mul(expand(x[0], Dims(3, 4)), expand(x[0], Dims(3, 4))); }},
      {"unsqueeze and squeeze", one({3, 4}), [](T x) { return squeeze(unsqueeze(x[0], 1), 1); }},
      {"reshape", one({3, 4}), [](T x) { return reshape(x[0], Dims(2, 6)); }},
      {"reshape of a transpose", one({3, 4}), [](T x) { return reshape(transpose(x[0], 0, 1), Dims(2, 6)); }},
      {"contiguous of a transpose", one({3, 4}), [](T x) { return contiguous(transpose(x[0], 0, 1)); }},
      {"heads", one({2, 3, 8}), [](T x) { return transpose(reshape(x[0], Dims(2, 3, 2, 4)), 1, 2); }},
      {"a value and its transpose", one({3, 3}), [](T x) { return mul(x[0], transpose(x[0], 0, 1)); }},
      {"scalar", one({}), [](T x) { return expand(x[0], Dims(2, 2)); }},
      {"nothing", one({0, 3}), [](T x) { return reshape(transpose(x[0], 0, 1), Dims(3, 0, 2)); }},
  });
  // view() refuses the strided inputs of the layout mode.
  run_op_case({"view", one({3, 4}), [](T x) { return view(x[0], Dims(2, -1)); }, true, false});
}

// A view's gradient aliases the gradient it came from: adding to one input must not change another.
TEST(View, AliasedGradientsStayApart) {
  Tensor a = arange(Dims(2, 2)), b = arange(Dims(2, 2));
  a.set_requires_grad(), b.set_requires_grad();
  const Tensor y = add(transpose(a, 0, 1), b);
  const Tensor z = add(add(y, a), y);
  backward(z, Tensor::from(std::vector<float>{1, 2, 3, 4}, Dims(2, 2)));
  EXPECT_EQ(b.grad().to_vector(), (V{2, 4, 6, 8}));
  EXPECT_EQ(a.grad().to_vector(), (V{2 + 1, 6 + 2, 4 + 3, 8 + 4}));
  backward(add(transpose(a, 0, 1), b), Tensor::from(std::vector<float>{1, 2, 3, 4}, Dims(2, 2)));
  EXPECT_EQ(b.grad().to_vector(), (V{3, 6, 9, 12}));
  EXPECT_EQ(a.grad().to_vector(), (V{3 + 1, 8 + 3, 7 + 2, 12 + 4}));
}

}  // namespace
}  // namespace tally::test
