// f16 through the ops of floats: computed in f32, rounded once on store. Each op in f16 against the same op in f32 on
// the same (widened) inputs, results and gradients; and ops that have no f16.
#include <limits>

#include "tally/core/device.h"
#include "tally/core/ledger.h"
#include "tally/ops/attention.h"
#include "tally/ops/backward.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/gather.h"
#include "tally/ops/linear_cross_entropy.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/op_test.h"
#include "tally/ops/optim_step.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rope.h"
#include "tally/ops/scan.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

struct Outcome {
  std::vector<std::vector<double>> values;  // the result, then the gradients
};

Outcome run_in(const OpCase& c, DType dtype) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    Tensor x = random_tensor(c.inputs[i], DType::kF16, 99 + i);
    if (c.inputs[i].kind != Input::kIndex) x = to(x, dtype);
    inputs.push_back(to(x, test_device()));
    if (c.inputs[i].kind != Input::kIndex) inputs.back().set_requires_grad();
  }
  const Tensor y = c.run(inputs);
  Outcome out{{y.to_vector()}};
  Tensor g = to(to(random_tensor({y.sizes()}, DType::kF16, 5), y.dtype()), test_device());
  backward(y, g);
  for (const Tensor& x : inputs)
    if (x.grad().defined()) out.values.push_back(x.grad().to_vector());
  return out;
}

// The largest difference: a few units of f16's last place of the largest number, as intermediate results are rounded.
void expect_half(const OpCase& c) {
  SCOPED_TRACE(c.name);
  const int64_t damaged = damaged_guards(test_device());
  Outcome half, wide;
  {
    VerifyLaunches verify;
    half = run_in(c, DType::kF16);
  }
  wide = run_in(c, DType::kF32);
  ASSERT_EQ(half.values.size(), wide.values.size());
  for (size_t k = 0; k < half.values.size(); ++k) {
    ASSERT_EQ(half.values[k].size(), wide.values[k].size());
    double largest = 0;
    for (const double x : wide.values[k]) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < half.values[k].size(); ++i)
      ASSERT_NEAR(half.values[k][i], wide.values[k][i], 4 * 0x1p-10 * largest + 1e-7) << "value " << k << " " << i;
  }
  EXPECT_EQ(damaged_guards(test_device()), damaged);
}

TEST(HalfOps, Elementwise) {
  for (int i = 0; i < kUnaryOps; ++i) {
    const auto op = static_cast<UnaryOp>(i);
    for (const Dims& size : {Dims(7), Dims(3, 67), Dims(2, 3, 512), Dims(0, 3)})
      expect_half({kUnaryRows[i].name, {{size, Input::kPositive}}, [op](const std::vector<Tensor>& x) {
                     return unary(op, x[0], 1.5f, -0.25f);
                   }});
  }
  using Op = Tensor (*)(const Tensor&, const Tensor&);
  for (const Op op : {static_cast<Op>(add), static_cast<Op>(sub), static_cast<Op>(mul), static_cast<Op>(div), swiglu})
    expect_half({"pair", {{Dims(5, 33)}, {Dims(5, 33), Input::kPositive}}, [op](const std::vector<Tensor>& x) {
                   return op(x[0], x[1]);
                 }});
  expect_half({"broadcast", {{Dims(4, 5)}, {Dims(5)}}, [](const std::vector<Tensor>& x) { return add(x[0], x[1]); }});
}

TEST(HalfOps, Reductions) {
  for (const Dims& axes : {Dims(), Dims(0), Dims(1), Dims(2), Dims(0, 2)}) {
    expect_half({"sum", {{Dims(3, 5, 70)}}, [axes](const std::vector<Tensor>& x) { return sum(x[0], axes); }});
    expect_half({"mean", {{Dims(3, 5, 70)}}, [axes](const std::vector<Tensor>& x) { return mean(x[0], axes, true); }});
    expect_half({"max", {{Dims(3, 5, 70)}}, [axes](const std::vector<Tensor>& x) { return max(x[0], axes); }});
  }
  // 70,000 ones: beyond f16 in between, rounded once at the end.
  Tensor many = Tensor::empty(Dims(7, 10000), DType::kF16, test_device());
  fill_(many, 0.5);
  EXPECT_EQ(sum(many).item(), 35008);  // 35000 in steps of 32
}

TEST(HalfOps, Products) {
  for (const int64_t m : {1, 3, 40})
    for (const int64_t n : {1, 33, 64})
      for (const int64_t k : {1, 17, 300}) {
        expect_half(
            {"matmul", {{Dims(m, k)}, {Dims(k, n)}}, [](const std::vector<Tensor>& x) { return matmul(x[0], x[1]); }});
        expect_half({"linear", {{Dims(m, k)}, {Dims(n, k)}, {Dims(n)}}, [](const std::vector<Tensor>& x) {
                       return linear(x[0], x[1], x[2]);
                     }});
      }
  expect_half({"batched", {{Dims(2, 1, 8, 24)}, {Dims(3, 24, 16)}}, [](const std::vector<Tensor>& x) {
                 return matmul(x[0], x[1]);
               }});
  expect_half({"transposed", {{Dims(24, 8)}, {Dims(16, 24)}}, [](const std::vector<Tensor>& x) {
                 return matmul(transpose(x[0], 0, 1), transpose(x[1], 0, 1));
               }});
  expect_half({"gelu_tanh_mlp",
               {{Dims(4, 8)}, {Dims(16, 8)}, {Dims(16)}, {Dims(8, 16)}, {Dims(8)}},
               [](const std::vector<Tensor>& x) { return gelu_tanh_mlp(x[0], x[1], x[2], x[3], x[4]); }});
}

TEST(HalfOps, Rows) {
  for (const int64_t n : {1, 5, 64, 1000}) {
    for (const int axis : {0, 1})
      expect_half({"softmax", {{Dims(6, n)}}, [axis](const std::vector<Tensor>& x) { return softmax(x[0], axis); }});
    expect_half({"layer_norm", {{Dims(6, n)}, {Dims(n)}, {Dims(n)}}, [](const std::vector<Tensor>& x) {
                   return layer_norm(x[0], x[1], x[2], 0.1);
                 }});
    expect_half({"rms_norm", {{Dims(6, n)}, {Dims(n)}}, [](const std::vector<Tensor>& x) {
                   return rms_norm(x[0], x[1], 0.1);
                 }});
    expect_half({"residual_rms_norm", {{Dims(6, n)}, {Dims(6, n)}, {Dims(n)}}, [](const std::vector<Tensor>& x) {
                   const ResidualNorm r = residual_rms_norm(x[0], x[1], x[2]);
                   return add(r.y, r.sum);
                 }});
    expect_half({"cross_entropy", {{Dims(6, n)}, {Dims(6), Input::kIndex, n}}, [](const std::vector<Tensor>& x) {
                   return cross_entropy(x[0], x[1]);
                 }});
  }
}

TEST(HalfOps, Indexed) {
  expect_half({"embedding", {{Dims(9, 40)}, {Dims(3, 7), Input::kIndex, 9}}, [](const std::vector<Tensor>& x) {
                 return embedding(x[1], x[0]);
               }});
  expect_half({"embedding of a result",
               {{Dims(9, 40)}, {Dims(70), Input::kIndex, 9}},
               [](const std::vector<Tensor>& x) { return embedding(x[1], neg(x[0])); }});
  expect_half({"index_select", {{Dims(6, 9)}, {Dims(20), Input::kIndex, 6}}, [](const std::vector<Tensor>& x) {
                 return index_select(neg(x[0]), 0, x[1]);
               }});
  expect_half({"linear_cross_entropy",
               {{Dims(300, 8)}, {Dims(10, 8)}, {Dims(300), Input::kIndex, 10}},
               [](const std::vector<Tensor>& x) { return linear_cross_entropy(x[0], x[1], x[2], -100, 256); }});
}

TEST(HalfOps, AttentionRopeAndDropout) {
  expect_half({"dropout", {{Dims(3, 70)}}, [](const std::vector<Tensor>& x) { return dropout(x[0], 0.25f, 1, 2); }});
  for (const RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved})
    expect_half({"rope", {{Dims(2, 5, 3, 8)}}, [style](const std::vector<Tensor>& x) {
                   return rope(x[0], rope_table(9, 8, 10000, 0, x[0].device()), 2, style);
                 }});
  for (const bool causal : {true, false})
    expect_half({"attention",
                 {{Dims(2, 17, 4, 16)}, {Dims(2, 17, 2, 16)}, {Dims(2, 17, 2, 16)}},
                 [causal](const std::vector<Tensor>& x) { return attention(x[0], x[1], x[2], causal); }});
}

TEST(HalfOps, ProductsOfElements) {
  for (const int axis : {0, 1}) {
    expect_half({"prod", {{Dims(4, 5), Input::kPositive}}, [axis](const std::vector<Tensor>& x) {
                   return prod(x[0], Dims(axis));
                 }});
    expect_half({"cumprod", {{Dims(4, 5), Input::kPositive}}, [axis](const std::vector<Tensor>& x) {
                   return cumprod(x[0], axis);
                 }});
  }
}

TEST(HalfOps, GradientsOfLeavesAreF32) {
  Tensor x = to(random_tensor({Dims(4)}, DType::kF16, 1), test_device());
  x.set_requires_grad();
  backward(sum(mul(x, x)));
  EXPECT_EQ(x.grad().dtype(), DType::kF32);
  backward(sum(mul(x, x)));  // f16 onto f32
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(x.grad().to_vector()[i], 4 * x.to_vector()[i], 1e-2);
}

// What a card will do is seen on its meta device: a copy in f32 for ops that go by rows, none for the others.
TEST(HalfOps, PlansOfBothDevices) {
  for (const Device device : {kMetaCpu, kMetaCuda}) {
    Tensor x = Tensor::empty(Dims(8, 64), DType::kF16, device);
    const Tensor w = Tensor::empty(Dims(64), DType::kF16, device), ids = Tensor::empty(Dims(8), DType::kI32, device);
    x.set_requires_grad();
    const int64_t wide = device.target == DeviceKind::kCuda ? x.numel() * 4 : 0;
    const auto peak_of = [&](const auto& f) {
      LedgerGuard guard;
      const Tensor y = f();
      EXPECT_EQ(y.sizes(), x.sizes());
      EXPECT_EQ(y.dtype(), DType::kF16);
      return guard.ledger().peak_bytes();
    };
    EXPECT_EQ(peak_of([&] { return silu(x); }), x.numel() * 2);
    EXPECT_EQ(peak_of([&] { return softmax(x, 1); }), x.numel() * 2 + 2 * wide) << name_of(device);  // x and y
    EXPECT_EQ(rms_norm(x, w).dtype(), DType::kF16);
    EXPECT_EQ(sum(x, Dims(1)).dtype(), DType::kF16);
    const Tensor loss = cross_entropy(x, ids);
    EXPECT_EQ(loss.dtype(), DType::kF32);
    backward(loss);
    EXPECT_EQ(x.grad().sizes(), x.sizes());
  }
}

TEST(HalfOps, OpsWithoutF16NameTheRemedy) {
  const Tensor x = Tensor::empty(Dims(1, 2, 2, 4), DType::kF16, kMetaCpu), row = Tensor::empty(Dims(4), DType::kF16);
  const std::string remedy = "takes f64, f32 and bf16, not f16; convert with to(x, bf16) or to(x, f32)";
  expect_error([&] { attention_cached(x, x, x, {}, 2); }, "attention_cached: " + remedy);
  expect_error([&] { adamw_step(row, row, Tensor::empty(Dims(4)), Tensor::empty(Dims(4)), {}); },
               "adamw_step: " + remedy);
  expect_error([&] { squares_of({row}); }, "sum_squares: " + remedy);
  expect_error([&] { pack_weight(Tensor::empty(Dims(4, 4), DType::kF16)); }, "takes a matrix of f32 or bf16");
  expect_error([&] { relu(Tensor::empty(Dims(2), DType::kF8E4M3)); }, "relu");
}

TEST(Traps, O12_F16RmsNormAndConstantRows) {
  const Dims four(4), one(1), many(256);
  Tensor x = Tensor::empty(four, DType::kF16, test_device());
  fill_(x, 300);  // 300 squared is beyond f16
  Tensor ones = Tensor::empty(four, DType::kF16, test_device());
  fill_(ones, 1);
  EXPECT_EQ(rms_norm(x, ones).to_vector(), std::vector<double>(4, 1.0));
  Tensor constant = Tensor::empty(Dims(2, 256), DType::kF32, test_device());
  fill_(constant, 1234);
  EXPECT_EQ(layer_norm(constant, {}, {}).to_vector(), std::vector<double>(512, 0.0));
  Tensor half = to(constant, DType::kF16);
  EXPECT_EQ(layer_norm(half, {}, {}).to_vector(), std::vector<double>(512, 0.0));
  // f64 is the CPU's.
  const Tensor a = Tensor::from(std::vector<double>{-3}, one), w = Tensor::from(std::vector<double>{1e12}, one);
  EXPECT_EQ(layer_norm(a, w, Tensor::from(std::vector<double>{-1}, one)).item(), -1.0);
}

}  // namespace
}  // namespace tally::test
