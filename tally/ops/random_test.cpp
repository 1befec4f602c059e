// Draws: the kernel against a loop with the C library's functions, bits that do not depend on layout, threads or dtype,
// moments, ranges, refusals.
#include "tally/ops/random.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/ops/allclose.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/op_test.h"
#include "tally/ops/random_kernels.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

double mass_below(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// By bisection of the distribution function, of the half where masses have all their digits.
double quantile(double p) {
  if (p > 0.5) return -quantile(1 - p);
  double low = -40, high = 0.5;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (mass_below(middle) < p ? low : high) = middle;
  }
  return low;
}

template <class N>
N num_quantile(N p) {
  if constexpr (std::is_same_v<N, Counted>)
    return Counted::one();
  else
    return static_cast<N>(quantile(static_cast<double>(p)));
}

const bool reference = register_reference<RandomArgs>([](const RandomArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto& out = io.out(a.out);
  View one = a.out;
  one.size = one.stride = {};
  auto p = io.index(a.has_p() ? a.p : one);
  for (int64_t i = 0; i < a.out.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const Random4 r = philox(a.seed, a.stream, at);
    const uint32_t word = random_u32(a.seed, a.stream, at);
    const uint64_t both = random_u64(a.seed, a.stream, at);
    switch (a.kind) {
      case RandomKind::kUniform: {
        const int bits = significant_bits(a.out.dtype);
        const double u = a.out.dtype == DType::kF64 ? std::ldexp(static_cast<double>(both >> 11), -53)
                                                    : std::ldexp(static_cast<double>(word >> (32 - bits)), -bits);
        out.flat(i) = N(a.a) + N(a.b) * N(u);
        break;
      }
      case RandomKind::kNormal: {
        const double u = (r.v[0] + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * (r.v[1] * 0x1p-32);
        out.flat(i) = N(a.a) + N(a.b) * (num_sqrt(N(-2) * num_log(N(u))) * num_cos(N(angle)));
        break;
      }
      case RandomKind::kTruncated: {
        const double u = (static_cast<double>(both >> 11) + 0.5) * 0x1p-53;
        out.flat(i) = N(a.a) + N(a.b) * num_quantile(N(a.low_mass) + N(a.mass) * N(u));
        if constexpr (!std::is_same_v<N, Counted>)
          out.flat(i) = std::clamp(out.flat(i), static_cast<N>(a.low), static_cast<N>(a.high));
        break;
      }
      case RandomKind::kInteger: {
        const auto n =
            static_cast<int64_t>(static_cast<uint64_t>(a.first) + random_below(a.seed, a.stream, at, a.range));
        out.flat(i) = N(static_cast<double>(n));
        break;
      }
      case RandomKind::kBernoulli: {
        const double limit = a.has_p() ? p.flat(i) : a.a;
        out.flat(i) = num_where(
            N(word * 0x1p-32), [&](auto) { return word * 0x1p-32 < limit; }, N(1), N(0));
        break;
      }
    }
  }
});

constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

TEST(Random, KernelAgainstTheReference) {
  VerifyLaunches verify;
  for (const Dims& size : {Dims(), Dims(1), Dims(3), Dims(5, 7), Dims(2, 1, 3, 2, 1, 5), Dims(0, 4), Dims(16387)})
    for (const DType t : {DType::kF64, DType::kF32, DType::kBF16}) {
      const TensorOptions there{.dtype = t, .device = test_device()};
      rand(size, there);
      normal(3, 2, size, there);
      trunc_normal(size, 0, 1, -2, 2, there);
      if (size.numel() < 100) trunc_normal(size, 1, 0.5, 3, 9, there);  // above the mean
      randint(-5, 1000, size, {.device = test_device()});
      randint(-128, 128, size, {.dtype = DType::kI8, .device = test_device()});
      Tensor p = rand(size, there);
      bernoulli(p);
      bernoulli_(p, 0.3);
    }
  EXPECT_GT(verify.launches(), 100);
}

// Of f64 to the last bits: what the C library says of the same words.
TEST(Random, FormulasAreAccurate) {
  double log_error = 0, cos_error = 0, quantile_error = 0;
  for (uint32_t k = 0; k < 200000; ++k) {
    const uint32_t v = random_u32(1, 2, k);
    const double u = (v + 1.0) * 0x1p-32;
    log_error = std::max(log_error, std::abs(draws::log_of(u) / std::log(u) - 1));
    const long double turn = std::cos(2 * std::numbers::pi_v<long double> * (v * 0x1p-32L));
    cos_error = std::max(cos_error, static_cast<double>(std::abs(draws::cos_of_turn(v) - turn)));
    if (k % 100 == 0) quantile_error = std::max(quantile_error, std::abs(draws::normal_quantile(u) - quantile(u)));
  }
  EXPECT_LT(log_error, 1e-15);
  EXPECT_LT(cos_error, 3e-16);
  EXPECT_LT(quantile_error, 1e-14);
  EXPECT_EQ(draws::log_of(1), 0);
  EXPECT_EQ(draws::cos_of_turn(0), 1);
  EXPECT_EQ(draws::cos_of_turn(1u << 30), 0);
  EXPECT_EQ(draws::cos_of_turn(1u << 31), -1);
  EXPECT_EQ(draws::normal_quantile(0.5), 0);
}

TEST(Random, BitsDoNotDependOnLayoutAndThreads) {
  const Draw draw{7, 9};
  const auto fill = [&](const Tensor& x, int kind) {
    if (kind == 0) uniform_(x, -1, 3, draw);
    if (kind == 1) normal_(x, 0.5, 2, draw);
    if (kind == 2) trunc_normal_(x, 0, 1, -1, 3, draw);
    if (kind == 3) random_(x, -10, 100, draw);
    if (kind == 4) bernoulli_(x, 0.4, draw);
  };
  const int before = num_threads();
  for (int kind = 0; kind < 5; ++kind) {
    const Tensor x = empty({130, 257}, {.device = test_device()}),
                 turned = empty({257, 130}, {.device = test_device()});
    const Tensor wide = empty({130, 600}, {.device = test_device()});
    set_num_threads(1);
    fill(x, kind);
    set_num_threads(2);
    fill(transpose(turned, 0, 1), kind);
    fill(slice(wide, 1, 3, 517, 2), kind);
    EXPECT_TRUE(equal(x, transpose(turned, 0, 1))) << kind;
    EXPECT_TRUE(equal(x, slice(wide, 1, 3, 517, 2))) << kind;
    const Tensor host = empty({130, 257});
    fill(host, kind);
    EXPECT_EQ(host.to_vector(), x.to_vector()) << kind << ": on the CPU and on the card";
  }
  set_num_threads(before);
}

TEST(Random, DtypesShareNumbers) {
  const Draw draw{3, 4};
  const Tensor f64 = empty({1000}, {.dtype = DType::kF64});
  normal_(f64, 0, 1, draw);
  for (const DType t : kFloats) {
    const Tensor x = empty({1000}, {.dtype = t});
    normal_(x, 0, 1, draw);
    EXPECT_TRUE(equal(x, to(f64, t))) << name_of(t);
  }
  const Tensor i = empty({1000}, {.dtype = DType::kI64}), f = empty({1000});
  random_(i, 0, 1000, draw);
  random_(f, 0, 1000, draw);
  EXPECT_TRUE(equal(i, f));
}

TEST(Random, RangesAndMoments) {
  const int64_t n = 1 << 18;
  const auto moments = [&](const Tensor& x) {
    double sum = 0, squares = 0;
    for (const double v : x.to_vector()) sum += v, squares += v * v;
    const double mean = sum / static_cast<double>(n);
    return std::pair(mean, squares / static_cast<double>(n) - mean * mean);
  };
  Generator g(5);
  for (const DType t : kFloats) {
    const Tensor u = rand({n}, {.dtype = t}, g);
    const std::vector<double> v = u.to_vector();
    EXPECT_GE(*std::min_element(v.begin(), v.end()), 0);
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 1) << name_of(t);
    const auto [mean, variance] = moments(u);
    EXPECT_NEAR(mean, 0.5 - std::ldexp(0.5, -significant_bits(t)), 0.003) << name_of(t);
    EXPECT_NEAR(variance, 1.0 / 12, 0.002) << name_of(t);
    // Ends that the dtype rounds: still below the upper one.
    const Tensor w = empty({n}, {.dtype = t});
    uniform_(w, 0, 0.1, g);
    for (const double x : w.to_vector()) ASSERT_LT(x, 0.1) << name_of(t);
  }
  const auto [mean, variance] = moments(normal(3, 2, {n}, {}, g));
  EXPECT_NEAR(mean, 3, 0.02);
  EXPECT_NEAR(variance, 4, 0.06);
  std::map<double, int64_t> counts;
  for (const double v : randint(-2, 3, {n}, {}, g).to_vector()) ++counts[v];
  EXPECT_EQ(counts.size(), 5u);
  for (const auto& [value, count] : counts) {
    EXPECT_TRUE(value >= -2 && value <= 2);
    EXPECT_NEAR(static_cast<double>(count) / static_cast<double>(n), 0.2, 0.005);
  }
  EXPECT_NEAR(moments(bernoulli(full({n}, 0.3), g)).first, 0.3, 0.005);
  EXPECT_EQ(bernoulli(zeros({9}), g).to_vector(), std::vector<double>(9, 0));
  EXPECT_EQ(bernoulli(ones({9}), g).to_vector(), std::vector<double>(9, 1));
  // The whole of i64.
  bool negative = false, large = false;
  for (const int64_t v : randint(INT64_MIN, INT64_MAX, {64}, {}, g).to_vector<int64_t>())
    negative = negative || v < 0, large = large || v > (int64_t{1} << 60);
  EXPECT_TRUE(negative && large);
}

TEST(Random, TruncatedNormalStaysInside) {
  Generator g(11);
  for (const DType t : kFloats) {
    for (const auto& [mean, std, a, b] : {std::tuple(0.0, 1.0, -2.0, 2.0),
                                          {0.0, 0.02, -0.06, 0.06},
                                          {0.0, 1.0, 0.3, 0.31},
                                          {5.0, 2.0, -1.0, 3.0},
                                          {0.0, 1.0, 6.0, 9.0},
                                          {0.0, 1.0, -9.0, -6.0}}) {
      const Tensor x = trunc_normal({20000}, mean, std, a, b, {.dtype = t}, g);
      const std::vector<double> v = x.to_vector();
      EXPECT_GE(*std::min_element(v.begin(), v.end()), a) << name_of(t);
      EXPECT_LE(*std::max_element(v.begin(), v.end()), b) << name_of(t);
      EXPECT_LT(*std::min_element(v.begin(), v.end()), *std::max_element(v.begin(), v.end()));
    }
  }
  const std::vector<double> tail = trunc_normal({50000}, 0, 1, 6, 9, {.dtype = DType::kF64}, g).to_vector();
  double sum = 0;
  for (const double v : tail) sum += v;
  EXPECT_NEAR(sum / 50000, 6.1585, 0.004);  // phi(6) / Q(6)
  expect_error([] { trunc_normal({2}, 0, 1, 2, -2); }, "[2, -2] is not a range");
  expect_error([] { trunc_normal({2}, 0, 0, -2, 2); }, "a standard deviation of 0");
  expect_error([] { trunc_normal({2}, 0, 1, 50, 60); }, "too far from the mean");
  expect_error([] { trunc_normal({2}, 0, 1, 1.001, 1.002, {.dtype = DType::kBF16}); }, "bf16 has no number in");
  expect_error([] { trunc_normal_(zeros({2}, {.dtype = DType::kI64})); }, "takes a float tensor, not i64");
}

TEST(Random, Permutations) {
  Generator g(2);
  std::map<std::vector<double>, int> orders;
  for (int i = 0; i < 6000; ++i) ++orders[randperm(3, {}, g).to_vector()];
  EXPECT_EQ(orders.size(), 6u);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 150);
  std::vector<double> v = randperm(1000, {.dtype = DType::kI32, .device = test_device()}, g).to_vector();
  std::sort(v.begin(), v.end());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(v[i], i);
  EXPECT_EQ(randperm(0).numel(), 0);
  EXPECT_EQ(randperm(5, {.device = kMetaCpu}).sizes(), Dims(5));
  expect_error([] { randperm(-1); }, "n = -1 is negative");
  expect_error([] { randperm(300, {.dtype = DType::kI8}); }, "does not fit i8");
}

TEST(Random, GeneratorsKeepTheirPlace) {
  Generator a(42), b(42);
  const Tensor x = randn({100}, {}, a);
  randn({100}, {.device = kMetaCpu}, b);  // counted there too
  EXPECT_TRUE(equal(randn({100}, {}, a), randn({100}, {}, b)));
  EXPECT_EQ(a.draws(), 2u);
  a.set_draws(0);
  EXPECT_TRUE(equal(randn({100}, {}, a), x));
  EXPECT_TRUE(equal(randn({100}, {}, a.manual_seed(42)), x));
  EXPECT_FALSE(equal(randn({100}, {}, a.manual_seed(43)), x));
  EXPECT_EQ(rand_like(x, {}, a).sizes(), x.sizes());
  EXPECT_EQ(randn_like(x, {.dtype = DType::kF64}, a).dtype(), DType::kF64);
  EXPECT_EQ(randint_like(arange(3), 0, 9, {}, a).dtype(), DType::kI64);
  EXPECT_TRUE(rand({2}, {.requires_grad = true}, a).requires_grad());
}

TEST(Random, Errors) {
  expect_error([] { randint(3, 3, {2}); }, "low 3 must be below high 3");
  expect_error([] { randint(0, 257, {2}, {.dtype = DType::kU8}); }, "randint: 256 does not fit u8");
  expect_error([] { randint(0, 3, {2}, {.dtype = DType::kBool}); }, "does not fit bool");
  expect_error([] { rand({2}, {.dtype = DType::kI32}); }, "uniform_: takes a float tensor, not i32");
  expect_error([] { normal(0, -1, {2}); }, "a standard deviation of -1");
  expect_error([] { uniform_(zeros({2}), 1, 0); }, "[1, 0) is not a range");
  expect_error([] { bernoulli(full({2}, 1.5)); }, "the probability 1.5 is not in [0, 1]");
  expect_error([] { bernoulli(full({2}, 1)); }, "takes a float tensor, not i64");
  expect_error([] { bernoulli_(zeros({2}), NAN); }, "is not in [0, 1]");
}

// The vectors of the CPU's kernel against the formula of one element, to the bit.
TEST(Random, VectorsHaveTheFormulasBits) {
  const int64_t n = 3001;
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    for (int kind = 0; kind < 5; ++kind) {
      const Tensor x = empty({n}, {.dtype = t});
      RandomArgs a = {};
      a.out = x.raw(), a.p.size.rank = -1, a.kind = static_cast<RandomKind>(kind);
      a.seed = 0x123456789ABCDEF, a.stream = (uint64_t{1} << 63) + 5;
      a.a = 0.25, a.b = 1.5, a.low = -1, a.high = 1.75, a.low_mass = 0.01, a.mass = 0.98, a.first = -7, a.range = 900;
      launch(&Kernels::random, a);
      for (int64_t i = 0; i < n; ++i) {
        const Random4 r = philox(a.seed, a.stream, static_cast<uint64_t>(a.words() ? i / 4 : i));
        const uint64_t bits = random_bits(a, r, r.v[i % 4], a.a);
        ASSERT_EQ(read_number(a.out.data, t, i), read_number(&bits, t, 0)) << name_of(t) << " " << kind << " " << i;
      }
    }
}

}  // namespace
}  // namespace tally::test
