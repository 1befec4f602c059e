#include "tally/ops/sdpa.h"

#include <cmath>

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

Tensor mask(const std::vector<int32_t>& v, const Dims& size) {
  return to(to(Tensor::from(v, size), test_device()), DType::kBool);
}

// Triangle of L queries and S keys.
Tensor triangle(int64_t rows, int64_t columns) {
  std::vector<int32_t> v;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) v.push_back(j <= i);
  return mask(v, Dims(rows, columns));
}

void run(OpCase c) {
  c.library_on_card = true;
  c.grad_tolerance = 1e-5;
  run_op_case(c);
}

TEST(Sdpa, WithoutMask) {
  run({"sdpa", {{Dims(2, 3, 5, 4)}, {Dims(2, 3, 7, 4)}, {Dims(2, 3, 7, 4)}}, [](const auto& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2]);
       }});
  run({"sdpa of one head", {{Dims(5, 4)}, {Dims(7, 4)}, {Dims(7, 4)}}, [](const auto& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2], {}, false, 0.7);
       }});
  run({"sdpa, other size of v", {{Dims(2, 5, 4)}, {Dims(2, 7, 4)}, {Dims(2, 7, 3)}}, [](const auto& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2]);
       }});
  run({"sdpa, heads in groups", {{Dims(2, 4, 3, 4)}, {Dims(2, 2, 5, 4)}, {Dims(2, 2, 5, 4)}}, [](const auto& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2], {}, false, {}, true);
       }});
}

TEST(Sdpa, Causal) {
  for (const auto& [tq, tk] : {std::pair<int64_t, int64_t>{4, 4}, {3, 6}, {6, 3}})
    run({"causal sdpa", {{Dims(2, 2, tq, 4)}, {Dims(2, 2, tk, 4)}, {Dims(2, 2, tk, 4)}}, [](const auto& x) {
           return scaled_dot_product_attention(x[0], x[1], x[2], {}, true);
         }});
}

TEST(Sdpa, Masks) {
  run({"sdpa with a mask", {{Dims(2, 2, 3, 4)}, {Dims(2, 2, 4, 4)}, {Dims(2, 2, 4, 4)}}, [](const auto& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2], mask({1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0}, Dims(3, 4)));
       }});
  run({"sdpa with numbers added",
       {{Dims(2, 3, 4)}, {Dims(2, 5, 4)}, {Dims(2, 5, 4)}, {Dims(2, 1, 5)}},
       [](const auto& x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); }});
  run({"sdpa with a mask and groups", {{Dims(2, 4, 3, 4)}, {Dims(2, 2, 3, 4)}, {Dims(2, 2, 3, 4)}}, [](const auto& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2], triangle(3, 3), false, {}, true);
       }});
}

// One path and the other: fused and composed.
TEST(Sdpa, CausalIsTheTriangle) {
  for (const auto& [tq, tk] : {std::pair<int64_t, int64_t>{5, 5}, {3, 6}, {6, 3}}) {
    const auto input = [](const Dims& size, uint64_t seed) {
      return to(random_tensor({size}, DType::kF32, seed), test_device());
    };
    const Tensor q = input(Dims(2, 4, tq, 8), 1), k = input(Dims(2, 2, tk, 8), 2), v = input(Dims(2, 2, tk, 8), 3);
    const std::vector<double> a = scaled_dot_product_attention(q, k, v, {}, true, {}, true).to_vector();
    const std::vector<double> b = scaled_dot_product_attention(q, k, v, triangle(tq, tk), false, {}, true).to_vector();
    // no head size for attention(): composed
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << i;
    const Tensor one_k = slice(k, 1, 0, 1), one_v = slice(slice(v, 1, 0, 1), 3, 0, 7);
    const std::vector<double> c = scaled_dot_product_attention(q, one_k, one_v, {}, true).to_vector();
    const std::vector<double> d = scaled_dot_product_attention(q, one_k, one_v, triangle(tq, tk)).to_vector();
    ASSERT_EQ(c.size(), static_cast<size_t>(2 * 4 * tq * 7));
    for (size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], d[i], 1e-5) << i;
  }
}

TEST(Sdpa, Errors) {
  const Tensor x = Tensor::empty(Dims(2, 3, 4), DType::kF32, kCpu);
  expect_error([&] { scaled_dot_product_attention(x, Tensor::empty(Dims(2, 3, 5)), x); }, "do not fit");
  expect_error([&] { scaled_dot_product_attention(x, x, x, to(triangle(3, 3), kCpu), true); }, "give one of them");
  expect_error([&] { scaled_dot_product_attention(x, x, x, Tensor::empty(Dims(3, 3), DType::kI64)); },
               "the mask is bool or of q's dtype f32, not i64");
  expect_error([&] { scaled_dot_product_attention(x, x, x, to(triangle(3, 4), kCpu)); }, "broadcast");
  expect_error([&] { scaled_dot_product_attention(x, x, to(x, DType::kF64)); }, "f32 and f64 differ");
  for (const bool causal : {false, true})
    EXPECT_EQ(scaled_dot_product_attention(Tensor::empty(Dims(2, 3, 0, 4), DType::kF32, kMetaCpu),
                                           Tensor::empty(Dims(2, 3, 5, 4), DType::kF32, kMetaCpu),
                                           Tensor::empty(Dims(2, 3, 5, 4), DType::kF32, kMetaCpu), {}, causal)
                  .sizes(),
              Dims(2, 3, 0, 4));
}

}  // namespace
}  // namespace tally::test
