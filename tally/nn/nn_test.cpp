// Modules: names and shapes of their parameters, initial values, what the KV cache holds and refuses.
#include <cmath>

#include "tally/base/parallel.h"
#include "tally/core/tape.h"
#include "tally/nn/attention.h"
#include "tally/nn/mlp.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using V = std::vector<double>;

template <class M>
std::vector<std::string> named_shapes(M& module) {
  std::vector<std::string> all;
  for (const Param& p : params_of(module)) all.push_back(p.name + " " + str(p.tensor->sizes()));
  return all;
}

Tensor ramp(const Dims& size, float step = 0.125f) {
  std::vector<float> v(static_cast<size_t>(size.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = step * static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
  return Tensor::from(v, size);
}

TEST(Modules, NamesAndShapes) {
  Init init(1, kMetaCpu);
  Linear plain(init, 3, 5, false, 0.02), biased(init, 3, 5, true, 0.02);
  EXPECT_EQ(named_shapes(plain), (std::vector<std::string>{"weight (5, 3)"}));
  EXPECT_EQ(named_shapes(biased), (std::vector<std::string>{"weight (5, 3)", "bias (5,)"}));
  Norm rms(init, NormKind::kRms, 4, true, 1e-5), layer(init, NormKind::kLayer, 4, true, 1e-5);
  EXPECT_EQ(named_shapes(rms), (std::vector<std::string>{"weight (4,)"}));
  EXPECT_EQ(named_shapes(layer), (std::vector<std::string>{"weight (4,)", "bias (4,)"}));
  Attention attn(init, 8, 4, 2, 2, false, 0.02, 0.01);
  EXPECT_EQ(named_shapes(attn),
            (std::vector<std::string>{"q.weight (8, 8)", "k.weight (4, 8)", "v.weight (4, 8)", "o.weight (8, 8)"}));
  Mlp gated(init, Activation::kSwiglu, 4, 6, false, 0.02, 0.01), relu(init, Activation::kRelu, 4, 6, true, 0.02, 0.01);
  EXPECT_EQ(named_shapes(gated),
            (std::vector<std::string>{"gate.weight (6, 4)", "up.weight (6, 4)", "down.weight (4, 6)"}));
  EXPECT_EQ(named_shapes(relu),
            (std::vector<std::string>{"up.weight (6, 4)", "up.bias (6,)", "down.weight (4, 6)", "down.bias (4,)"}));
  EXPECT_EQ(parameter_count(params_of(relu)), 24 + 6 + 24 + 4);
}

TEST(Init, ValuesHaveTheirMeanAndSpread) {
  Init init(7, kCpu);
  const V v = init.normal(Dims(200, 500), 0.02).to_vector();
  double mean = 0, square = 0, fourth = 0;
  for (double x : v) mean += x / 1e5, square += x * x / 1e5, fourth += x * x * x * x / 1e5;
  EXPECT_NEAR(mean, 0, 4 * 0.02 / std::sqrt(1e5));
  EXPECT_NEAR(std::sqrt(square), 0.02, 4 * 0.02 / std::sqrt(2e5));
  EXPECT_NEAR(fourth / (square * square), 3, 0.1);  // a normal's kurtosis
  EXPECT_EQ(init.constant(Dims(3), 1.0).to_vector(), (V{1, 1, 1}));
}

TEST(Init, DependsOnSeedAndOrderOnly) {
  const auto second = [](uint64_t seed, int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    Init init(seed, kCpu);
    init.normal(Dims(3), 1);
    const V v = init.normal(Dims(100, 100), 1).to_vector();
    set_num_threads(before);
    return v;
  };
  EXPECT_EQ(second(1, 1), second(1, 2));
  EXPECT_NE(second(1, 1), second(2, 1));
  Init init(1, kCpu);
  const V first = init.normal(Dims(100, 100), 1).to_vector();
  EXPECT_NE(first, second(1, 1));
  Init half(1, kCpu, DType::kBF16);
  const Tensor b = half.normal(Dims(100, 100), 1);
  EXPECT_EQ(b.dtype(), DType::kBF16);
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(b.to_vector()[i], to_float(to_bf16(static_cast<float>(first[i]))));
}

// down(silu(gate x) * up x), each product written out.
TEST(Mlp, Swiglu) {
  Init init(3, kCpu);
  const Mlp mlp(init, Activation::kSwiglu, 4, 6, false, 0.5, 0.5);
  const Tensor x = ramp(Dims(1, 1, 4));
  const V g = mlp.gate.weight.to_vector(), u = mlp.up.weight.to_vector(), d = mlp.down.weight.to_vector();
  const V in = x.to_vector(), y = mlp(x).to_vector();
  for (int o = 0; o < 4; ++o) {
    double want = 0;
    for (int h = 0; h < 6; ++h) {
      double gate = 0, up = 0;
      for (int i = 0; i < 4; ++i) gate += g[h * 4 + i] * in[i], up += u[h * 4 + i] * in[i];
      want += d[o * 6 + h] * gate / (1 + std::exp(-gate)) * up;
    }
    EXPECT_NEAR(y[o], want, 1e-6);
  }
}

TEST(Mlp, EveryActivation) {
  const std::pair<Activation, double (*)(double)> rows[] = {
      {Activation::kGelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {Activation::kGeluTanh,
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {Activation::kRelu, [](double x) { return std::max(x, 0.0); }},
      {Activation::kSilu, [](double x) { return x / (1 + std::exp(-x)); }}};
  for (const auto& [activation, f] : rows) {
    Init init(3, kCpu);
    Mlp mlp(init, activation, 1, 1, true, 0.5, 0.5);
    mlp.up.weight.data<float>()[0] = 2, mlp.up.bias.data<float>()[0] = -0.5f;
    mlp.down.weight.data<float>()[0] = 3, mlp.down.bias.data<float>()[0] = 0.25f;
    for (float x : {-1.0f, 0.1f, 0.9f})
      EXPECT_NEAR(mlp(Tensor::from(std::vector<float>{x}, Dims(1, 1))).item(), 3 * f(2 * x - 0.5) + 0.25, 1e-6);
  }
}

// One head of width 2 without RoPE: weights of a softmax over the positions seen.
TEST(Attention, OneHeadByHand) {
  Init init(5, kCpu);
  const Attention attn(init, 2, 1, 1, 2, false, 1, 1);
  const Tensor x = Tensor::from(std::vector<float>{1, -0.5f, 0.25f, 2, -1, 1}, Dims(1, 3, 2));
  const auto times = [](const Linear& l, const V& v) {
    const V w = l.weight.to_vector();
    return V{w[0] * v[0] + w[1] * v[1], w[2] * v[0] + w[3] * v[1]};
  };
  const V in = x.to_vector(), y = attn(x, {}, nullptr, 0).to_vector();
  for (size_t t = 0; t < 3; ++t) {
    const V q = times(attn.q, {in[2 * t], in[2 * t + 1]});
    double sum = 0;
    V mixed(2);
    for (size_t s = 0; s <= t; ++s) {
      const V k = times(attn.k, {in[2 * s], in[2 * s + 1]}), v = times(attn.v, {in[2 * s], in[2 * s + 1]});
      const double e = std::exp((q[0] * k[0] + q[1] * k[1]) / std::sqrt(2.0));
      sum += e, mixed[0] += e * v[0], mixed[1] += e * v[1];
    }
    const V want = times(attn.o, {mixed[0] / sum, mixed[1] / sum});
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(y[2 * t + i], want[i], 1e-5);
  }
}

// Grouped heads equal full heads whose keys and values are repeated.
TEST(Attention, GroupedHeadsAreRepeatedHeads) {
  Init init(5, kCpu);
  Attention grouped(init, 8, 4, 2, 2, false, 0.5, 0.5), full(init, 8, 4, 4, 2, false, 0.5, 0.5);
  full.q = grouped.q, full.o = grouped.o;
  for (int head = 0; head < 4; ++head)
    for (int i = 0; i < 2 * 8; ++i) {
      full.k.weight.data<float>()[head * 16 + i] = grouped.k.weight.data<float>()[head / 2 * 16 + i];
      full.v.weight.data<float>()[head * 16 + i] = grouped.v.weight.data<float>()[head / 2 * 16 + i];
    }
  Rope rope;
  rope.table = rope_table(8, 2, 10000);
  const Tensor x = ramp(Dims(2, 5, 8));
  EXPECT_EQ(grouped(x, rope, nullptr, 0).to_vector(), full(x, rope, nullptr, 0).to_vector());
}

TEST(KvCache, HoldsWhatWasAppended) {
  LedgerGuard guard;
  KvCache cache(2, 1, 4, 1, 2, DType::kF32, kCpu);
  EXPECT_EQ(guard.ledger().live()[static_cast<size_t>(Category::kCache)],
            2 * 2 * block_bytes(4 * 2 * 4) + block_bytes(4));
  EXPECT_EQ(cache.position().to_vector(), std::vector<double>{0});
  NoGrad quiet;
  const Tensor a = ramp(Dims(1, 3, 1, 2)), b = ramp(Dims(1, 1, 1, 2), 2);
  for (int64_t layer = 0; layer < 2; ++layer) {
    const auto [k, v] = cache.append(layer, a, affine(a, 2, 0));
    EXPECT_EQ(k.to_vector(), a.to_vector());
    EXPECT_EQ(v.to_vector(), affine(a, 2, 0).to_vector());
  }
  cache.advance(3);
  EXPECT_EQ(cache.length(), 3);
  EXPECT_EQ(cache.position().to_vector(), std::vector<double>{3});
  const auto [k, v] = cache.append(1, b, b);
  EXPECT_EQ(k.sizes(), Dims(1, 4, 1, 2));
  EXPECT_EQ(slice(k, 1, 0, 3).to_vector(), a.to_vector());
  EXPECT_EQ(slice(k, 1, 3, 4).to_vector(), b.to_vector());
  cache.advance(1);
  test::expect_error([&] { cache.append(0, b, b); }, "the cache holds 4 positions; 5 are needed");
  cache.truncate(1);
  EXPECT_EQ(cache.position().to_vector(), std::vector<double>{1});
  EXPECT_EQ(cache.append(0, b, b).first.sizes(), Dims(1, 2, 1, 2));
}

TEST(Params, NamesNestAndCount) {
  struct Inner {
    Tensor w = Tensor::empty(Dims(2, 3), DType::kF32, kMetaCpu), none;
    void visit(Params& p) { p("w", w), p("none", none); }
  };
  struct Outer {
    Inner a, b;
    Tensor own = Tensor::empty(Dims(4), DType::kF32, kMetaCpu);
    void visit(Params& p) { p.child("a", a), p.child("blocks.0", b), p("own", own); }
  } module;
  EXPECT_EQ(named_shapes(module), (std::vector<std::string>{"a.w (2, 3)", "blocks.0.w (2, 3)", "own (4,)"}));
  EXPECT_EQ(parameter_count(params_of(module)), 16);
}

}  // namespace
}  // namespace tally
