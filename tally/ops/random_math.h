// Draws as formulas of Philox's words (base/rng.h) for CPU and CUDA. Every step is one rounded operation of IEEE 754
// arithmetic in f64, never fused, so a draw has the same bits on every device: uniform, integer, normal and truncated
// normal alike. Inlined by force, as all of a kernel file.
#pragma once

#include "tally/base/rng.h"
#include "tally/ops/rounded.h"

namespace tally::draws {

using rounded::add;
using rounded::div;
using rounded::mul;
using rounded::root;

// first z^n + .. + last, by Horner's rule
template <class... C>
TALLY_INLINE double poly(double z, double first, C... rest) {
  double p = first;
  ((p = add(mul(p, z), rest)), ...);
  return p;
}

// ln x for normal x > 0, to some units in the last place: x = 2^e m with m in (0.7, 1.42), ln m = 2 artanh s by its
// series, s = (m - 1) / (m + 1), |s| < 0.172.
TALLY_INLINE double log_of(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int64_t e = static_cast<int64_t>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 1.4142135623730951) m = mul(m, 0.5), ++e;
  const double s = div(add(m, -1.0), add(m, 1.0)), z = mul(s, s);
  const double p =
      poly(z, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  const double tail = mul(mul(s, z), p), n = static_cast<double>(e);
  constexpr double kHigh = 0x1.62e42fefap-1, kLow = 0x1.cf79abc9e3b3ap-40;  // ln 2 in two parts: n kHigh is exact
  return add(mul(n, kHigh), add(mul(n, kLow), mul(2.0, add(s, tail))));
}

// cos(2 pi v / 2^32): the nearest quarter turn is taken off exactly, Taylor's series do the rest.
TALLY_INLINE double cos_of_turn(uint32_t v) {
  const uint32_t quarter = (v + 0x20000000u) >> 30;
  const double angle = mul(static_cast<double>(static_cast<int32_t>(v - (quarter << 30))), 0x1.921fb54442d18p-30);
  const double z = mul(angle, angle);
  const double sine =
      add(angle, mul(mul(angle, z), poly(z, 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                                         -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6)));
  const double cosine = add(1.0, mul(z, poly(z, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
                                             -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5)));
  const double x = (quarter & 1) != 0 ? sine : cosine;
  return quarter == 1 || quarter == 2 ? -x : x;
}

// N(0, 1) of two words by Box and Muller's transform (1958): |x| < 6.7.
TALLY_INLINE double normal(const Random4& r) {
  const double u = mul(add(static_cast<double>(r.v[0]), 1.0), 0x1p-32);  // (0, 1]
  return mul(root(mul(-2.0, log_of(u))), cos_of_turn(r.v[1]));
}

// Uniform in (0, 1), 53 bits, its ends half a step away.
TALLY_INLINE double open_uniform(const Random4& r) {
  const uint64_t bits = (uint64_t{r.v[0]} << 32 | r.v[1]) >> 11;
  return mul(add(static_cast<double>(bits), 0.5), 0x1p-53);
}

// The x below which N(0, 1) has the mass p, 0 < p < 1, to about 1e-16 of x: Wichura 1988, "Algorithm AS 241: the
// percentage points of the normal distribution", PPND16.
TALLY_INLINE double normal_quantile(double p) {
  const double q = add(p, -0.5);
  if (q <= 0.425 && q >= -0.425) {
    const double r = add(0.180625, -mul(q, q));
    const double over =
        poly(r, 2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
             1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080);
    const double under =
        poly(r, 5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
             5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0);
    return div(mul(over, q), under);
  }
  double r = root(-log_of(q < 0 ? p : add(1.0, -p))), over, under;
  if (r <= 5.0) {
    r = add(r, -1.6);
    over =
        poly(r, 7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258,
             3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734);
    under =
        poly(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
             1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0);
  } else {
    r = add(r, -5.0);
    over = poly(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990,
                6.65790464350110377720);
    under = poly(r, 2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                 7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                 5.99832206555887937690e-1, 1.0);
  }
  const double x = div(over, under);
  return q < 0 ? -x : x;
}

// Uniform integer in [0, n) of the 64 bits of two words; n = 0 stands for 2^64.
TALLY_INLINE uint64_t below(const Random4& r, uint64_t n) {
  const uint64_t bits = uint64_t{r.v[0]} << 32 | r.v[1];
  if (n == 0) return bits;
#if defined(__CUDA_ARCH__)
  return __umul64hi(bits, n);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
#endif
}

}  // namespace tally::draws
