#include "tally/ops/scatter.h"

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

// Logical place in out of logical element k of `size`, its coordinate on `axis` replaced by `to`.
int64_t place_of(int64_t k, const Dims& size, const Dims& out, int axis, int64_t to) {
  int64_t place = 0, step = 1;
  for (int i = size.rank - 1; i >= 0; --i) {
    place += (i == axis ? to : k % size[i]) * step;
    k /= size[i];
    step *= out[i];
  }
  return place;
}

const bool scatter_reference = register_reference<ScatterArgs>([](const ScatterArgs& a, auto& io) {
  auto src = io.in(a.src);
  auto index = io.index(a.index);
  auto& out = io.inout(a.out);
  for (int64_t k = 0; k < a.src.numel(); ++k) {
    auto& to = out.flat(place_of(k, a.src.size, a.out.size, a.axis, static_cast<int64_t>(index.flat(k))));
    if (a.add) {
      to += src.flat(k);
    } else {
      to = src.flat(k);
    }
  }
});

Tensor ints(const std::vector<int32_t>& v, const Dims& size) { return to(Tensor::from(v, size), test_device()); }
Tensor floats(const std::vector<float>& v, const Dims& size) { return to(Tensor::from(v, size), test_device()); }

struct Shapes {
  Dims x, index, src;
  int axis;
};
const Shapes kShapes[] = {{Dims(5), Dims(7), Dims(7), 0},
                          {Dims(3, 4), Dims(2, 4), Dims(2, 4), 0},
                          {Dims(3, 4), Dims(2, 6), Dims(3, 7), 1},
                          {Dims(2, 3, 5), Dims(2, 1, 4), Dims(2, 2, 5), 1},
                          {Dims(4, 1, 3, 2, 5), Dims(3, 1, 3, 1, 4), Dims(4, 1, 3, 2, 4), -3},
                          {Dims(6, 140), Dims(9, 133), Dims(9, 133), 0},
                          {Dims(3, 7), Dims(0, 7), Dims(2, 7), 0},
                          {Dims(40), Dims(700), Dims(700), 0}};

TEST(Gather, OfIndicesSmallerThanX) {
  for (const Shapes& s : kShapes) {
    const int64_t n = s.x[s.axis < 0 ? s.axis + s.x.rank : s.axis];
    run_op_case({"gather " + str(s.x) + " by " + str(s.index),
                 {{s.x}, {s.index, Input::kIndex, n}},
                 [&](const auto& x) { return gather(x[0], s.axis, x[1]); }});
  }
  run_op_case({"gather of a number", {{Dims()}, {Dims(), Input::kIndex, 1}}, [](const auto& x) {
                 return gather(x[0], 0, x[1]);
               }});
}

TEST(Scatter, Add) {
  for (const Shapes& s : kShapes) {
    const int64_t n = s.x[s.axis < 0 ? s.axis + s.x.rank : s.axis];
    run_op_case({"scatter_add " + str(s.x) + " by " + str(s.index),
                 {{s.x}, {s.index, Input::kIndex, n}, {s.src}},
                 [&](const auto& x) { return scatter_add(x[0], s.axis, x[1], x[2]); }});
  }
  run_op_case({"scatter_add in place", {{Dims(4, 3)}, {Dims(5, 2), Input::kIndex, 4}, {Dims(5, 3)}}, [](const auto& x) {
                 Tensor y = square(x[0]);
                 return square(scatter_add_(y, 0, x[1], square(x[2])));
               }});
}

TEST(Scatter, Put) {
  for (const Shapes& s : kShapes) {
    const int axis = s.axis < 0 ? s.axis + s.x.rank : s.axis;
    if (s.index[axis] > s.x[axis]) continue;
    // Places that differ, so that the gradient of src is that of the difference quotient.
    run_op_case({"scatter " + str(s.x) + " by " + str(s.index), {{s.x}, {s.src}}, [&](const auto& x) {
                   std::vector<int32_t> ids(static_cast<size_t>(s.index.numel()));
                   int64_t inner = 1;
                   for (int i = axis + 1; i < s.index.rank; ++i) inner *= s.index[i];
                   for (size_t k = 0; k < ids.size(); ++k)
                     ids[k] = static_cast<int32_t>(s.x[axis] - 1 - static_cast<int64_t>(k) / inner % s.index[axis]);
                   return scatter(x[0], s.axis, ints(ids, s.index), x[1]);
                 }});
  }
  // The last one stays, whatever the threads.
  const Tensor x = floats({0, 0, 0}, Dims(3)), src = floats({1, 2, 3, 4}, Dims(4));
  EXPECT_EQ(scatter(x, 0, ints({1, 0, 1, 1}, Dims(4)), src).to_vector(), (V{2, 4, 0}));
  run_op_case({"scatter, one index for rows of 300",
               {{Dims(4, 3), Input::kNormal, 0, false},
                {Dims(300, 3), Input::kIndex, 4},
                {Dims(300, 3), Input::kNormal, 0, false}},
               [](const auto& in) { return scatter(in[0], 0, in[1], in[2]); }});
  run_op_case({"scatter of a number", {{Dims(3, 4)}}, [](const auto& in) {
                 return scatter(in[0], 1, ints({0, 2, 3, 3, 1, 1}, Dims(3, 2)), 1.5);
               }});
}

TEST(Scatter, IndexAdd) {
  for (const Dims& size : {Dims(5), Dims(3, 4), Dims(2, 3, 9)})
    for (int axis = 0; axis < size.rank; ++axis)
      for (const int64_t n : {0, 1, 9}) {
        Dims source = size;
        source[axis] = n;
        run_op_case({"index_add " + str(size) + " on " + std::to_string(axis),
                     {{size}, {Dims(n), Input::kIndex, size[axis]}, {source}},
                     [axis](const auto& x) { return index_add(x[0], axis, x[1], x[2], axis == 0 ? 1 : -0.5); }});
      }
  // Many ids for all lanes, several tasks and blocks.
  run_op_case({"index_add of 400",
               {{Dims(4, 130), Input::kNormal, 0, false},
                {Dims(400), Input::kIndex, 4},
                {Dims(400, 130), Input::kNormal, 0, false}},
               [](const auto& x) { return index_add(x[0], 0, x[1], x[2]); }});
  Tensor x = floats({1, 2, 3}, Dims(3));
  index_add_(x, 0, ints({0, 0, 2}, Dims(3)), floats({1, 10, 100}, Dims(3)));
  EXPECT_EQ(x.to_vector(), (V{12, 2, 103}));
}

TEST(Scatter, Integers) {
  VerifyLaunches verify;
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8}) {
    const Tensor x = to(ints({1, 2, 3}, Dims(3)), dtype), src = to(ints({10, 20, 30, 40}, Dims(4)), dtype);
    EXPECT_EQ(scatter_add(x, 0, ints({1, 1, 0, 1}, Dims(4)), src).to_vector(), (V{31, 72, 3}));
    EXPECT_EQ(scatter(x, 0, ints({1, 1, 0, 2}, Dims(4)), src).to_vector(), (V{30, 20, 40}));
    EXPECT_EQ(gather(x, 0, ints({2, 0}, Dims(2))).to_vector(), (V{3, 1}));
  }
  const Tensor f16 = to(floats({1, 2}, Dims(2)), DType::kF16);
  EXPECT_EQ(scatter_add(f16, 0, ints({1, 1}, Dims(2)), f16).to_vector(), (V{1, 5}));
}

TEST(Scatter, OneHot) {
  const Tensor y = one_hot(ints({0, 2, 1, 0}, Dims(2, 2)));
  EXPECT_EQ(y.sizes(), Dims(2, 2, 3));
  EXPECT_EQ(y.dtype(), DType::kI64);
  EXPECT_EQ(y.to_vector(), (V{1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(one_hot(ints({1}, Dims(1)), 4).to_vector(), (V{0, 1, 0, 0}));
  EXPECT_EQ(one_hot(ints({}, Dims(0)), 4).sizes(), Dims(0, 4));
  expect_error([] { one_hot(Tensor::from(std::vector<int32_t>{-1}, Dims(1))); }, "one_hot");
  expect_error([] { one_hot(Tensor::from(std::vector<int32_t>{4}, Dims(1)), 4); }, "num_classes 4: 4 at position 0");
  expect_error([] { one_hot(ints({}, Dims(0))); }, "cannot be inferred");
  expect_error([] { one_hot(Tensor::empty(Dims(2), DType::kI64, kMetaCpu)); }, "depends on the ids");
  EXPECT_EQ(one_hot(Tensor::empty(Dims(2), DType::kI64, kMetaCpu), 3).sizes(), Dims(2, 3));
}

TEST(Scatter, Errors) {
  const auto ids = [](std::vector<int32_t> v) { return Tensor::from(v, Dims(static_cast<int64_t>(v.size()))); };
  Tensor x = Tensor::empty(Dims(3)), two = Tensor::empty(Dims(2));
  expect_error([&] { scatter_add(x, 0, ids({0, 3}), two); }, "scatter_add: index 3 at position 1 is outside 0..2");
  expect_error([&] { gather(x, 0, ids({-1})); }, "gather: index -1 at position 0 is outside 0..2");
  expect_error([&] { scatter(x, 0, ids({0, 1, 2}), two); }, "no larger than src (2,)");
  expect_error([&] { scatter(x, 1, ids({0}), two); }, "scatter");
  expect_error([&] { scatter(x, 0, ids({0}), to(two, DType::kF64)); }, "self.dtype f32 to be equal to src.dtype f64");
  expect_error([&] { scatter(x, 0, two, two); }, "indices are i32 or i64, not f32");
  expect_error([&] { index_add(x, 0, ids({0}), two); }, "a source of shape (2,) does not fit 1 indices");
  expect_error([&] { gather(Tensor::empty(Dims(2, 3)), 0, Tensor::from(std::vector<int32_t>(4), Dims(1, 4))); },
               "gather: index (1, 4) is larger than the input (2, 3) beyond axis 0");
  Tensor leaf = Tensor::empty(Dims(3)).set_requires_grad();
  expect_error([&] { scatter_(leaf, 0, ids({0, 1}), two); }, "a leaf tensor that requires grad");
  Tensor wide = broadcast_to(Tensor::empty(Dims(1)), Dims(3));
  expect_error([&] { scatter_(wide, 0, ids({0, 1}), two); }, "refers to a single memory location");
  try {
    gather(x, 0, ids({7}));
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::kIndex);
  }
}

TEST(Scatter, PlanIsTheRun) {
  for (const Device device : {kCpu, kMetaCpu}) {
    LedgerGuard guard;
    const Tensor x = Tensor::empty(Dims(4, 3), DType::kF32, device),
                 src = Tensor::empty(Dims(2, 3), DType::kF32, device);
    const Tensor index = Tensor::empty(Dims(2, 3), DType::kI64, device);
    if (device == kCpu) {
      Tensor zeros = index;
      fill_(zeros, 0);
    }
    EXPECT_EQ(scatter_add(x, 0, index, src).sizes(), Dims(4, 3));
    EXPECT_EQ(gather(x, 0, index).sizes(), Dims(2, 3));
    EXPECT_EQ(guard.ledger().cost().other_flops, 6);
  }
}

}  // namespace
}  // namespace tally::test
