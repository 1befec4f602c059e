#include "tally/ops/elementwise.h"

#include "tally/core/device.h"
#include "tally/ops/compare.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// f(x...), counted as one operation.
template <class F, class N, class... More>
N one_flop(const F& f, N x, More... more) {
  if constexpr (std::is_same_v<N, Counted>)
    return Counted::one();
  else
    return f(x, more...);
}

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
    case UnaryOp::kAbs:
      return one_flop([](auto v) { return std::abs(v); }, x);
    case UnaryOp::kSin:
      return num_sin(x);
    case UnaryOp::kCos:
      return num_cos(x);
    case UnaryOp::kErf:
      return num_erf(x);
    case UnaryOp::kReciprocal:
      return one / x;
    case UnaryOp::kLog1p:
      return one_flop([](auto v) { return std::log1p(v); }, x);
    case UnaryOp::kExpm1:
      return one_flop([](auto v) { return std::expm1(v); }, x);
    case UnaryOp::kCube:
      return x * x * x;
    case UnaryOp::kClamp: {
      const N y = one_flop([](auto v, auto low) { return v < low ? low : v; }, x, alpha);
      return one_flop([](auto v, auto high) { return v > high ? high : v; }, y, beta);
    }
    case UnaryOp::kPowNumber:
      return num_pow(x, alpha);
    case UnaryOp::kPowBase:
      return num_pow(alpha, x);
    case UnaryOp::kAddNumber:
      return x + alpha;
    case UnaryOp::kSubFrom:
      return alpha - x;
    case UnaryOp::kMulNumber:
      return x * alpha;
    case UnaryOp::kDivNumber:
      return x / alpha;
    case UnaryOp::kDivInto:
      return alpha / x;
    case UnaryOp::kSign: {
      const auto up = [](auto v) { return v > 0; }, down = [](auto v) { return v < 0; };
      return num_where(x, up, one, num_where(x, down, -one, N(0.0)));
    }
    case UnaryOp::kFloor:
      return one_flop([](auto v) { return std::floor(v); }, x);
    case UnaryOp::kCeil:
      return one_flop([](auto v) { return std::ceil(v); }, x);
    case UnaryOp::kRound:
      return one_flop([](auto v) { return std::nearbyint(v); }, x);
    case UnaryOp::kTrunc:
      return one_flop([](auto v) { return std::trunc(v); }, x);
  }
  return x;
}

template <class N>
N gradient_reference(UnaryOp op, N x, N g, double a, double b) {
  const N alpha = a;
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
    case UnaryOp::kAbs: {
      const auto up = [](auto v) { return v > 0; }, down = [](auto v) { return v < 0; };
      return num_where(x, up, g, num_where(x, down, -g, N(0.0)));
    }
    case UnaryOp::kSin:
      return g * num_cos(x);
    case UnaryOp::kCos:
      return -(g * num_sin(x));
    case UnaryOp::kErf:
      return g * (N(1.1283791670955126) * num_exp(-(x * x)));
    case UnaryOp::kReciprocal:
      return -(g / (x * x));
    case UnaryOp::kLog1p:
      return g / (one + x);
    case UnaryOp::kExpm1:
      return g * num_exp(x);
    case UnaryOp::kCube:
      return N(3.0) * x * x * g;
    case UnaryOp::kClamp: {
      const auto above = [a](auto v) { return v > a; }, below = [b](auto v) { return v < b; };
      return num_where(x, above, num_where(x, below, g, N(0.0)), N(0.0));
    }
    case UnaryOp::kPowNumber:
      return g * (alpha * num_pow(x, N(a - 1)));
    case UnaryOp::kPowBase:
      return g * (num_pow(alpha, x) * N(a == 0 ? 0 : b));
    default:
      ADD_FAILURE() << "no backward kernel";
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
  for (int64_t k = 0; k < a.dx.numel(); ++k)
    dx.flat(k) = gradient_reference<N>(a.op, x.flat(k), g.flat(k), a.alpha, a.beta);
});
template <class N>
N pair_reference(BinaryOp op, N x, N y, N alpha) {
  switch (op) {
    case BinaryOp::kAdd:
      return x + y;
    case BinaryOp::kSub:
      return x - y;
    case BinaryOp::kMul:
      return x * y;
    case BinaryOp::kDiv:
      return x / y;
    case BinaryOp::kAddScaled:
      return x + alpha * y;
    case BinaryOp::kPow:
      return num_pow(x, y);
    case BinaryOp::kMaximum:
      return one_flop([](auto a, auto b) { return a != a || a > b ? a : b; }, x, y);
    case BinaryOp::kMinimum:
      return one_flop([](auto a, auto b) { return a != a || a < b ? a : b; }, x, y);
    case BinaryOp::kFloorDiv:
      return one_flop(
          [](auto a, auto b) {
            const auto r = std::fmod(a, b);
            return std::nearbyint((a - (r != 0 && (r < 0) != (b < 0) ? r + b : r)) / b);
          },
          x, y);
    case BinaryOp::kRemainder:
      return one_flop(
          [](auto a, auto b) {
            const auto r = std::fmod(a, b);
            return r != 0 && (r < 0) != (b < 0) ? r + b : r;
          },
          x, y);
  }
  return x;
}
template <class N>
N pair_gradient_reference(BinaryOp op, bool first, N x, N y, N g) {
  const auto zero = [](auto v) { return v == 0; };
  if (op == BinaryOp::kPow)
    return first ? num_where(y, zero, N(0.0), g * (y * num_pow(x, y - N(1.0))))
                 : num_where(x, zero, N(0.0), g * (num_pow(x, y) * num_log(x)));
  const bool larger = (op == BinaryOp::kMaximum) == first;
  const N a = larger ? x : y, b = larger ? y : x, half = g * N(0.5);
  const N rest = one_flop([](auto p, auto q, auto v) { return p < q ? 0 * v : v; }, a, b, g);
  return one_flop([](auto p, auto q, auto h, auto r) { return p == q ? h : r; }, a, b, half, rest);
}
const bool binary_registered = register_reference<BinaryArgs>([](const BinaryArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.a), y = io.in(a.b);
  auto& z = io.out(a.out);
  for (int64_t k = 0; k < a.out.numel(); ++k) z.flat(k) = pair_reference<N>(a.op, x.flat(k), y.flat(k), N(a.alpha));
});
const bool binary_backward_registered =
    register_reference<BinaryBackwardArgs>([](const BinaryBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto x = io.in(a.a), y = io.in(a.b), g = io.in(a.grad);
      auto& d = io.out(a.out);
      for (int64_t k = 0; k < a.out.numel(); ++k)
        d.flat(k) = pair_gradient_reference<N>(a.op, a.first, x.flat(k), y.flat(k), g.flat(k));
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
    const bool positive = op == UnaryOp::kLog || op == UnaryOp::kSqrt || op == UnaryOp::kRsqrt ||
                          op == UnaryOp::kReciprocal || op == UnaryOp::kLog1p || op == UnaryOp::kPowNumber ||
                          op == UnaryOp::kDivInto;
    double alpha = 1.5, beta = -0.25;
    if (op == UnaryOp::kClamp) alpha = -0.5, beta = 0.75;
    if (op == UnaryOp::kPowBase) beta = std::log(alpha);
    for (const Dims& size : shapes())
      run_op_case({std::string(kUnaryRows[i].name) + " " + str(size),
                   {{size, positive ? Input::kPositive : Input::kNormal}},
                   [=](const std::vector<Tensor>& x) { return unary(op, x[0], alpha, beta); }});
  }
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

TEST(Elementwise, RoundingsOfEveryKindOfNumber) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> xs = {-2.5f, -1.5f, -0.5f, -0.3f, -0.f, 0.f,  0.5f,       1.5f,       2.5f,
                                 2.7f,  8e6f,  1e10f, -inf,  inf,  -7.f, 8388607.5f, 16777216.f, -8388609.f};
  for (const DType t : {DType::kF32, DType::kF64}) {
    const Tensor x = to(Tensor::from(xs, Dims(static_cast<int64_t>(xs.size()))), t);
    const std::vector<double> f = floor(x).to_vector(), c = ceil(x).to_vector(), r = round(x).to_vector();
    const std::vector<double> i = trunc(x).to_vector();
    for (size_t k = 0; k < xs.size(); ++k) {
      const double v = xs[k];
      const double want[] = {std::floor(v), std::ceil(v), std::nearbyint(v), std::trunc(v)},
                   got[] = {f[k], c[k], r[k], i[k]};
      for (int n = 0; n < 4; ++n) {
        EXPECT_EQ(got[n], want[n]) << n << " of " << v;
        EXPECT_EQ(std::signbit(got[n]), std::signbit(want[n])) << n << " of " << v;
      }
    }
    const Tensor nan = to(Tensor::from(std::vector<float>{std::nanf("")}, Dims(1)), t);
    for (const Tensor& y :
         {floor(nan), ceil(nan), round(nan), trunc(nan), clamp(nan, -1, 1), abs(nan), sin(nan), log(nan)})
      EXPECT_TRUE(std::isnan(y.item()));
    EXPECT_EQ(sign(nan).item(), 0);
  }
}

TEST(Elementwise, LogAndAnglesOverTheRange) {
  std::vector<float> xs;
  for (float x = 1e-41f; x < 3e38f; x *= 1.0173f) xs.push_back(x);
  for (float x = -20000; x < 20000; x += 1.37f) xs.push_back(x);
  for (float x = 0.5f; x < 2; x += 0.00031f) xs.push_back(x);
  xs.insert(xs.end(), {0.f, -0.f, -1.f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()});
  const Tensor x = Tensor::from(xs, Dims(static_cast<int64_t>(xs.size())));
  const std::vector<double> l = log(x).to_vector(), s = sin(x).to_vector(), c = cos(x).to_vector();
  for (size_t i = 0; i < xs.size(); ++i) {
    const double v = xs[i], want = std::log(v);
    if (std::isfinite(want)) {
      ASSERT_NEAR(l[i], want, 1.3e-7 * std::abs(want) + 1e-8 * (std::abs(want) < 0.1 ? std::abs(want) : 1)) << v;
    } else {
      ASSERT_TRUE(std::isnan(want) ? std::isnan(l[i]) : l[i] == want) << v;
    }
    if (!std::isfinite(v)) continue;
    ASSERT_NEAR(s[i], std::sin(v), 1.2e-7) << v;
    ASSERT_NEAR(c[i], std::cos(v), 1.2e-7) << v;
  }
}

TEST(Elementwise, PowersQuotientsAndSmallNumbers) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> edge = {0,    -0.f,   1,     -1,     2,   -2,   0.5f, -0.5f,  3,      -3,
                                   7.5f, 1e-40f, 3e38f, -3e38f, inf, -inf, nan,  1e-10f, -1e-10f};
  std::vector<float> as, bs;
  for (const float a : edge)
    for (const float b : edge) as.push_back(a), bs.push_back(b);
  for (int i = 0; i < 20000; ++i) {
    as.push_back((uniform_from_u32(random_u32(1, 1, i)) - 0.5f) * 40);
    bs.push_back((uniform_from_u32(random_u32(1, 2, i)) - 0.5f) * (i % 3 == 0 ? 0.01f : 30));
    if (i % 2 == 0) bs.back() = std::nearbyint(bs.back());
  }
  const auto n = static_cast<int64_t>(as.size());
  const Tensor a = Tensor::from(as, Dims(n)), b = Tensor::from(bs, Dims(n));
  const std::vector<double> p = pow(a, b).to_vector(), r = remainder(a, b).to_vector();
  const std::vector<double> q = floor_divide(a, b).to_vector(), e = expm1(a).to_vector(), l = log1p(a).to_vector();
  const auto near = [](double got, double want, double tolerance) {
    if (!std::isfinite(static_cast<float>(want)) || want == 0)
      return std::isnan(want) ? std::isnan(got) : got == static_cast<float>(want);
    return std::abs(got - want) <= tolerance * std::abs(want) + 1e-45;
  };
  for (size_t i = 0; i < as.size(); ++i) {
    const float x = as[i], y = bs[i];
    ASSERT_TRUE(near(p[i], std::pow(double{x}, double{y}), 1.2e-7)) << x << "^" << y << " = " << p[i];
    ASSERT_TRUE(near(e[i], std::expm1(double{x}), 6e-7)) << x << " " << e[i];
    ASSERT_TRUE(near(l[i], std::log1p(double{x}), 4e-7)) << x << " " << l[i];
    // Python's rule on f32, as PyTorch computes it.
    float rest = std::fmod(x, y);
    if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
    ASSERT_TRUE(near(r[i], rest, 0)) << x << " % " << y << " = " << r[i];
    if (std::isfinite(x) && std::isfinite(y) && y != 0 && std::abs(x / y) < 1e5f) {
      const double quotient = double{x} / double{y};
      ASSERT_TRUE(q[i] == std::floor(quotient)) << x << " // " << y << " = " << q[i];
    }
  }
}

// A dense tensor's order of axes stays, so that chains over a transposed one run straight through memory.
TEST(Elementwise, ResultsKeepTheOrderOfAxes) {
  const Tensor x = transpose(Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, Dims(2, 3)), 0, 1);  // (3, 2)
  for (const Tensor& y :
       {exp(x), mul(x, x), add(x, 1), eq(x, 1), add(x, Tensor::from(std::vector<float>{1, 2}, Dims(2)))})
    EXPECT_EQ(y.strides(), x.strides());
  EXPECT_EQ(add(x, 1).to_vector(), (std::vector<double>{2, 5, 3, 6, 4, 7}));
  EXPECT_EQ(add(x, Tensor::from(std::vector<float>{1, 2}, Dims(2))).to_vector(),
            (std::vector<double>{2, 6, 3, 7, 4, 8}));
  EXPECT_TRUE(exp(slice(x, 0, 0, 2)).is_contiguous());
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

// Operands that lie along another axis than the result are read by tiles: the same bits as those of contiguous ones.
TEST(Elementwise, TurnedOperands) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Dims& size : {Dims(37, 45), Dims(16, 64), Dims(8, 9), Dims(3, 40, 130), Dims(2, 9, 3, 70)}) {
      const int last = size.rank - 1;
      const auto make = [&](const Dims& d, uint64_t seed) {
        return to(test::random_tensor({d}, DType::kF32, seed), t);
      };
      Dims turned = size, column = size;
      std::swap(turned[last - 1], turned[last]);
      column[last] = 1;
      const Tensor a = make(size, 1), b = transpose(make(turned, 2), last - 1, last), c = make(column, 3);
      const Tensor flat = contiguous(b), spread = contiguous(expand(c, size));
      EXPECT_EQ(mul(a, b).to_vector(), mul(a, flat).to_vector()) << str(size);
      EXPECT_EQ(sub(b, a).to_vector(), sub(flat, a).to_vector()) << str(size);
      EXPECT_EQ(add(b, c).to_vector(), add(flat, spread).to_vector()) << str(size);
      Tensor x = slice(transpose(make(turned, 4), last - 1, last), last, 1);
      const std::vector<double> sum = add(contiguous(x), slice(a, last, 1)).to_vector();
      add_(x, slice(a, last, 1));
      EXPECT_EQ(x.to_vector(), sum) << str(size);
    }
}

}  // namespace
}  // namespace tally::test
