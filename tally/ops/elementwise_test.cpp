#include "tally/ops/elementwise.h"

#include "tally/core/device.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// f and g f' written again, so that the table in elementwise_math.h is checked and not repeated.
template <class N>
N value_reference(UnaryOp op, N x, N alpha, N beta) {
  const N half = 0.5, one = 1.0, cubic = 0.044715, scale = 0.79788456080286536, root = 0.70710678118654752;
  switch (op) {
    case UnaryOp::kRelu:
      return num_max(x, N(0.0));
    case UnaryOp::kGeluErf:
      return half * x * (one + num_erf(x * root));
    case UnaryOp::kGeluTanh:
      return half * x * (one + num_tanh(scale * (x + cubic * x * x * x)));
    case UnaryOp::kSilu:
      return x / (one + num_exp(-x));
    case UnaryOp::kSigmoid: {
      const N e = num_exp(-x);
      return one / (one + e);
    }
    case UnaryOp::kTanh:
      return num_tanh(x);
    case UnaryOp::kExp:
      return num_exp(x);
    case UnaryOp::kLog:
      return num_log(x);
    case UnaryOp::kSqrt:
      return num_sqrt(x);
    case UnaryOp::kRsqrt:
      return one / num_sqrt(x);
    case UnaryOp::kNeg:
      return N(0.0) - x;
    case UnaryOp::kSquare:
      return x * x;
    case UnaryOp::kAffine:
      return alpha * x + beta;
  }
  return x;
}

template <class N>
N gradient_reference(UnaryOp op, N x, N g, N alpha) {
  const N half = 0.5, one = 1.0, two = 2.0, cubic = 0.044715, scale = 0.79788456080286536;
  const N root = 0.70710678118654752, density = 0.39894228040143268, three_cubic = 0.134145;
  switch (op) {
    case UnaryOp::kRelu:
      return num_where(
          x, [](auto v) { return v > 0; }, g, N(0.0));
    case UnaryOp::kGeluErf:
      return g * (half * (one + num_erf(x * root)) + x * density * num_exp(-half * x * x));
    case UnaryOp::kGeluTanh: {
      const N t = num_tanh(scale * (x + cubic * x * x * x));
      return g * (half * (one + t) + half * x * (one - t * t) * (scale * (one + three_cubic * x * x)));
    }
    case UnaryOp::kSilu: {
      const N s = one / (one + num_exp(-x));
      return g * s * (one + x * (one - s));
    }
    case UnaryOp::kSigmoid: {
      const N s = one / (one + num_exp(-x));
      return g * s * (one - s);
    }
    case UnaryOp::kTanh: {
      const N t = num_tanh(x);
      return g * (one - t * t);
    }
    case UnaryOp::kExp:
      return g * num_exp(x);
    case UnaryOp::kLog:
      return g / x;
    case UnaryOp::kSqrt:
      return g * half / num_sqrt(x);
    case UnaryOp::kRsqrt:
      return g * -half / (x * num_sqrt(x));
    case UnaryOp::kNeg:
      return N(0.0) - g;
    case UnaryOp::kSquare:
      return two * x * g;
    case UnaryOp::kAffine:
      return alpha * g;
  }
  return x;
}

const bool unary_registered = register_reference<UnaryArgs>([](const UnaryArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto& y = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k) y.flat(k) = value_reference<N>(a.op, x.flat(k), N(a.alpha), N(a.beta));
});
const bool unary_backward_registered = register_reference<UnaryBackwardArgs>([](const UnaryBackwardArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x), g = io.in(a.grad);
  auto& dx = io.out(a.dx);
  for (int64_t k = 0; k < a.dx.numel(); ++k) dx.flat(k) = gradient_reference<N>(a.op, x.flat(k), g.flat(k), N(a.alpha));
});
const bool binary_registered = register_reference<BinaryArgs>([](const BinaryArgs& a, auto& io) {
  auto x = io.in(a.a), y = io.in(a.b);
  auto& z = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k) {
    if (a.op == BinaryOp::kAdd) z.flat(k) = x.flat(k) + y.flat(k);
    if (a.op == BinaryOp::kSub) z.flat(k) = x.flat(k) - y.flat(k);
    if (a.op == BinaryOp::kMul) z.flat(k) = x.flat(k) * y.flat(k);
    if (a.op == BinaryOp::kDiv) z.flat(k) = x.flat(k) / y.flat(k);
  }
});
const bool fill_registered = register_reference<FillArgs>([](const FillArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto& y = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k) y.flat(k) = N(a.value);
});
const bool copy_registered = register_reference<CopyArgs>([](const CopyArgs& a, auto& io) {
  auto x = io.in(a.x);
  auto& y = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k) y.flat(k) = x.flat(k);
});
const bool swiglu_registered = register_reference<SwigluArgs>([](const SwigluArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto gate = io.in(a.gate), up = io.in(a.up);
  auto& y = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k) y.flat(k) = gate.flat(k) / (N(1.0) + num_exp(-gate.flat(k))) * up.flat(k);
});
const bool swiglu_backward_registered =
    register_reference<SwigluBackwardArgs>([](const SwigluBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto grad = io.in(a.grad), gate = io.in(a.gate), up = io.in(a.up);
      auto &dgate = io.out(a.dgate), &dup = io.out(a.dup);
      for (int64_t k = 0; k < a.grad.numel(); ++k) {
        const N x = gate.flat(k), g = grad.flat(k), s = N(1.0) / (N(1.0) + num_exp(-x));
        dgate.flat(k) = g * up.flat(k) * (s * (N(1.0) + x * (N(1.0) - s)));
        dup.flat(k) = g * (x * s);
      }
    });

std::vector<Dims> shapes() {
  return {Dims(1), Dims(7), Dims(3, 5), Dims(2, 3, 33), Dims(4, 129), Dims(0, 3), Dims(600)};
}

TEST(Elementwise, EveryUnaryFunction) {
  for (int i = 0; i < kUnaryOps; ++i) {
    const auto op = static_cast<UnaryOp>(i);
    const bool positive = op == UnaryOp::kLog || op == UnaryOp::kSqrt || op == UnaryOp::kRsqrt;
    for (const Dims& size : shapes())
      run_op_case({std::string(kUnaryRows[i].name) + " " + str(size),
                   {{size, positive ? Input::kPositive : Input::kNormal}},
                   [op](const std::vector<Tensor>& x) { return unary(op, x[0], 1.5f, -0.25f); }});
  }
}

TEST(Elementwise, PairsWithBroadcast) {
  using Op = Tensor (*)(const Tensor&, const Tensor&);
  const std::pair<const char*, Op> ops[] = {{"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}};
  const std::pair<Dims, Dims> pairs[] = {
      {Dims(5), Dims(5)},          {Dims(3, 4), Dims(4)}, {Dims(3, 1), Dims(1, 4)}, {Dims(2, 3, 17), Dims(3, 1)},
      {Dims(2, 1, 5), Dims(3, 5)}, {Dims(), Dims(3, 2)},  {Dims(0, 4), Dims(4)},    {Dims(8, 64), Dims(8, 64)}};
  for (const auto& [name, op] : ops)
    for (const auto& [a, b] : pairs)
      run_op_case({std::string(name) + " " + str(a) + " " + str(b),
                   {{a}, {b, Input::kPositive}},
                   [op = op](const std::vector<Tensor>& x) { return op(x[0], x[1]); }});
}

TEST(Elementwise, Swiglu) {
  for (const Dims& size : shapes())
    run_op_case(
        {"swiglu " + str(size), {{size}, {size}}, [](const std::vector<Tensor>& x) { return swiglu(x[0], x[1]); }});
}

TEST(Elementwise, EdgeValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from(std::vector<float>{-inf, -100, -0.f, 0, 100, inf, nan}, Dims(7));
  const std::vector<double> r = relu(x).to_vector();
  EXPECT_EQ(r[0], 0);
  EXPECT_EQ(r[5], inf);
  EXPECT_TRUE(std::isnan(r[6]));
  EXPECT_EQ(silu(x).to_vector()[1], 0);
  EXPECT_EQ(tanh(x).to_vector()[0], -1);
  EXPECT_EQ(tanh(x).to_vector()[5], 1);
  EXPECT_EQ(gelu(x).to_vector()[4], 100);
  EXPECT_EQ(gelu_tanh(x).to_vector()[4], 100);
}

TEST(Elementwise, ShapesThatDoNotBroadcastAreNamed) {
  const Tensor a = Tensor::empty(Dims(2, 3)), b = Tensor::empty(Dims(4));
  try {
    add(a, b);
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_STREQ(e.what(), "add: shapes (2, 3) and (4,) do not broadcast");
  }
}

// The functions of simd_math.h within a few units of the last place over their whole range.
TEST(Elementwise, AccuracyOverTheRange) {
  std::vector<float> xs;
  for (float x = -12; x <= 12; x += 0.00037f) xs.push_back(x);
  const Tensor x = Tensor::from(xs, Dims(static_cast<int64_t>(xs.size())));
  const std::vector<double> t = tanh(x).to_vector(), e = exp(x).to_vector(), g = gelu(x).to_vector();
  for (size_t i = 0; i < xs.size(); ++i) {
    const double v = xs[i];
    ASSERT_NEAR(t[i], std::tanh(v), 3e-7 * std::abs(std::tanh(v))) << v;
    ASSERT_NEAR(e[i], std::exp(v), 2.5e-7 * std::exp(v)) << v;
    ASSERT_NEAR(g[i], 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))), 3e-7 * std::max(1.0, std::abs(v))) << v;
  }
}

TEST(Pinned, MemoryKeepsValues) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, Dims(2, 3));
  const Tensor pinned = pin_memory(x);
  EXPECT_EQ(pinned.to_vector(), x.to_vector());
  EXPECT_FALSE(pinned.shares_storage(x));
  EXPECT_EQ(pinned.is_pinned(), cuda_device_count() > 0);
  EXPECT_EQ(pinned.device(), kCpu);
  EXPECT_EQ(pinned.category(), x.category());
  EXPECT_EQ(pin_memory(transpose(x, 0, 1)).to_vector(), transpose(x, 0, 1).to_vector());
  if (pinned.is_pinned()) {
    EXPECT_TRUE(pin_memory(pinned).shares_storage(pinned));
  }
  EXPECT_TRUE(to(x, kCpu, true).shares_storage(x));
  test::expect_error([] { pin_memory(Tensor::empty(Dims(2), DType::kF32, kMetaCpu)); }, "takes a tensor of the CPU");
}

}  // namespace
}  // namespace tally::test
