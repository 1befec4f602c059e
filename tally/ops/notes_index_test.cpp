// The course notes' lines on products, and the traps of indexing and masked attention.
#include <cmath>
#include <limits>

#include "tally/core/device.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/gather.h"
#include "tally/ops/indexing.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/scatter.h"
#include "tally/ops/sdpa.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor ones(const Dims& size) {
  Tensor t = Tensor::empty(size, DType::kF32, test_device());
  fill_(t, 1.0);
  return t;
}
Tensor floats(const std::vector<float>& v, const Dims& size) { return to(Tensor::from(v, size), test_device()); }
void expect_all(const Tensor& y, const Dims& size, double value) {
  EXPECT_EQ(y.sizes(), size);
  for (const double v : y.to_vector()) ASSERT_EQ(v, value);
}

TEST(Notes, A074_ElementOneTwo) {
  std::vector<float> v(16);
  for (int i = 0; i < 16; ++i) v[static_cast<size_t>(i)] = static_cast<float>(i);
  EXPECT_EQ(index(floats(v, Dims(4, 4)), {1, 2}).item(), 6);
}

TEST(Notes, A075_ValueTenAtTwoTwo) {
  std::vector<float> v(16);
  for (int i = 0; i < 16; ++i) v[static_cast<size_t>(i)] = static_cast<float>(i);
  const Tensor y = index(floats(v, Dims(4, 4)), {2, 2});
  EXPECT_EQ(y.item(), 10);
  EXPECT_EQ(y.storage_offset(), 10);
}

TEST(Notes, A081_ARowIsAView) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, Dims(2, 3)), y = index(x, {0});
  EXPECT_EQ(y.to_vector(), (V{1, 2, 3}));
  EXPECT_TRUE(y.shares_storage(x));
  EXPECT_EQ(y.strides(), Dims(1));
  EXPECT_EQ(y.storage_offset(), 0);
}

TEST(Notes, A082_AColumnIsAView) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, Dims(2, 3)), y = index(x, {Slice(), 1});
  EXPECT_EQ(y.to_vector(), (V{2, 5}));
  EXPECT_TRUE(y.shares_storage(x));
  EXPECT_EQ(y.sizes(), Dims(2));
  EXPECT_EQ(y.strides(), Dims(3));
  EXPECT_EQ(y.storage_offset(), 1);
}

TEST(Notes, A086_AWriteIsSeenThroughTheTranspose) {
  Tensor x = floats({1, 2, 3, 4, 5, 6}, Dims(2, 3));
  const Tensor y = transpose(x, 1, 0);
  index_put_(x, {0, 0}, 100.0);
  EXPECT_EQ(index(y, {0, 0}).item(), 100);
}

TEST(Notes, A087_WritesAreSeenBothWays) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, Dims(2, 3));
  Tensor y = view(x, Dims(3, 2)), row = index(x, {1});
  index_put_(y, {0, 1}, -1.0);
  index_put_(row, {2}, -2.0);
  EXPECT_EQ(x.to_vector(), (V{1, -1, 3, 4, 5, -2}));
  EXPECT_EQ(y.to_vector(), (V{1, -1, 3, 4, 5, -2}));
}

TEST(Notes, A108_ProductOfOnes) { expect_all(matmul(ones(Dims(16, 32)), ones(Dims(32, 2))), Dims(16, 2), 32); }

TEST(Notes, A109_OneMatrixForAllLeadingItems) {
  const Tensor x = ones(Dims(4, 8, 16, 32)), w = ones(Dims(32, 2));
  LedgerGuard guard;
  const Tensor y = matmul(x, w);
  expect_all(y, Dims(4, 8, 16, 2), 32);
  EXPECT_EQ(guard.ledger().cost().bytes_read, (x.numel() + w.numel()) * 4);  // read once, not 32 times
}

TEST(Notes, A110_TheMatrixIsBroadcastNotOneAToken) {
  const Tensor x = to(random_tensor({Dims(2, 3, 4, 8)}, DType::kF32, 1), test_device());
  const Tensor w = to(random_tensor({Dims(8, 2)}, DType::kF32, 2), test_device());
  const V all = matmul(x, w).to_vector();
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) {
      const V one = matmul(index(x, {i, j}), w).to_vector();
      for (size_t k = 0; k < one.size(); ++k) EXPECT_NEAR(one[k], all[static_cast<size_t>(i * 3 + j) * 8 + k], 1e-6);
    }
}

TEST(Notes, A111_ProductWithTheTranspose) {
  const Tensor x = ones(Dims(2, 2, 3));
  expect_all(matmul(x, transpose(x, -2, -1)), Dims(2, 2, 2), 3);
}

TEST(Notes, A112_ProductWithTheTransposeOfFour) {
  const Tensor x = ones(Dims(2, 3, 4));
  expect_all(matmul(x, transpose(x, -2, -1)), Dims(2, 3, 3), 4);
}

TEST(Notes, A113_NegativeAxesCountFromTheEnd) {
  const Tensor x = to(random_tensor({Dims(2, 3, 4)}, DType::kF32, 1), test_device());
  EXPECT_EQ(transpose(x, -2, -1).sizes(), Dims(2, 4, 3));
  EXPECT_EQ(transpose(x, -2, -1).to_vector(), transpose(x, 1, 2).to_vector());
  EXPECT_EQ(index(x, {-1, -1, -1}).item(), index(x, {1, 2, 3}).item());
}

TEST(Notes, A114_RowsAreColumnSumsOfW) {
  const Tensor w = to(random_tensor({Dims(256, 64)}, DType::kF32, 1), test_device());
  const Tensor y = matmul(ones(Dims(1024, 256)), w);
  EXPECT_EQ(y.sizes(), Dims(1024, 64));
  const V sums = sum(w, Dims(0)).to_vector(), got = y.to_vector();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], sums[i % 64], 1e-4);
}

TEST(Notes, A115_TheProductBelongsWhereItsOperandsAre) {
  const auto product = [] {
    const Tensor x = ones(Dims(16, 32)), w = ones(Dims(32, 2));
    return matmul(x, w);
  };
  expect_all(product(), Dims(16, 2), 32);
}

TEST(Traps, O04_FullyMaskedRows) {
  const std::vector<float> eye = {1, 0, 0, 1};
  Tensor q = floats(eye, Dims(2, 2)).set_requires_grad(), k = floats(eye, Dims(2, 2)).set_requires_grad();
  Tensor v = floats({1, 2, 3, 4}, Dims(2, 2)).set_requires_grad();
  const Tensor mask = to(to(Tensor::from(std::vector<int32_t>{1, 0, 0, 0}, Dims(2, 2)), test_device()), DType::kBool);
  const Tensor y = scaled_dot_product_attention(q, k, v, mask);
  EXPECT_EQ(y.to_vector(), (V{1, 2, 0, 0}));
  backward(sum(y));
  for (const Tensor& t : {q, k, v})
    for (const double g : t.grad().to_vector()) EXPECT_TRUE(std::isfinite(g));
  EXPECT_EQ(v.grad().to_vector(), (V{1, 1, 0, 0}));
  for (int n = 1; n <= 300; ++n) {
    Tensor row = Tensor::empty(Dims(n), DType::kF32, test_device());
    fill_(row, -std::numeric_limits<double>::infinity());
    for (const double p : softmax(row).to_vector()) ASSERT_EQ(p, 0) << n;
  }
}

TEST(Traps, O07_ProductsOfZeroSizes) {
  const auto e = [](auto... n) { return Tensor::empty(Dims(n...), DType::kF32, test_device()); };  // full of NaN
  expect_all(matmul(e(3, 2, 0), e(3, 0, 3)), Dims(3, 2, 3), 0);
  EXPECT_EQ(linear(e(2, 0), e(3, 0), floats({1, 2, 3}, Dims(3))).to_vector(), (V{1, 2, 3, 1, 2, 3}));
  expect_all(matmul(e(3, 0, 0), e(0, 0)), Dims(3, 0, 0), 0);
  expect_all(matmul(e(2, 1, 3, 0), e(4, 0, 5)), Dims(2, 4, 3, 5), 0);
  expect_all(matmul(e(0, 3), e(3, 4)), Dims(0, 4), 0);
  expect_all(matmul(e(2, 0, 3, 4), e(4, 5)), Dims(2, 0, 3, 5), 0);
}

// On a card the error comes where the host waits (core/fault.h), and the card works on.
TEST(Traps, O11_NegativeIds) {
  const Tensor table = ones(Dims(8, 3));
  const auto ids = [](std::vector<int32_t> v) {
    return to(Tensor::from(v, Dims(static_cast<int64_t>(v.size()))), test_device());
  };
  for (const std::vector<int32_t>& v : {std::vector<int32_t>{0, -1}, std::vector<int32_t>{8}}) {
    const Tensor at = ids(v);
    for (const auto& f : {std::function<void()>([&] { embedding(at, table); }),
                          std::function<void()>([&] { index_select(table, 0, at); })})
      try {
        f();
        synchronize(test_device());
        ADD_FAILURE() << "no error";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind, ErrorKind::kIndex) << e.what();
      }
  }
  expect_all(embedding(ids({7}), table), Dims(1, 3), 1);
  // An index expression counts from the end, as PyTorch's, and refuses what is outside on a card too.
  EXPECT_EQ(index(table, {ids({0, -1})}).sizes(), Dims(2, 3));
  expect_error([&] { index(table, {ids({8})}); }, "index 8 is out of bounds for dimension 0 with size 8");
  expect_error([&] { index(table, {ids({0, -9})}); }, "index -9 is out of bounds for dimension 0 with size 8");
}

}  // namespace
}  // namespace tally::test
