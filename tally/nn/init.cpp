#include "tally/nn/init.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/core/tape.h"
#include "tally/nn/param.h"
#include "tally/ops/elementwise.h"

namespace tally {

int64_t parameter_count(const std::vector<Param>& params) {
  int64_t n = 0;
  for (const Param& p : params) n += p.tensor->numel();
  return n;
}

namespace {

// x[i] = value(the four words of position i).
template <class F>
void fill_each(const Tensor& x, uint64_t seed, uint64_t stream, F value) {
  if (!is_float(x.dtype())) fail_type("init: fills a float tensor, not {}", name_of(x.dtype()));
  if (x.device().kind == DeviceKind::kMeta) return;
  const bool here = x.device().kind == DeviceKind::kCpu && x.dtype() == DType::kF32 && x.is_contiguous();
  Tensor values = here ? x : Tensor::empty(x.sizes(), DType::kF32, kCpu, Category::kWorkspace);
  float* p = values.data<float>();
  parallel_for(values.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      p[i] = static_cast<float>(value(philox(seed, stream, static_cast<uint64_t>(i))));
  });
  here ? bump_version(x) : copy_(x, values);
}

// The inverse of erf in double: Giles 2011, "Approximating the erfinv function" (1e-7), and a step of Newton's.
double erfinv(double x) {
  double w = -std::log((1 - x) * (1 + x)), p;
  const auto horner = [&](std::initializer_list<double> c) {
    double sum = 0;
    for (const double k : c) sum = sum * w + k;
    return sum;
  };
  if (w < 5) {
    w -= 2.5;
    p = horner({2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
                -0.00417768164, 0.246640727, 1.50140941});
  } else {
    w = std::sqrt(w) - 3;
    p = horner({-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
                0.00943887047, 1.00167406, 2.83297682});
  }
  const double y = p * x;
  return y - (std::erf(y) - x) / (2 / std::sqrt(std::numbers::pi) * std::exp(-y * y));
}

// (0, 1), both ends out of reach.
double open_unit(const Random4& r) {
  return (static_cast<double>(uint64_t{r.v[0]} << 20 | r.v[1] >> 12) + 0.5) * 0x1p-52;
}

double fan_of(const Tensor& x, Fan fan) {
  const Fans fans = fans_of(x.sizes());
  return static_cast<double>(fan == Fan::kIn ? fans.in : fans.out);
}

}  // namespace

void normal_(const Tensor& x, double std, uint64_t seed, uint64_t stream) {
  fill_each(x, seed, stream, [=](const Random4& r) {
    const double u = (r.v[0] + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * (r.v[1] * 0x1p-32);
    return std * std::sqrt(-2 * std::log(u)) * std::cos(angle);
  });
}

void uniform_(const Tensor& x, double low, double high, uint64_t seed, uint64_t stream) {
  if (!(low <= high)) fail_value("uniform_: from {} to {} is no range", low, high);
  fill_each(x, seed, stream,
            [=](const Random4& r) { return low + (high - low) * static_cast<double>(uniform_from_u32(r.v[0])); });
}

void trunc_normal_(const Tensor& x, double mean, double std, double a, double b, uint64_t seed, uint64_t stream) {
  if (!(std > 0) || !(a < b)) fail_value("trunc_normal_: std {} in [{}, {}]: needs std > 0 and a < b", std, a, b);
  // erf at both ends; a draw between them is turned back.
  const double low = std::erf((a - mean) / (std * std::numbers::sqrt2)),
               high = std::erf((b - mean) / (std * std::numbers::sqrt2));
  fill_each(x, seed, stream, [=](const Random4& r) {
    const double e = low + (high - low) * open_unit(r);
    return std::clamp(mean + std * std::numbers::sqrt2 * erfinv(e), a, b);
  });
}

void trunc_normal_3_(const Tensor& x, double std, uint64_t seed, uint64_t stream) {
  trunc_normal_(x, 0, std, -3 * std, 3 * std, seed, stream);
}

Fans fans_of(const Dims& size) {
  if (size.rank < 2)
    fail_value("fan in and fan out can not be computed for a tensor of shape {}: it needs two axes", str(size));
  int64_t field = 1;
  for (int i = 2; i < size.rank; ++i) field *= size[i];
  return {size[1] * field, size[0] * field};
}

double gain_of(const std::string& nonlinearity, double slope) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid") return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::numbers::sqrt2;
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + slope * slope));
  if (nonlinearity == "selu") return 0.75;
  fail_value("no gain is known for '{}'; use one of linear, sigmoid, tanh, relu, leaky_relu, selu", nonlinearity);
}

void xavier_normal_(const Tensor& x, uint64_t seed, uint64_t stream, double gain) {
  const Fans fans = fans_of(x.sizes());
  normal_(x, gain * std::sqrt(2 / static_cast<double>(fans.in + fans.out)), seed, stream);
}

void xavier_uniform_(const Tensor& x, uint64_t seed, uint64_t stream, double gain) {
  const Fans fans = fans_of(x.sizes());
  const double bound = gain * std::sqrt(6 / static_cast<double>(fans.in + fans.out));
  uniform_(x, -bound, bound, seed, stream);
}

void kaiming_normal_(const Tensor& x, uint64_t seed, uint64_t stream, double gain, Fan fan) {
  normal_(x, gain / std::sqrt(fan_of(x, fan)), seed, stream);
}

void kaiming_uniform_(const Tensor& x, uint64_t seed, uint64_t stream, double gain, Fan fan) {
  const double bound = gain * std::sqrt(3 / fan_of(x, fan));
  uniform_(x, -bound, bound, seed, stream);
}

double residual_std(double std, int64_t layers) { return std / std::sqrt(2.0 * static_cast<double>(layers)); }

Tensor Init::make(const Dims& size) {
  Tensor t = Tensor::empty(size, dtype_, device_, Category::kParameter);
  t.set_requires_grad();
  return t;
}

uint64_t Init::next_stream() { return static_cast<uint64_t>(RandomStream::kInit) + (next_++ << 8); }

Tensor Init::normal(const Dims& size, double std) {
  Tensor t = make(size);
  const uint64_t stream = next_stream();
  if (values_) normal_(t, std, seed_, stream);
  return t;
}

Tensor Init::constant(const Dims& size, double value) {
  Tensor t = make(size);
  ++next_;
  NoGrad quiet;
  if (values_) fill_(t, value);
  return t;
}

}  // namespace tally
