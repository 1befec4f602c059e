#include "tally/ops/indexing.h"

#include <numeric>

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

const bool linear_index_reference = register_reference<LinearIndexArgs>([](const LinearIndexArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto& out = io.out(a.out);
  auto& bad = io.inout(a.bad);
  int64_t first = -1;
  for (int64_t k = 0; k < a.out.numel(); ++k) {
    int64_t sum = 0;
    bool good = true;
    for (int i = 0; i < a.count; ++i) {
      const auto id = static_cast<int64_t>(io.index(a.ids[i]).flat(k));
      good = good && id >= -a.size[i] && id < a.size[i];
      sum += (id < 0 ? id + a.size[i] : id) * a.step[i];
    }
    out.flat(k) = N(good ? static_cast<double>(sum) : -1.0);
    if (!good && first < 0) first = k;
  }
  if (first >= 0) bad.flat(0) = N(static_cast<double>(first));
});

const bool nonzero_count_reference = register_reference<NonzeroCountArgs>([](const NonzeroCountArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.index(a.x);
  auto& counts = io.out(a.counts);
  for (int64_t p = 0; p < a.counts.numel(); ++p) {
    int64_t n = 0;
    for (int64_t k = p * Nonzero::kPiece; k < std::min(a.x.numel(), (p + 1) * Nonzero::kPiece); ++k)
      n += x.flat(k) != 0;
    counts.flat(p) = N(static_cast<double>(n));
  }
});

const bool nonzero_reference = register_reference<NonzeroArgs>([](const NonzeroArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.index(a.x);
  auto& out = io.out(a.out);
  int64_t row = 0;
  for (int64_t k = 0; k < a.x.numel(); ++k) {
    if (x.flat(k) == 0) continue;
    int64_t rest = k;
    for (int axis = a.x.size.rank - 1; axis >= 0; --axis) {
      out.flat(row * a.x.size.rank + axis) = N(static_cast<double>(rest % a.x.size[axis]));
      rest /= a.x.size[axis];
    }
    ++row;
  }
});

Tensor ids(const std::vector<int32_t>& v, const Dims& size) { return to(Tensor::from(v, size), test_device()); }
Tensor ids(const std::vector<int32_t>& v) { return ids(v, Dims(static_cast<int64_t>(v.size()))); }
Tensor mask(const std::vector<int32_t>& v, const Dims& size) { return to(ids(v, size), DType::kBool); }
Tensor count_up(const Dims& size) {
  std::vector<float> v(static_cast<size_t>(size.numel()));
  std::iota(v.begin(), v.end(), 0.0f);
  return to(Tensor::from(v, size), test_device());
}

TEST(Indexing, BasicIndicesAreViews) {
  const Tensor x = count_up(Dims(4, 3, 5));
  const auto expect = [&](const std::vector<Index>& at, const Dims& size, const Dims& stride, int64_t offset) {
    const Tensor y = index(x, at);
    EXPECT_EQ(y.sizes(), size);
    EXPECT_EQ(y.strides(), stride);
    EXPECT_EQ(y.storage_offset(), offset);
    EXPECT_TRUE(y.shares_storage(x));
  };
  expect({0}, Dims(3, 5), Dims(5, 1), 0);
  expect({-1, 2}, Dims(5), Dims(1), 55);
  expect({Slice(), 1}, Dims(4, 5), Dims(15, 1), 5);
  expect({Slice(1, {}, 2)}, Dims(2, 3, 5), Dims(30, 5, 1), 15);
  expect({Slice({}, {}, 3), Slice(-2, 100)}, Dims(2, 2, 5), Dims(45, 5, 1), 5);
  expect({kEllipsis, 3}, Dims(4, 3), Dims(15, 5), 3);
  expect({kEllipsis}, Dims(4, 3, 5), Dims(15, 5, 1), 0);
  expect({0, kEllipsis, kNone}, Dims(3, 5, 1), Dims(5, 1, 1), 0);
  expect({kNone, 1, kNone, 2}, Dims(1, 1, 5), Dims(60, 15, 1), 25);
  expect({0, 0, 0}, Dims(), Dims(), 0);
  expect({Slice(3, 1)}, Dims(0, 3, 5), Dims(15, 5, 1), 0);
  expect({Slice(-100, 2, 5)}, Dims(1, 3, 5), Dims(75, 5, 1), 0);
}

// The shapes and values of PyTorch 2: integers are no arrays.
TEST(Indexing, WhereTheAxesOfArraysGo) {
  const Tensor x = count_up(Dims(2, 3, 4));
  const Tensor a = ids({0, 1});
  const auto expect = [&](const std::vector<Index>& at, const Dims& size, const V& values) {
    const Tensor y = index(x, at);
    EXPECT_EQ(y.sizes(), size);
    EXPECT_EQ(y.to_vector(), values);
  };
  expect({0, Slice(), a}, Dims(3, 2), {0, 1, 4, 5, 8, 9});
  expect({Slice(), 0, a}, Dims(2, 2), {0, 1, 12, 13});
  expect({a, Slice(), a}, Dims(2, 3), {0, 4, 8, 13, 17, 21});
  expect({a, a}, Dims(2, 4), {0, 1, 2, 3, 16, 17, 18, 19});
  expect({Slice(), a, a}, Dims(2, 2), {0, 5, 12, 17});
  expect({a, kNone, a}, Dims(2, 1, 4), {0, 1, 2, 3, 16, 17, 18, 19});
  expect({ids({1}, Dims()), Slice(), a}, Dims(3, 2), {12, 13, 16, 17, 20, 21});
  expect({a, 0, a}, Dims(2), {0, 13});
  expect({ids({0, 1}, Dims(2, 1)), ids({0, 2, 1}), 3}, Dims(2, 3), {3, 11, 7, 15, 23, 19});
  expect({Slice(1), ids({2, -3})}, Dims(1, 2, 4), {20, 21, 22, 23, 12, 13, 14, 15});
  expect({std::vector<int64_t>{1, 1}, Slice({}, {}, 2), 1}, Dims(2, 2), {13, 21, 13, 21});
  expect({mask({0, 1}, Dims(2))}, Dims(1, 3, 4), {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  expect({Slice(), mask({1, 0, 1}, Dims(3)), 0}, Dims(2, 2), {0, 8, 12, 20});
  expect({mask({1, 0, 0, 0, 1, 1}, Dims(2, 3)), 2}, Dims(3), {2, 18, 22});
  expect({mask({1, 1}, Dims(2)), Slice(), ids({0, 3})}, Dims(2, 3), {0, 4, 8, 15, 19, 23});
  expect({true, 1, 1, 1}, Dims(1), {17});
  EXPECT_EQ(index(x, {false}).sizes(), Dims(0, 2, 3, 4));
  EXPECT_EQ(index(x, {Slice(), std::vector<int64_t>{}}).sizes(), Dims(2, 0, 4));
  EXPECT_EQ(index(x, {to(a, DType::kI64), to(a, DType::kI64), a}).to_vector(), (V{0, 17}));
}

TEST(Indexing, Gradients) {
  struct Case {
    const char* name;
    Dims size;
    std::vector<Index> at;
  };
  const Case cases[] = {
      {"int", Dims(3, 4), {1}},
      {"steps", Dims(5, 7), {Slice(1, {}, 2), Slice({}, -1, 3)}},
      {"none and ellipsis", Dims(2, 3, 4), {kNone, kEllipsis, 2}},
      {"all", Dims(2, 3), {kEllipsis}},
      {"nothing", Dims(4, 3), {Slice(2, 2)}},
      {"ids", Dims(5, 3), {ids({4, 0, -1, 0})}},
      {"ids in the middle", Dims(2, 5, 3), {Slice(), ids({4, 0, 0, 1}, Dims(2, 2))}},
      {"two arrays", Dims(4, 5, 3), {ids({3, 0, 3, -4}), ids({1, 2, 1, 2})}},
      {"arrays apart", Dims(4, 5, 3), {ids({3, 0, 3}), Slice(1, 4), ids({1, 2, 1})}},
      {"arrays of columns", Dims(2, 4, 5), {1, ids({0, 3}, Dims(2, 1)), ids({4, 1, 1})}},
      {"mask", Dims(2, 3), {mask({1, 0, 1, 1, 0, 0}, Dims(2, 3))}},
      {"mask of columns", Dims(4, 3), {kEllipsis, mask({1, 0, 1}, Dims(3))}},
      {"no ids", Dims(4, 3), {std::vector<int64_t>{}}},
      {"long", Dims(700), {ids(std::vector<int32_t>(600, 3))}},
  };
  for (const Case& c : cases)
    run_op_case({std::string("index by ") + c.name, {{c.size}}, [&](const auto& x) { return index(x[0], c.at); }});
  run_op_case({"index of a function, twice", {{Dims(4, 3)}}, [](const auto& x) {
                 const Tensor y = square(x[0]);
                 return add(index(y, {ids({1, 1})}), index(y, {Slice(2)}));
               }});
  run_op_case({"index of a transposed view", {{Dims(4, 3)}}, [](const auto& x) {
                 return index(transpose(x[0], 0, 1), {ids({1, 1, 2}), ids({3, 0, 3})});
               }});
}

TEST(Indexing, Errors) {
  const Tensor x = Tensor::empty(Dims(2, 3));
  const auto expect_index = [&](const std::vector<Index>& at, const std::string& part) {
    expect_error([&] { index(x, at); }, part);
    try {
      index(x, at);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kIndex) << part;
    }
  };
  const auto host = [](const std::vector<int32_t>& v) { return Tensor::from(v, Dims(static_cast<int64_t>(v.size()))); };
  expect_index({5}, "index: index 5 is out of bounds for dimension 0 with size 2");
  expect_index({0, -4}, "index: index -4 is out of bounds for dimension 1 with size 3");
  expect_index({0, 0, 0}, "too many indices for tensor of dimension 2");
  expect_index({host({0, 5})}, "index: index 5 is out of bounds for dimension 0 with size 2");
  expect_index({Slice(), host({0, 1, -4})}, "index: index -4 is out of bounds for dimension 1 with size 3");
  expect_index({host({0, 1}), host({0, 1, 2})}, "could not be broadcast together with shapes (2,), (3,)");
  expect_index({to(host({1}), DType::kBool)}, "the shape of the mask (1,) at index 0 does not match");
  expect_index({x}, "tensors used as indices must be i32, i64 or bool tensors, not f32");
  expect_error([&] { index(x, {Slice({}, {}, -1)}); }, "slice step must be greater than zero");
  expect_error([&] { index(x, {Tensor()}); }, "an index is missing");
  expect_error([&] { index(x, {kNone, kNone, kNone, kNone, kNone, kNone, kNone}); }, "more than 8 axes");
  const Tensor meta = Tensor::empty(Dims(2, 3), DType::kF32, kMetaCpu);
  expect_error([&] { index(meta, {Tensor::empty(Dims(2), DType::kBool, kMetaCpu)}); }, "depends on values");
  EXPECT_EQ(index(meta, {host({0, 1, 1})}).sizes(), Dims(3, 3));
  EXPECT_EQ(index(Tensor::empty(Dims(0, 3)), {Slice(), 1}).sizes(), Dims(0));
}

TEST(Indexing, EveryDType) {
  for (const DType dtype : {DType::kI64, DType::kI16, DType::kU8, DType::kF16, DType::kBool}) {
    const Tensor x = to(mask({1, 0, 1}, Dims(3)), dtype);
    EXPECT_EQ(index(x, {ids({-1, 1})}).to_vector(), (V{1, 0}));
    Tensor y = to(count_up(Dims(3)), dtype);
    if (dtype == DType::kBool) continue;
    index_put_(y, {ids({0, 0})}, 2.0, true);
    EXPECT_EQ(y.to_vector(), (V{4, 1, 2}));
  }
}

TEST(IndexPut, Values) {
  Tensor x = count_up(Dims(3, 4));
  index_put_(x, {0}, 9.0);
  index_put_(x, {Slice(1), Slice({}, {}, 2)}, to(Tensor::from(std::vector<float>{-1, -2}, Dims(2)), test_device()));
  EXPECT_EQ(x.to_vector(), (V{9, 9, 9, 9, -1, 5, -2, 7, -1, 9, -2, 11}));
  index_put_(x, {ids({2, 0, 2}), ids({3, 3, 3})},
             to(Tensor::from(std::vector<float>{1, 2, 3}, Dims(3)), test_device()));
  EXPECT_EQ(index(x, {Slice(), 3}).to_vector(), (V{2, 7, 3}));
  index_put_(x, {ids({0, 0, 1}), Slice(1, 3)}, 10.0, true);
  EXPECT_EQ(index(x, {Slice({}, 2)}).to_vector(), (V{9, 29, 29, 2, -1, 15, 8, 7}));
  index_put_(x, {mask({1, 0, 1}, Dims(3))}, index(x, {1}));
  EXPECT_EQ(x.to_vector(), (V{-1, 15, 8, 7, -1, 15, 8, 7, -1, 15, 8, 7}));
  // Read and write overlap: what is read is as it was.
  Tensor y = count_up(Dims(5));
  index_put_(y, {Slice(1)}, index(y, {Slice({}, -1)}));
  EXPECT_EQ(y.to_vector(), (V{0, 0, 1, 2, 3}));
  // Through a view with steps, arrays apart.
  Tensor z = count_up(Dims(2, 3, 4)), seen = transpose(z, 0, 2);
  index_put_(seen, {ids({3, 0}), Slice(), ids({0, 1})}, 0.0);
  EXPECT_EQ(index(z, {0}).to_vector(), (V{0, 1, 2, 0, 4, 5, 6, 0, 8, 9, 10, 0}));
  EXPECT_EQ(index(z, {1, Slice(), 0}).to_vector(), (V{0, 0, 0}));
}

TEST(IndexPut, Gradients) {
  for (const bool accumulate : {false, true}) {
    const auto put = [accumulate](Tensor y, const std::vector<Index>& at, const Tensor& value) {
      y = square(y);
      return square(index_put_(y, at, value, accumulate));
    };
    run_op_case({"put a row", {{Dims(3, 4)}, {Dims(4)}}, [&](const auto& x) { return put(x[0], {-1}, x[1]); }});
    run_op_case({"put in steps", {{Dims(5, 4)}, {Dims(1, 1, 3, 1)}}, [&](const auto& x) {
                   return put(x[0], {Slice({}, {}, 2), Slice(1, 3)}, x[1]);
                 }});
    run_op_case({"put by arrays", {{Dims(4, 5)}, {Dims(3)}}, [&](const auto& x) {
                   return put(x[0], {ids({3, 0, -1}), ids({1, 2, 0})}, x[1]);
                 }});
    run_op_case({"put by arrays apart", {{Dims(4, 2, 5)}, {Dims(3, 2)}}, [&](const auto& x) {
                   return put(x[0], {ids({3, 0, 1}), Slice(), ids({1, 2, 4})}, x[1]);
                 }});
    run_op_case({"put by a mask", {{Dims(2, 3)}, {Dims(1)}}, [&](const auto& x) {
                   return put(x[0], {mask({1, 0, 1, 0, 0, 1}, Dims(2, 3))}, x[1]);
                 }});
    run_op_case({"put a number", {{Dims(2, 3)}, {Dims()}}, [&](const auto& x) {
                   return put(x[0], {Slice(), ids({1, 2})}, x[1]);
                 }});
  }
  run_op_case({"put into what needs no gradient", {{Dims(2)}}, [](const auto& x) {
                 Tensor y = Tensor::empty(Dims(3, 2), x[0].dtype(), x[0].device());
                 fill_(y, 1.0);
                 return square(index_put_(y, {1}, x[0]));
               }});
}

TEST(IndexPut, Errors) {
  Tensor x = Tensor::empty(Dims(2, 3)), two = Tensor::empty(Dims(2));
  const auto host = [](const std::vector<int32_t>& v) { return Tensor::from(v, Dims(static_cast<int64_t>(v.size()))); };
  expect_error([&] { index_put_(x, {0}, two); },
               "value tensor of shape (2,) cannot be broadcast to indexing result of shape (3,)");
  expect_error([&] { index_put_(x, {host({0, 1, 1})}, two); }, "indexing result of shape (3, 3)");
  expect_error([&] { index_put_(x, {host({0, 1})}, to(two, DType::kF64)); }, "source and destination dtypes match");
  expect_error([&] { index_put_(x, {host({2})}, 0.0); },
               "index_put_: index 2 is out of bounds for dimension 0 with size 2");
  Tensor leaf = Tensor::empty(Dims(3)).set_requires_grad();
  expect_error([&] { index_put_(leaf, {0}, 1.0); }, "a leaf tensor that requires grad is being used in an in-place");
  {
    NoGrad quiet;
    index_put_(leaf, {0}, 1.0);
    EXPECT_EQ(leaf.to_vector()[0], 1);
  }
  Tensor wide = broadcast_to(Tensor::empty(Dims(1)), Dims(3));
  expect_error([&] { index_put_(wide, {0}, 1.0); }, "refers to a single memory location");
}

TEST(Nonzero, PlacesInOrder) {
  VerifyLaunches verify;
  const Tensor x = mask({0, 1, 1, 0, 0, 1}, Dims(2, 3));
  const Tensor y = nonzero(x);
  EXPECT_EQ(y.sizes(), Dims(3, 2));
  EXPECT_EQ(y.dtype(), DType::kI64);
  EXPECT_EQ(y.to_vector(), (V{0, 1, 0, 2, 1, 2}));
  EXPECT_EQ(nonzero(transpose(x, 0, 1)).to_vector(), (V{1, 0, 2, 0, 2, 1}));
  EXPECT_EQ(nonzero(to(Tensor::from(std::vector<float>{0, -0.0f, NAN, 0.5f}, Dims(4)), test_device())).to_vector(),
            (V{2, 3}));
  EXPECT_EQ(nonzero(mask({0, 0}, Dims(2))).sizes(), Dims(0, 1));
  EXPECT_EQ(nonzero(Tensor::empty(Dims(0, 3), DType::kBool, test_device())).sizes(), Dims(0, 2));
  EXPECT_EQ(nonzero(mask({1}, Dims())).sizes(), Dims(1, 0));
  std::vector<int32_t> many(40000);  // several pieces
  for (size_t i = 0; i < many.size(); ++i) many[i] = i % 7 == 0 || i > 39000;
  EXPECT_EQ(nonzero(mask(many, Dims(200, 200))).size(0), 5715 + 999 - 143);
}

TEST(Nonzero, AVectorAnAxis) {
  const Tensor x = mask({0, 1, 1, 0, 0, 1}, Dims(2, 3));
  const std::vector<Tensor> at = where(x);
  ASSERT_EQ(at.size(), 2u);
  EXPECT_EQ(at[0].to_vector(), (V{0, 0, 1}));
  EXPECT_EQ(at[1].to_vector(), (V{1, 2, 2}));
  EXPECT_EQ(index(x, {at[0], at[1]}).to_vector(), (V{1, 1, 1}));
  EXPECT_EQ(argwhere(x).to_vector(), nonzero(x).to_vector());
  const std::vector<Tensor> scalar = where(mask({1}, Dims()));  // as of shape (1,)
  ASSERT_EQ(scalar.size(), 1u);
  EXPECT_EQ(scalar[0].to_vector(), (V{0}));
  EXPECT_EQ(nonzero_tuple(Tensor::empty(Dims(0, 2, 3), DType::kI32, test_device())).size(), 3u);
  expect_error([] { where(Tensor::empty(Dims(2), DType::kBool, kMetaCpu)); },
               "the result's size depends on values, which a meta:cpu tensor has not");
}

TEST(Nonzero, MaskedSelect) {
  run_op_case({"masked_select", {{Dims(2, 3)}}, [](const auto& x) {
                 return masked_select(x[0], mask({0, 1, 1, 0, 0, 1}, Dims(2, 3)));
               }});
  run_op_case({"masked_select of rows", {{Dims(2, 3)}}, [](const auto& x) {
                 return masked_select(x[0], mask({0, 1, 1}, Dims(3)));
               }});
  run_op_case({"masked_select broadcast", {{Dims(3)}}, [](const auto& x) {
                 return masked_select(x[0], mask({0, 1, 1, 0, 0, 1}, Dims(2, 3)));
               }});
  run_op_case(
      {"masked_select of a number", {{Dims()}}, [](const auto& x) { return masked_select(x[0], mask({1}, Dims())); }});
  expect_error([] { masked_select(Tensor::empty(Dims(2)), Tensor::empty(Dims(2))); }, "expected a bool mask, not f32");
}

}  // namespace
}  // namespace tally::test
