#include "tally/ops/gather.h"

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// Logical place in x of logical element k of `size`, its coordinate on `axis` replaced by `to`.
int64_t place_of(int64_t k, const Dims& size, const Dims& x, int axis, int64_t to) {
  int64_t place = 0, step = 1;
  for (int i = size.rank - 1; i >= 0; --i) {
    place += (i == axis ? to : k % size[i]) * step;
    k /= size[i];
    step *= x[i];
  }
  return place;
}

const bool gather_reference = register_reference<GatherArgs>([](const GatherArgs& a, auto& io) {
  auto x = io.in(a.x);
  auto index = io.index(a.index);
  auto& y = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k)
    y.flat(k) = x.flat(place_of(k, a.out.size, a.x.size, a.axis, static_cast<int64_t>(index.flat(k))));
});

const bool gather_backward_reference =
    register_reference<GatherBackwardArgs>([](const GatherBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto grad = io.in(a.grad);
      auto index = io.index(a.index);
      auto& dx = a.add ? io.inout(a.dx) : io.out(a.dx);
      for (int64_t k = 0; k < (a.add ? 0 : a.dx.numel()); ++k) dx.flat(k) = N(0.0);
      for (int64_t k = 0; k < a.grad.numel(); ++k)
        dx.flat(place_of(k, a.grad.size, a.dx.size, a.axis, static_cast<int64_t>(index.flat(k)))) += grad.flat(k);
    });

const Dims kShapes[] = {Dims(5),      Dims(3, 4),    Dims(4, 1),  Dims(1, 4), Dims(2, 3, 33), Dims(2, 1, 3, 2, 5),
                        Dims(6, 140), Dims(2, 0, 3), Dims(3, 600)};

TEST(Gather, IndexSelect) {
  for (const Dims& size : kShapes)
    for (int axis = 0; axis < size.rank; ++axis)
      for (const int64_t n : {0, 1, 7}) {
        if (size[axis] == 0 && n > 0) continue;
        run_op_case({"index_select " + str(size) + " on " + std::to_string(axis),
                     {{size}, {Dims(n), Input::kIndex, size[axis]}},
                     [axis](const auto& x) { return index_select(x[0], axis, x[1]); }});
      }
}

TEST(Gather, TakeAlongAxis) {
  for (const Dims& size : kShapes)
    for (int axis = 0; axis < size.rank; ++axis)
      for (const int64_t n : {0, 1, 7}) {
        if (size[axis] == 0 && n > 0) continue;
        Dims index = size;
        index[axis] = n;
        run_op_case({"take_along_axis " + str(size) + " on " + std::to_string(axis),
                     {{size}, {index, Input::kIndex, size[axis]}},
                     [axis](const auto& x) { return take_along_axis(x[0], x[1], axis); }});
      }
}

TEST(Gather, OtherDTypes) {
  const Tensor ids = to(Tensor::from(std::vector<int32_t>{2, 0}, Dims(2)), DType::kI64);
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kU16, DType::kU8}) {
    const Tensor x = to(Tensor::from(std::vector<int32_t>{10, 20, 30}, Dims(3)), dtype);
    EXPECT_EQ(index_select(x, 0, ids).to_vector(), (std::vector<double>{30, 10}));
  }
}

TEST(Gather, IndicesOutsideAreNamed) {
  const Tensor x = Tensor::empty(Dims(2, 8));
  const auto ids = [](std::vector<int32_t> v) { return Tensor::from(v, Dims(static_cast<int64_t>(v.size()))); };
  expect_error([&] { index_select(x, 1, ids({0, 1, 8})); }, "index_select: index 8 at position 2 is outside 0..7");
  expect_error([&] { index_select(x, 0, ids({-1})); }, "index_select: index -1 at position 0 is outside 0..1");
  expect_error([&] { index_select(x, 2, ids({0})); }, "index_select");
  expect_error([&] { index_select(x, 0, x); }, "index_select: indices are i32 or i64, not f32");
  expect_error([&] { take_along_axis(x, ids({0}), 0); },
               "take_along_axis: an index of shape (1,) does not fit (2, 8) along axis 0");
}

TEST(Gather, Cat) {
  run_op_case({"cat of three", {{Dims(2, 3)}, {Dims(2, 1)}, {Dims(2, 4)}}, [](const auto& x) {
                 return cat({x[0], x[1], x[2]}, 1);
               }});
  run_op_case({"cat of functions", {{Dims(3, 2, 4)}, {Dims(0, 2, 4)}}, [](const auto& x) {
                 return cat({square(x[0]), square(x[1]), x[0]}, -3);
               }});
  run_op_case({"cat of one", {{Dims(3)}}, [](const auto& x) { return cat({x[0]}, 0); }});
  run_op_case({"cat with a constant", {{Dims(2), Input::kNormal, 0, false}, {Dims(3)}}, [](const auto& x) {
                 return cat({x[0], x[1]}, 0);
               }});
  run_op_case({"cat with an empty part", {{Dims(0), Input::kNormal, 0, false}, {Dims(2, 3)}}, [](const auto& x) {
                 return cat({x[0], x[1], x[1]}, 1);
               }});
  EXPECT_EQ(cat({Tensor::empty(Dims(0))}).sizes(), Dims(0));
  const Tensor a = Tensor::from(std::vector<int32_t>{1, 2}, Dims(2)),
               b = Tensor::from(std::vector<int32_t>{3}, Dims(1));
  EXPECT_EQ(cat({a, b}, 0).to_vector(), (std::vector<double>{1, 2, 3}));
}

TEST(Gather, CatErrors) {
  const Tensor x = Tensor::empty(Dims(2, 3));
  EXPECT_EQ(error_kind([] { cat({}, 0); }), ErrorKind::kValue);
  expect_error([] { cat({}, 0); }, "cat: expected a non-empty list of tensors");
  expect_error(
      [&] {
        cat({x, Tensor::empty(Dims(3, 3))}, 1);
      },
      "cat: Sizes of tensors must match except in dimension 1. Expected size 2 but got size 3 for tensor number "
      "1 in the list");
  expect_error(
      [&] {
        cat({x, Tensor::empty(Dims(2))}, 1);
      },
      "cat: Tensors must have same number of dimensions: got 2 and 1");
  expect_error([&] { cat({x, Tensor::empty(Dims())}, 0); }, "zero-dimensional tensor (at position 1) cannot be");
  expect_error([&] { cat({x, Tensor::empty(Dims(2, 3), DType::kF32, kMetaCpu)}, 1); }, "cat: devices");
  EXPECT_EQ(error_kind([&] { cat({x}, 2); }), ErrorKind::kIndex);
}

TEST(Gather, CatPromotes) {
  const auto of = [](DType t, int64_t n) { return Tensor::empty(Dims(n), t); };
  EXPECT_EQ(cat({of(DType::kBool, 1), of(DType::kI64, 2), of(DType::kF16, 1)}).dtype(), DType::kF16);
  EXPECT_EQ(cat({of(DType::kF16, 1), of(DType::kBF16, 2)}).dtype(), DType::kF32);
  EXPECT_EQ(cat({of(DType::kU8, 1), of(DType::kI8, 2)}).dtype(), DType::kI16);
  // Of shape (0,): no part of the result but for the dtype; alone along any axis.
  const Tensor y = cat({Tensor::empty(Dims(0)), Tensor::empty(Dims(2, 3), DType::kI64), Tensor::empty(Dims(0))}, -1);
  EXPECT_EQ(y.sizes(), Dims(2, 3));
  EXPECT_EQ(y.dtype(), DType::kF32);
  EXPECT_EQ(cat({Tensor::empty(Dims(0)), Tensor::empty(Dims(0), DType::kF64)}, 3).dtype(), DType::kF64);
  Tensor a = Tensor::from(std::vector<float>{1, 2}, Dims(2)), b = Tensor::from(std::vector<double>{3}, Dims(1));
  a.set_requires_grad(), b.set_requires_grad();
  const Tensor z = cat({a, b});
  EXPECT_EQ(z.to_vector(), (std::vector<double>{1, 2, 3}));
  backward(z, Tensor::from(std::vector<double>{4, 5, 6}, Dims(3)));
  EXPECT_EQ(a.grad().dtype(), DType::kF32);
  EXPECT_EQ(a.grad().to_vector(), (std::vector<double>{4, 5}));
  EXPECT_EQ(b.grad().to_vector(), (std::vector<double>{6}));
}

// A leaf's gradient must not be a slice of a larger buffer.
TEST(Gather, GradientsOfLeavesOwnTheirMemory) {
  Tensor a = random_tensor({Dims(2)}, DType::kF32, 1).set_requires_grad();
  Tensor b = random_tensor({Dims(2)}, DType::kF32, 2).set_requires_grad();
  backward(cat({a, b}, 0), Tensor::from(std::vector<float>{1, 2, 3, 4}, Dims(4)));
  EXPECT_FALSE(a.grad().shares_storage(b.grad()));
  EXPECT_EQ(a.grad().category(), Category::kGradient);
}

TEST(Gather, Split) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{7},
                                            {3, 4},
                                            {2, 0, 5},
                                            {1, 2, 3, 1},
                                            {1, 1, 1, 1, 3},
                                            {1, 1, 1, 1, 1, 2},
                                            {1, 1, 1, 1, 1, 1, 1},
                                            {1, 1, 1, 1, 1, 1, 1, 0},
                                            {1, 1, 1, 1, 1, 1, 1, 0, 0}})
    run_op_case({"split into " + std::to_string(sizes.size()), {{Dims(2, 7, 3)}}, [&](const auto& x) {
                   std::vector<Tensor> y = split(x[0], sizes, 1);
                   for (size_t i = 0; i < y.size(); ++i) y[i] = affine(y[i], static_cast<float>(i + 1), 0.5f);
                   return cat(y, 1);
                 }});
  // A part that nothing uses has a gradient of 0.
  run_op_case({"split, one part used", {{Dims(4, 6)}}, [](const auto& x) {
                 return square(split(x[0], {1, 2, 3}, -1)[1]);
               }});
  // The source is used elsewhere too.
  run_op_case({"split, added to its source", {{Dims(4, 2)}}, [](const auto& x) {
                 const std::vector<Tensor> y = split(square(x[0]), {1, 1}, 1);
                 return add(mul(y[0], y[1]), x[0]);
               }});
}

TEST(Gather, SplitIsAView) {
  const Tensor x = Tensor::empty(Dims(4, 6));
  for (const Tensor& y : split(x, {2, 2, 2}, 1)) EXPECT_TRUE(y.shares_storage(x));
  expect_error([&] { split(x, {2, 2}, 1); }, "split: sizes leave 2 of axis 1 of (4, 6)");
  expect_error([&] { split(x, {5, 2}, 1); }, "split: sizes do not add up to axis 1 of (4, 6)");
  expect_error([&] { split(x, {-1, 7}, 1); }, "split: sizes do not add up");
}

}  // namespace
}  // namespace tally::test
