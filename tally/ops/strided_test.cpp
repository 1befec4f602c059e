// Views of parts, their gradients and refusals: select, slice, narrow, split, chunk, diagonal, unfold, as_strided, and
// the views of view.h that move axes. Expected strides and shapes are PyTorch's.
#include <numeric>

#include "tally/ops/backward.h"
#include "tally/ops/creation.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor counting(const Dims& size) { return view(arange(size.numel(), {.dtype = DType::kF32}), size); }

template <class F>
void expect_kind(ErrorKind kind, const F& f, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_EQ(e.kind, kind) << e.what();
  }
}

TEST(Strided, SelectSliceNarrow) {
  const Tensor x = counting({3, 4});
  EXPECT_EQ(select(x, 0, -1).to_vector(), (V{8, 9, 10, 11}));
  EXPECT_EQ(select(x, 1, 1).strides(), Dims(4));
  EXPECT_EQ(select(x, -1, 2).storage_offset(), 2);
  EXPECT_EQ(select(select(x, 0, 1), 0, 2).item(), 6);
  EXPECT_EQ(slice(x, 1, 1, 4, 2).to_vector(), (V{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(slice(x, 1, 1, 4, 2).strides(), Dims(4, 2));
  // Python's rules: bounds outside are the nearest inside.
  EXPECT_EQ(slice(x, 0, 1).sizes(), Dims(2, 4));
  EXPECT_EQ(slice(x, 0, -2, kToEnd).to_vector(), slice(x, 0, 1, 3).to_vector());
  EXPECT_EQ(slice(x, 0, -100, 100).sizes(), Dims(3, 4));
  EXPECT_EQ(slice(x, 0, 2, 1).sizes(), Dims(0, 4));
  EXPECT_EQ(slice(x, 1, 3, 4, int64_t{1} << 62).to_vector(), (V{3, 7, 11}));
  EXPECT_EQ(narrow(x, 1, 1, 2).to_vector(), (V{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(narrow(x, 0, -1, 1).to_vector(), (V{8, 9, 10, 11}));
  EXPECT_EQ(narrow(x, 0, 3, 0).numel(), 0);
  for (const Tensor& y : {select(x, 0, 1), slice(x, 1, 0, 4, 3), narrow(x, 0, 1, 2)}) EXPECT_TRUE(same_storage(x, y));
  expect_kind(
      ErrorKind::kIndex, [&] { select(x, 0, 3); }, "select: index 3 is outside axis 0 of (3, 4)");
  expect_kind(
      ErrorKind::kIndex, [&] { select(x, 2, 0); },
      "select: Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  expect_kind(
      ErrorKind::kIndex, [&] { select(tensor(1.0), 0, 0); }, "without axes");
  expect_kind(
      ErrorKind::kIndex,
      [&] {
        select(zeros({0, 3}), 0, 0);
      },
      "index 0 is outside axis 0 of (0, 3)");
  expect_kind(
      ErrorKind::kValue, [&] { slice(x, 0, 0, 2, 0); }, "a step of 0");
  expect_kind(
      ErrorKind::kValue, [&] { slice(x, 0, 0, 2, -1); }, "a step of -1");
  expect_kind(
      ErrorKind::kRuntime, [&] { narrow(x, 0, 1, 3); }, "start 1 and length 3 exceed axis 0 of (3, 4)");
  expect_kind(
      ErrorKind::kRuntime, [&] { narrow(x, 0, 0, -1); }, "the length -1 is negative");
  expect_kind(
      ErrorKind::kIndex, [&] { narrow(x, 0, 4, 0); }, "start 4 is outside");
}

TEST(Strided, AxesMove) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(permute(x, {2, 0, 1}).sizes(), Dims(4, 2, 3));
  EXPECT_EQ(permute(x, {2, 0, 1}).strides(), Dims(1, 12, 4));
  EXPECT_EQ(permute(x, {-1, 0, -2}).sizes(), Dims(4, 2, 3));
  EXPECT_EQ(movedim(x, 0, -1).sizes(), Dims(3, 4, 2));
  EXPECT_EQ(movedim(x, {0, 1}, {1, 2}).sizes(), Dims(4, 2, 3));
  EXPECT_EQ(swapaxes(x, 0, 2).strides(), Dims(1, 4, 12));
  EXPECT_EQ(mT(x).sizes(), Dims(2, 4, 3));
  EXPECT_EQ(t(counting({2, 3})).strides(), Dims(1, 3));
  EXPECT_EQ(t(counting({3})).sizes(), Dims(3));
  EXPECT_EQ(permute(tensor(1.0), Dims()).dim(), 0);
  expect_error([&] { permute(x, {0, 1}); }, "permute: 2 axes given for a tensor of shape (2, 3, 4)");
  expect_error([&] { permute(x, {0, 1, 1}); }, "permute: axis 1 comes twice");
  expect_error([&] { permute(x, {0, 1, 3}); }, "permute: Dimension out of range");
  expect_error([&] { t(x); }, "t: takes at most two axes, not (2, 3, 4)");
  expect_error([&] { mT(counting({3})); }, "mT: takes at least two axes");
  expect_error([&] { movedim(x, {0, 0}, {1, 2}); }, "comes twice");
  expect_error([&] { movedim(x, {0, 1}, {1}); }, "2 axes to 1 places");
}

TEST(Strided, UnitAxesAndShapes) {
  const Tensor x = counting({1, 3, 1, 2});
  EXPECT_EQ(squeeze(x).sizes(), Dims(3, 2));
  EXPECT_EQ(squeeze(x, Dims(0, 1)).sizes(), Dims(3, 1, 2));
  EXPECT_EQ(squeeze(x, Dims(0, -2)).sizes(), Dims(3, 2));
  EXPECT_EQ(squeeze(tensor(1.0)).dim(), 0);
  EXPECT_EQ(squeeze(ones({1, 1})).dim(), 0);
  EXPECT_EQ(unsqueeze(t(counting({2, 3})), 1).strides(), Dims(1, 6, 3));
  EXPECT_EQ(flatten(x).sizes(), Dims(6));
  EXPECT_EQ(flatten(x, 1, 2).sizes(), Dims(1, 3, 2));
  EXPECT_EQ(flatten(tensor(2.0)).sizes(), Dims(1));
  EXPECT_EQ(flatten(zeros({2, 0, 3}), 0, 1).sizes(), Dims(0, 3));
  EXPECT_TRUE(same_storage(flatten(x), x));
  EXPECT_FALSE(same_storage(flatten(t(counting({2, 3}))), x));
  EXPECT_EQ(unflatten(counting({2, 6}), 1, {2, -1}).sizes(), Dims(2, 2, 3));
  EXPECT_EQ(unflatten(t(counting({6, 2})), -1, {3, 2}).strides(), Dims(1, 4, 2));
  EXPECT_EQ(unflatten(zeros({2, 0, 4}), 2, {2, 2}).sizes(), Dims(2, 0, 2, 2));
  EXPECT_EQ(movedim(tensor(1.0), 0, -1).dim(), 0);
  EXPECT_EQ(expand_as(counting({3, 1}), zeros({2, 3, 4})).strides(), Dims(0, 1, 0));
  EXPECT_EQ(expand(tensor(1.0), {2, 2}).to_vector(), V(4, 1));
  EXPECT_EQ(expand(zeros({0, 1}), {0, 5}).sizes(), Dims(0, 5));
  expect_error([&] { expand(x, {-1, 1, 3, 1, 2}); }, "size -1 is not allowed at axis 0");
  expect_error([&] { expand(counting({3}), {-2}); }, "size -2 is not allowed");
  expect_error([&] { flatten(x, 2, 1); }, "start 2 comes behind end 1");
  expect_error([&] { unflatten(counting({2, 6}), 1, {4, -1}); }, "does not fit 6 elements");
  expect_error([&] { unflatten(counting({2, 6}), 1, Dims()); }, "at least one size");
  expect_error([&] { unflatten(zeros({1, 1, 1, 1, 1, 1, 4}), 6, {2, 2, 1}); }, "more than 8 axes");
  expect_error([&] { squeeze(x, Dims(0, 0)); }, "axis 0 comes twice");
}

TEST(Strided, ViewAsAnotherDtype) {
  const Tensor x = tensor({1.0, -2.0, 3.0, 4.0});
  EXPECT_EQ(view(x, DType::kI32).to_vector<int32_t>()[0], 0x3F800000);
  EXPECT_EQ(view(x, DType::kU8).sizes(), Dims(16));
  EXPECT_EQ(view(view(x, DType::kU8), DType::kF32).to_vector(), x.to_vector());
  const Tensor m = zeros({3, 4}, {.dtype = DType::kF16});
  EXPECT_EQ(view(slice(m, 1, 2, 4), DType::kF32).sizes(), Dims(3, 1));
  EXPECT_EQ(view(slice(m, 1, 2, 4), DType::kF32).storage_offset(), 1);
  EXPECT_TRUE(same_storage(view(m, DType::kI64), m));
  expect_error([&] { view(slice(m, 1, 1, 3), DType::kF32); }, "cannot be seen as f32");
  expect_error([&] { view(t(m), DType::kF32); }, "cannot be seen as f32");
  expect_error([&] { view(tensor(1.0), DType::kF64); }, "cannot be seen as f64");
}

TEST(Strided, SplitAndChunk) {
  const Tensor x = counting({7, 2});
  const auto lengths = [](const std::vector<Tensor>& parts) {
    std::vector<int64_t> n;
    for (const Tensor& p : parts) n.push_back(p.size(0));
    return n;
  };
  EXPECT_EQ(lengths(split(x, 3)), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(lengths(split(x, 10)), (std::vector<int64_t>{7}));
  EXPECT_EQ(lengths(split(zeros({0, 2}), 0)), (std::vector<int64_t>{0}));
  EXPECT_EQ(lengths(chunk(x, 3)), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(lengths(chunk(x, 4)), (std::vector<int64_t>{2, 2, 2, 1}));
  EXPECT_EQ(lengths(chunk(x, 5)), (std::vector<int64_t>{2, 2, 2, 1}));  // PyTorch: fewer than asked for
  EXPECT_EQ(lengths(chunk(zeros({0, 2}), 3)), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(split(x, 1, -1)[1].to_vector(), (V{1, 3, 5, 7, 9, 11, 13}));
  EXPECT_TRUE(same_storage(chunk(x, 2)[1], x));
  expect_error([&] { split(x, 0); }, "parts of 0 do not make axis 0 of (7, 2)");
  expect_error([&] { chunk(x, 0); }, "0 chunks");
  expect_kind(
      ErrorKind::kRuntime, [&] { split(tensor(1.0), 1); }, "split: a tensor without axes");
}

TEST(Strided, DiagonalUnfoldAsStrided) {
  const Tensor x = counting({3, 4});
  EXPECT_EQ(diagonal(x).to_vector(), (V{0, 5, 10}));
  EXPECT_EQ(diagonal(x, 1).to_vector(), (V{1, 6, 11}));
  EXPECT_EQ(diagonal(x, 3).to_vector(), (V{3}));
  EXPECT_EQ(diagonal(x, -2).to_vector(), (V{8}));
  EXPECT_EQ(diagonal(x, -1).to_vector(), (V{4, 9}));
  EXPECT_EQ(diagonal(x, 4).numel(), 0);
  EXPECT_EQ(diagonal(x, -(int64_t{1} << 62)).numel(), 0);
  EXPECT_EQ(diagonal(counting({2, 3, 3}), 0, 1, 2).to_vector(), (V{0, 4, 8, 9, 13, 17}));
  EXPECT_EQ(diagonal(counting({2, 3, 4}), 0, 0, 2).strides(), Dims(4, 13));
  expect_error([&] { diagonal(x, 0, 1, -1); }, "axes 1 and 1 are the same");
  expect_error([&] { diagonal(counting({3})); }, "diagonal: Dimension out of range");

  const Tensor row = counting({7});
  EXPECT_EQ(unfold(row, 0, 3, 2).to_vector(), (V{0, 1, 2, 2, 3, 4, 4, 5, 6}));
  EXPECT_EQ(unfold(row, 0, 3, 2).strides(), Dims(2, 1));
  EXPECT_EQ(unfold(x, 1, 2, 1).sizes(), Dims(3, 3, 2));
  EXPECT_EQ(unfold(row, 0, 7, 100).sizes(), Dims(1, 7));
  EXPECT_EQ(unfold(row, 0, 0, 3).sizes(), Dims(3, 0));
  EXPECT_EQ(unfold(tensor(5.0), 0, 1, 1).to_vector(), (V{5}));
  expect_error([&] { unfold(row, 0, 8, 1); }, "unfold: windows of 8 in axis 0 of (7,)");
  expect_error([&] { unfold(row, 0, 2, 0); }, "a step of 0");
  expect_error([&] { unfold(zeros({1, 1, 1, 1, 1, 1, 1, 1}), 0, 1, 1); }, "already has 8 axes");

  EXPECT_EQ(as_strided(x, {2, 2}, {5, 1}, 1).to_vector(), (V{1, 2, 6, 7}));
  EXPECT_EQ(as_strided(x, {3}, {0}, 11).to_vector(), (V{11, 11, 11}));
  EXPECT_EQ(as_strided(slice(x, 0, 1), {2}, {1}).to_vector(), (V{4, 5}));  // x's own offset unless given
  EXPECT_EQ(as_strided(x, {}, {}, 3).item(), 3);
  EXPECT_EQ(as_strided(x, {0}, {1}, 400).numel(), 0);
  expect_error([&] { as_strided(x, {2}, {1, 1}, 0); }, "1 sizes and 2 strides");
  expect_error([&] { as_strided(x, {2}, {1}, -1); }, "the offset -1 is negative");
}

// pytorch/pytorch#39224: the one op that takes raw strides must stay inside its memory.
TEST(Traps, O02_AsStridedBounds) {
  const Tensor x = arange(16);
  expect_kind(
      ErrorKind::kRuntime, [&] { as_strided(x, {4}, {-42}, 8); }, "negative strides are not supported: (-42,)");
  expect_kind(
      ErrorKind::kRuntime, [&] { as_strided(x, {3}, {10}, 0); }, "reaches outside its storage");
  expect_error([&] { as_strided(x, {1}, {1}, 16); }, "reaches outside its storage");
  expect_error([&] { as_strided(x, {int64_t{1} << 62, 8}, {int64_t{1} << 40, 1}, 0); }, "reaches outside");
  EXPECT_EQ(as_strided(x, {4}, {5}, 0).to_vector(), (V{0, 5, 10, 15}));
}

TEST(Strided, Gradients) {
  run_op_cases({
      {"select", {{Dims(3, 4)}}, [](const auto& x) { return select(x[0], 1, -2); }},
      {"select of a row", {{Dims(5)}}, [](const auto& x) { return select(x[0], 0, 3); }},
      {"slice by 2", {{Dims(3, 7)}}, [](const auto& x) { return slice(x[0], 1, 1, 7, 2); }},
      {"slice of nothing", {{Dims(3, 7)}}, [](const auto& x) { return slice(x[0], 1, 4, 2); }},
      {"slice of all", {{Dims(3, 7)}}, [](const auto& x) { return slice(square(x[0]), 0, 0); }},
      {"narrow", {{Dims(4, 2, 3)}}, [](const auto& x) { return narrow(x[0], 0, 1, 2); }},
      {"permute",
       {{Dims(2, 3, 4)}},
       [](const auto& x) {
         return permute(x[0], {2, 0, 1});
       }},
      {"movedim", {{Dims(2, 3, 4)}}, [](const auto& x) { return square(movedim(x[0], 0, 2)); }},
      {"squeeze", {{Dims(1, 3, 1)}}, [](const auto& x) { return squeeze(x[0]); }},
      {"unsqueeze", {{Dims(3, 2)}}, [](const auto& x) { return square(unsqueeze(x[0], 1)); }},
      {"flatten", {{Dims(2, 3, 4)}}, [](const auto& x) { return flatten(transpose(x[0], 0, 1), 1); }},
      {"unflatten",
       {{Dims(2, 6)}},
       [](const auto& x) {
         return unflatten(x[0], 1, {3, 2});
       }},
      {"expand",
       {{Dims(3, 1)}},
       [](const auto& x) {
         return expand(x[0], {4, -1, 5});
       }},
      {"split by 2", {{Dims(5, 2)}}, [](const auto& x) { return split(square(x[0]), 2)[2]; }},
      {"chunk",
       {{Dims(5, 2)}},
       [](const auto& x) {
         const auto y = chunk(x[0], 2, 1);
         return mul(y[0], y[1]);
       }},
      {"diagonal", {{Dims(4, 3)}}, [](const auto& x) { return diagonal(x[0], -1); }},
      {"diagonal of a batch", {{Dims(2, 3, 4)}}, [](const auto& x) { return diagonal(square(x[0]), 1, 2, 0); }},
      {"unfold", {{Dims(7)}}, [](const auto& x) { return unfold(x[0], 0, 3, 2); }},
      {"unfold, far windows", {{Dims(2, 9)}}, [](const auto& x) { return unfold(x[0], 1, 2, 4); }},
      {"unfold, wide windows", {{Dims(9, 2)}}, [](const auto& x) { return unfold(square(x[0]), 0, 7, 1); }},
      {"unfold twice", {{Dims(5, 6)}}, [](const auto& x) { return unfold(unfold(x[0], 0, 2, 1), 1, 3, 2); }},
      {"unfold of a scalar", {{Dims()}}, [](const auto& x) { return unfold(x[0], 0, 1, 1); }},
      // Two uses: the second adds to what is there.
      {"select twice", {{Dims(3, 4)}}, [](const auto& x) { return mul(select(x[0], 0, 1), select(x[0], 0, 1)); }},
      {"unfold and itself",
       {{Dims(6)}},
       [](const auto& x) { return mul(unfold(x[0], 0, 3, 1), unfold(x[0], 0, 3, 1)); }},
  });
  // as_strided depends on the memory's layout, so inputs come as they are.
  const auto strided = [](const std::string& name, const Dims& from, const Dims& size, const Dims& stride, int64_t at) {
    run_op_case({"as_strided " + name,
                 {{from}},
                 [=](const auto& x) { return as_strided(x[0], size, stride, at); },
                 true,
                 false});
  };
  strided("apart", {4, 4}, {2, 3}, {8, 1}, 1);
  strided("overlapping", {10}, {4, 4}, {2, 1}, 0);
  strided("all on one place", {5}, {3, 2}, {0, 0}, 2);
  strided("a broadcast of windows", {8}, {2, 3, 3}, {0, 2, 1}, 1);
  strided("equal strides", {6}, {3, 4}, {1, 1}, 0);
  strided("nothing", {6}, {0, 4}, {1, 1}, 0);
  run_op_case({"as_strided of a transposed part",
               {{Dims(4, 5)}},
               [](const auto& x) {
                 return as_strided(transpose(slice(square(x[0]), 0, 1, 3), 0, 1), {2, 3}, {4, 1}, 6);
               },
               true,
               false});
  Tensor x = counting({3, 1});
  x.set_requires_grad();
  expect_error([&] { as_strided(expand(x, {3, 2}), {2}, {1}); }, "elements of the input overlap in memory");
}

// A bf16 parameter's gradient is f32 and overlapping windows are summed in it.
TEST(Strided, OverlapsOfABf16Leaf) {
  Tensor x = ones({300}, {.dtype = DType::kBF16, .requires_grad = true});
  backward(unfold(x, 0, 290, 1), ones({11, 290}, {.dtype = DType::kBF16}));
  EXPECT_EQ(x.grad().dtype(), DType::kF32);
  EXPECT_EQ(x.grad().to_vector()[150], 11);
  Tensor y = ones({1}, {.dtype = DType::kBF16, .requires_grad = true});
  backward(as_strided(y, {1000}, {0}), ones({1000}, {.dtype = DType::kBF16}));
  EXPECT_EQ(y.grad().item(), 1000);  // in bf16 a sum of ones ends at 256
}

TEST(Strided, OnMetaAsOnTheCpu) {
  for (const Device device : {kCpu, kMetaCpu}) {
    LedgerGuard guard;
    Tensor x = zeros({6, 8}, {.device = device, .requires_grad = true});
    Tensor y = unfold(slice(permute(x, {1, 0}), 0, 1, 7, 2), 1, 3, 1);
    EXPECT_EQ(y.sizes(), Dims(3, 4, 3));
    EXPECT_EQ(y.strides(), Dims(2, 8, 8));
    backward(y, zeros({3, 4, 3}, {.device = device}));
    EXPECT_EQ(x.grad().sizes(), Dims(6, 8));
    static Cost cost;
    if (device == kCpu) {
      cost = guard.ledger().cost();
    } else {
      EXPECT_EQ(guard.ledger().cost(), cost);
    }
  }
}

}  // namespace
}  // namespace tally::test
