// Initial values: spreads, bounds, fans and gains, independence of dtype and device.
#include "tally/nn/init.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using V = std::vector<double>;

struct Moments {
  double mean = 0, std = 0, low = 0, high = 0;
};
template <class F>
Moments moments(F fill, const Dims& size = Dims(200, 500)) {
  const Tensor t = Tensor::empty(size);
  fill(t);
  const V v = t.to_vector();
  Moments m;
  for (const double x : v) m.mean += x, m.std += x * x;
  const auto n = static_cast<double>(v.size());
  m.mean /= n, m.std = std::sqrt(m.std / n - m.mean * m.mean);
  m.low = *std::min_element(v.begin(), v.end()), m.high = *std::max_element(v.begin(), v.end());
  return m;
}

void expect_kind(ErrorKind kind, const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, kind) << e.what();
  }
}

TEST(InitFunctions, Uniform) {
  const Moments m = moments([](const Tensor& t) { uniform_(t, -1, 3, 1, 2); });
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_NEAR(m.std, 4 / std::sqrt(12.0), 0.01);
  EXPECT_GE(m.low, -1);
  EXPECT_LT(m.high, 3);
  expect_kind(ErrorKind::kValue, [] { uniform_(Tensor::empty(Dims(1)), 1, 0, 1, 2); });
  expect_kind(ErrorKind::kType, [] { uniform_(Tensor::empty(Dims(1), DType::kI32), 0, 1, 1, 2); });
}

TEST(InitFunctions, FansAndGains) {
  EXPECT_EQ(fans_of(Dims(200, 500)).in, 500);
  EXPECT_EQ(fans_of(Dims(200, 500)).out, 200);
  EXPECT_EQ(fans_of(Dims(16, 3, 5, 5)).in, 75);
  EXPECT_EQ(fans_of(Dims(16, 3, 5, 5)).out, 400);
  expect_kind(ErrorKind::kValue, [] { fans_of(Dims(3)); });
  EXPECT_EQ(gain_of("linear"), 1);
  EXPECT_EQ(gain_of("tanh"), 5.0 / 3);
  EXPECT_NEAR(gain_of("relu"), std::sqrt(2.0), 1e-15);
  EXPECT_NEAR(gain_of("leaky_relu", 0.5), std::sqrt(2 / 1.25), 1e-15);
  EXPECT_EQ(gain_of("selu"), 0.75);
  expect_kind(ErrorKind::kValue, [] { gain_of("gelu"); });
}

TEST(InitFunctions, Xavier) {
  const double std = std::sqrt(2.0 / 700);
  const Moments n = moments([](const Tensor& t) { xavier_normal_(t, 1, 2); });
  EXPECT_NEAR(n.std / std, 1, 0.01);
  const Moments u = moments([](const Tensor& t) { xavier_uniform_(t, 1, 2, 2.0); });
  EXPECT_NEAR(u.std / (2 * std), 1, 0.01);
  EXPECT_LE(u.high, 2 * std * std::sqrt(3.0));
  EXPECT_GT(u.high, 2 * std * std::sqrt(3.0) * 0.999);
}

TEST(InitFunctions, Kaiming) {
  const double gain = gain_of("relu");
  const Moments in = moments([&](const Tensor& t) { kaiming_normal_(t, 1, 2, gain); });
  const Moments out = moments([&](const Tensor& t) { kaiming_normal_(t, 1, 2, gain, Fan::kOut); });
  EXPECT_NEAR(in.std * std::sqrt(500.0) / gain, 1, 0.01);
  EXPECT_NEAR(out.std * std::sqrt(200.0) / gain, 1, 0.01);
  const Moments u = moments([&](const Tensor& t) { kaiming_uniform_(t, 1, 2, gain); });
  EXPECT_NEAR(u.std * std::sqrt(500.0) / gain, 1, 0.01);
  EXPECT_LE(u.high, gain * std::sqrt(3.0 / 500));
}

// Against the distribution itself: the share below each of some values.
TEST(InitFunctions, TruncatedNormalHasItsDistribution) {
  const double mean = 0.5, std = 2, a = -1, b = 5;
  const Tensor t = Tensor::empty(Dims(100'000));
  trunc_normal_(t, mean, std, a, b, 1, 2);
  V v = t.to_vector();
  std::sort(v.begin(), v.end());
  const auto phi = [&](double x) { return 0.5 * std::erfc(-(x - mean) / std / std::sqrt(2.0)); };
  for (double x = a; x <= b; x += 0.25) {
    const double want = (phi(x) - phi(a)) / (phi(b) - phi(a));
    const auto got = static_cast<double>(std::lower_bound(v.begin(), v.end(), x) - v.begin()) / 1e5;
    EXPECT_NEAR(got, want, 5 * 0.5 / std::sqrt(1e5)) << x;
  }
  EXPECT_GE(v.front(), a);
  EXPECT_LE(v.back(), b);
  expect_kind(ErrorKind::kValue, [] { trunc_normal_(Tensor::empty(Dims(1)), 0, 0, -1, 1, 1, 2); });
  expect_kind(ErrorKind::kValue, [] { trunc_normal_(Tensor::empty(Dims(1)), 0, 1, 1, 1, 1, 2); });
}

TEST(InitFunctions, ValuesDependOnPositionOnly) {
  const Tensor whole = Tensor::empty(Dims(4, 6)), turned = transpose(Tensor::empty(Dims(6, 4)), 0, 1),
               wide = Tensor::empty(Dims(4, 6), DType::kF64), none = Tensor::empty(Dims(0, 3));
  for (const Tensor& t : {whole, turned, wide, none, Tensor::empty(Dims(4, 6), DType::kF32, kMetaCpu)})
    trunc_normal_3_(t, 0.1, 8, 9);
  EXPECT_EQ(turned.to_vector(), whole.to_vector());
  EXPECT_EQ(wide.to_vector(), whole.to_vector());
  EXPECT_EQ(whole.version(), 1);
  EXPECT_EQ(turned.version(), 1);
}

TEST(InitFunctions, ByAGenerator) {
  const Tensor a = Tensor::empty(Dims(3, 4)), b = Tensor::empty(Dims(3, 4));
  for (const auto& fill : std::vector<std::function<void(const Tensor&)>>{
           [](const Tensor& t) { xavier_normal_(t); }, [](const Tensor& t) { xavier_uniform_(t, 2); },
           [](const Tensor& t) { kaiming_normal_(t, 2); },
           [](const Tensor& t) { kaiming_uniform_(t, 2, Fan::kOut); }}) {
    manual_seed(7);
    fill(a), fill(b);
    EXPECT_NE(a.to_vector(), b.to_vector());
    manual_seed(7);
    fill(b);
    EXPECT_EQ(a.to_vector(), b.to_vector());
  }
}

TEST(Init, FilledDrawsItsOwnStream) {
  Init a(1, kCpu), b(1, kCpu);
  const auto fill = [](const Tensor& t, uint64_t seed, uint64_t stream) { xavier_uniform_(t, seed, stream); };
  const Tensor first = a.filled(Dims(3, 4), fill), second = a.filled(Dims(3, 4), fill);
  EXPECT_TRUE(first.requires_grad());
  EXPECT_EQ(first.category(), Category::kParameter);
  EXPECT_NE(first.to_vector(), second.to_vector());
  EXPECT_EQ(b.filled(Dims(3, 4), fill).to_vector(), first.to_vector());
  EXPECT_EQ(residual_std(0.02, 12), 0.02 / std::sqrt(24.0));
}

}  // namespace
}  // namespace tally
