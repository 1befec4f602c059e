#include "tally/ops/random.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "tally/base/error.h"
#include "tally/core/number.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"

namespace tally {

namespace {

void require_drawable(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: the tensor is undefined", op);
  if (!is_floating(x.dtype()) || x.dtype() == DType::kF8E8M0 || x.dtype() == DType::kF4E2M1x2)
    fail_type("{}: takes a float tensor, not {}", op, name_of(x.dtype()));
}

RandomArgs args_of(const Tensor& x, RandomKind kind, Draw draw) {
  RandomArgs r = {};
  r.out = x.raw(), r.kind = kind, r.seed = draw.seed, r.stream = draw.stream;
  r.p.size.rank = -1;
  return r;
}

// In place: where versions of changed tensors are counted.
void fill_with(const Tensor& x, const RandomArgs& args) {
  bump_version(x);
  launch(&Kernels::random, args);
}

// The nearest number of dtype t that is at least x (up) or at most x.
double towards(DType t, double x, bool up) {
  uint64_t bits = number_bits(t, x);
  const double nearest = read_number(&bits, t, 0);
  if (std::isinf(x) || (up ? nearest >= x : nearest <= x)) return nearest;
  const uint64_t sign = uint64_t{1} << (8 * item_size(t) - 1);
  // Codes grow with the magnitude; the step past zero changes the sign.
  if (const bool grows = (bits & sign) != 0 ? !up : up; grows) {
    ++bits;
  } else if ((bits & ~sign) == 0) {
    bits = (bits ^ sign) + 1;
  } else {
    --bits;
  }
  return read_number(&bits, t, 0);
}

Tensor finished(Tensor x, const TensorOptions& options) {
  if (options.requires_grad) x.set_requires_grad();
  return x;
}

TensorOptions like(const Tensor& x, const TensorOptions& options) {
  TensorOptions all = options;
  all.dtype = options.dtype.value_or(x.dtype());
  all.device = options.device.value_or(x.device());
  return all;
}

// Fisher and Yates' shuffle of 0 .. n - 1 into x, which holds 64 random bits for every place; in narrow numbers, of
// which caches hold more. Places to swap with are asked of memory some swaps ahead.
template <class T>
void shuffle(int64_t n, int64_t* x) {
  constexpr int64_t kAhead = 32;
  std::vector<T> order(static_cast<size_t>(n)), place(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), T{0});
  for (int64_t i = 0; i < n; ++i) {
    const auto product = static_cast<unsigned __int128>(static_cast<uint64_t>(x[i])) * static_cast<uint64_t>(i + 1);
    place[static_cast<size_t>(i)] = static_cast<T>(product >> 64);
  }
  for (int64_t i = n - 1; i > 0; --i) {
    if (i >= kAhead) __builtin_prefetch(order.data() + place[static_cast<size_t>(i - kAhead)], 1);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(place[static_cast<size_t>(i)])]);
  }
  std::copy(order.begin(), order.end(), x);
}

// Mass of N(0, 1) below x.
double mass_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

Draw next_draw(Generator& generator) { return {generator.initial_seed(), generator.next_stream()}; }

void uniform_(const Tensor& x, double low, double high, Draw draw) {
  require_drawable("uniform_", x);
  if (!(low <= high) || !std::isfinite(high - low)) fail("uniform_: [{}, {}) is not a range", low, high);
  RandomArgs r = args_of(x, RandomKind::kUniform, draw);
  r.a = low, r.b = high - low, r.high = high;
  fill_with(x, r);
}

void normal_(const Tensor& x, double mean, double std, Draw draw) {
  require_drawable("normal_", x);
  if (!(std >= 0)) fail("normal_: a standard deviation of {}", std);
  RandomArgs r = args_of(x, RandomKind::kNormal, draw);
  r.a = mean, r.b = std;
  fill_with(x, r);
}

void trunc_normal_(const Tensor& x, double mean, double std, double a, double b, Draw draw) {
  require_drawable("trunc_normal_", x);
  if (!(std > 0) || !std::isfinite(std) || !std::isfinite(mean))
    fail_value("trunc_normal_: a mean of {} and a standard deviation of {}", mean, std);
  if (!(a <= b)) fail_value("trunc_normal_: [{}, {}] is not a range", a, b);
  RandomArgs r = args_of(x, RandomKind::kTruncated, draw);
  r.low = towards(x.dtype(), a, true), r.high = towards(x.dtype(), b, false);
  if (!(r.low <= r.high)) fail_value("trunc_normal_: {} has no number in [{}, {}]", name_of(x.dtype()), a, b);
  double from = (a - mean) / std, to = (b - mean) / std;
  r.a = mean, r.b = std;
  // Of a range above the mean the mirror image is drawn: masses below have more digits than 1 minus masses.
  if (from > 0) {
    std::swap(from, to);
    from = -from, to = -to, r.b = -std;
  }
  r.low_mass = mass_below(from), r.mass = mass_below(to) - r.low_mass;
  if (!(r.mass > 0) || r.low_mass + r.mass < std::numeric_limits<double>::min())
    fail_value("trunc_normal_: [{}, {}] is too far from the mean {} for a standard deviation of {}", a, b, mean, std);
  fill_with(x, r);
}

void random_(const Tensor& x, int64_t low, int64_t high, Draw draw) {
  if (!x.defined()) fail("random_: the tensor is undefined");
  if (low >= high) fail("randint: low {} must be below high {}", low, high);
  if (x.dtype() == DType::kBool ? low < 0 || high > 2 : false) fail("randint: [{}, {}) does not fit bool", low, high);
  detail::require_fits("randint", low, x.dtype());
  detail::require_fits("randint", high - 1, x.dtype());
  RandomArgs r = args_of(x, RandomKind::kInteger, draw);
  r.first = low, r.range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  fill_with(x, r);
}

void bernoulli_(const Tensor& x, double p, Draw draw) {
  if (!x.defined()) fail("bernoulli_: the tensor is undefined");
  if (!(p >= 0 && p <= 1)) fail("bernoulli_: p = {} is not in [0, 1]", p);
  RandomArgs r = args_of(x, RandomKind::kBernoulli, draw);
  r.a = p;
  fill_with(x, r);
}

Tensor bernoulli(const Tensor& p, Generator& generator) {
  require_drawable("bernoulli", p);
  if (p.device().kind == DeviceKind::kCpu)
    for (const double v : p.to_vector())
      if (!(v >= 0 && v <= 1)) fail("bernoulli: the probability {} is not in [0, 1]", v);
  const Tensor y = Tensor::empty(p.sizes(), p.dtype(), p.device());
  RandomArgs r = args_of(y, RandomKind::kBernoulli, next_draw(generator));
  r.p = p.raw();
  launch(&Kernels::random, r);
  return y;
}

Tensor rand(const Dims& size, const TensorOptions& options, Generator& generator) {
  Tensor x = detail::made(size, options, DType::kF32, kCpu);
  uniform_(x, 0, 1, generator);
  return finished(std::move(x), options);
}

Tensor randn(const Dims& size, const TensorOptions& options, Generator& generator) {
  return normal(0, 1, size, options, generator);
}

Tensor normal(double mean, double std, const Dims& size, const TensorOptions& options, Generator& generator) {
  Tensor x = detail::made(size, options, DType::kF32, kCpu);
  normal_(x, mean, std, generator);
  return finished(std::move(x), options);
}

Tensor trunc_normal(const Dims& size, double mean, double std, double a, double b, const TensorOptions& options,
                    Generator& generator) {
  Tensor x = detail::made(size, options, DType::kF32, kCpu);
  trunc_normal_(x, mean, std, a, b, generator);
  return finished(std::move(x), options);
}

Tensor randint(int64_t low, int64_t high, const Dims& size, const TensorOptions& options, Generator& generator) {
  Tensor x = detail::made(size, options, DType::kI64, kCpu);
  random_(x, low, high, generator);
  return finished(std::move(x), options);
}

Tensor randperm(int64_t n, const TensorOptions& options, Generator& generator) {
  if (n < 0) fail("randperm: n = {} is negative", n);
  Tensor x = detail::made(Dims(n), options, DType::kI64, kCpu);
  if (n > 0) detail::require_fits("randperm", n - 1, x.dtype());
  const bool meta = x.device().kind == DeviceKind::kMeta, on_cpu = target_of(x.device()) == DeviceKind::kCpu;
  const Tensor host = on_cpu && x.dtype() == DType::kI64
                          ? x
                          : Tensor::empty(Dims(n), DType::kI64, meta ? kMetaCpu : kCpu, Category::kWorkspace);
  fill_with(host, args_of(host, RandomKind::kInteger, next_draw(generator)));  // a range of 0: all 64 bits
  if (!meta && n <= INT32_MAX) {
    shuffle<int32_t>(n, host.data<int64_t>());
  } else if (!meta) {
    shuffle<int64_t>(n, host.data<int64_t>());
  }
  if (!host.shares_storage(x)) copy_(x, host);
  return finished(std::move(x), options);
}

Tensor rand_like(const Tensor& x, const TensorOptions& options, Generator& generator) {
  return rand(x.sizes(), like(x, options), generator);
}
Tensor randn_like(const Tensor& x, const TensorOptions& options, Generator& generator) {
  return randn(x.sizes(), like(x, options), generator);
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& options, Generator& generator) {
  return randint(low, high, x.sizes(), like(x, options), generator);
}

}  // namespace tally
