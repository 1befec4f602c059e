// Gradients of bf16 parameters: kept in f32 by every op, and summed there over uses and micro-batches.
#include "tally/ops/backward.h"

#include <functional>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/gather.h"
#include "tally/ops/linear_cross_entropy.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor bf16_of(const V& values, const Dims& size) {
  Tensor t = Tensor::empty(size, DType::kBF16, test_device());
  copy_(t, to(Tensor::from(values, size), test_device()));
  return t;
}

// A parameter p of two numbers in y = f(p), whose gradient is dy, of y's shape, with some signs and sums.
struct Use {
  const char* name;
  Dims parameter, y;
  std::function<Tensor(const Tensor& p)> f;
};

std::vector<Use> uses() {
  const auto ids = [] { return to(Tensor::from(std::vector<int32_t>{1}, Dims(1)), test_device()); };
  const Tensor one = bf16_of({1}, Dims(1, 1)), signs = bf16_of({1, -1}, Dims(1, 2));
  return {
      {"linear, weight", Dims(2, 1), Dims(1, 2), [=](const Tensor& p) { return linear(one, p); }},
      {"linear, bias", Dims(2), Dims(1, 2),
       [=](const Tensor& p) {
         return linear(one, bf16_of({1, 1}, Dims(2, 1)), p);
       }},
      {"linear, input", Dims(2, 1), Dims(2, 1), [=](const Tensor& p) { return linear(p, one); }},
      {"matmul", Dims(1, 2), Dims(1, 2), [=](const Tensor& p) { return matmul(one, p); }},
      {"matmul, broadcast", Dims(1, 2), Dims(3, 1, 2),
       [=](const Tensor& p) {
         return matmul(bf16_of({1, 1, 1}, Dims(3, 1, 1)), p);
       }},
      {"layer_norm, weight", Dims(2), Dims(1, 2), [=](const Tensor& p) { return layer_norm(signs, p, {}, 0); }},
      {"layer_norm, bias", Dims(2), Dims(1, 2), [=](const Tensor& p) { return layer_norm(signs, {}, p, 0); }},
      {"rms_norm, weight", Dims(2), Dims(1, 2), [=](const Tensor& p) { return rms_norm(signs, p, 0); }},
      {"embedding", Dims(2, 2), Dims(1, 2), [=](const Tensor& p) { return embedding(ids(), p); }},
      {"index_select", Dims(2, 2), Dims(1, 2), [=](const Tensor& p) { return index_select(p, 0, ids()); }},
      {"slice", Dims(2, 2), Dims(1, 2), [=](const Tensor& p) { return slice(p, 0, 1, 2); }},
      {"expand", Dims(2), Dims(3, 2), [=](const Tensor& p) { return expand(p, Dims(3, 2)); }},
      {"add of a row", Dims(2), Dims(1, 2), [=](const Tensor& p) { return add(signs, p); }},
      {"neg", Dims(2), Dims(2), [=](const Tensor& p) { return neg(p); }},
      {"to f32", Dims(2), Dims(2), [=](const Tensor& p) { return to(p, DType::kF32); }},
      {"twice", Dims(2), Dims(2), [=](const Tensor& p) { return add(p, p); }},
      {"itself", Dims(2), Dims(2), [=](const Tensor& p) { return p; }},
  };
}

void run(const Use& use, const Tensor& parameter, double gradient) {
  const Tensor y = use.f(parameter);
  ASSERT_EQ(y.sizes(), use.y) << use.name;
  Tensor dy = Tensor::empty(y.sizes(), y.dtype(), y.device());
  fill_(dy, gradient);
  backward(y, dy);
}

// 1 and 63 times 2^-9: each alone is exact in bf16, the sum is not, and 1 + 2^-9 is 1.
TEST(GradientsOfBf16, SmallOnesAreNotLost) {
  for (const Use& use : uses()) {
    Tensor p = bf16_of(V(static_cast<size_t>(use.parameter.numel()), 0.5), use.parameter).set_requires_grad();
    run(use, p, 1);
    const V unit = p.grad().to_vector();
    for (int i = 0; i < 63; ++i) run(use, p, 0x1p-9);
    EXPECT_EQ(p.grad().dtype(), DType::kF32) << use.name;
    EXPECT_EQ(p.grad().category(), Category::kGradient) << use.name;
    V want = unit, narrow = unit;
    bool lost = false;
    for (size_t k = 0; k < unit.size(); ++k) {
      want[k] *= 1 + 63 * 0x1p-9;
      for (int i = 0; i < 63; ++i) narrow[k] = to_float(to_bf16(static_cast<float>(narrow[k] + unit[k] * 0x1p-9)));
      lost = lost || std::abs(narrow[k] - want[k]) > 0.1 * std::abs(want[k]);
    }
    EXPECT_EQ(p.grad().to_vector(), want) << use.name;
    EXPECT_TRUE(lost) << use.name << ": the case shows nothing";
  }
}

// What is no parameter keeps the dtype of its tensor: activations are not widened.
TEST(GradientsOfBf16, OfActivationsStayNarrow) {
  Tensor p = bf16_of({1, 2}, Dims(2, 1)).set_requires_grad();
  const Tensor hidden = neg(p), x = bf16_of({3}, Dims(1, 1));
  Tensor y = linear(x, hidden);
  DType seen = DType::kF64;
  static DType* slot;
  slot = &seen;
  Tensor z = y.detach();
  record(z, {y}, {}, [](Backward& b) {
    *slot = b.gradient_dtype(0);
    b.add(0, b.take_grad());
  });
  backward(z, bf16_of({1, 1}, Dims(1, 2)));
  EXPECT_EQ(seen, DType::kBF16);
  EXPECT_EQ(p.grad().dtype(), DType::kF32);
  EXPECT_EQ(p.grad().to_vector(), (V{-3, -3}));
}

TEST(GradientsOfBf16, AreAddedToF32AsTheyAre) {
  Tensor wide = Tensor::from(std::vector<float>{1, 2}, Dims(2));
  Tensor narrow = Tensor::empty(Dims(2), DType::kBF16);
  fill_(narrow, 1);
  add_(wide, narrow);
  EXPECT_EQ(wide.to_vector(), (V{2, 3}));
}

}  // namespace
}  // namespace tally::test
