// tanh, erf, log, sqrt, sin, cos and rounding for Vec, float and double beside exp_of of simd.h; a float of tanh and
// erf gives the bits of a lane. tanh: Cephes' single-precision polynomials (Moshier, netlib.org/cephes); erf: Eigen's
// rational function (eigen.tuxfamily.org, MathFunctionsImpl.h); with fused multiply-adds.
#pragma once

#include "tally/ops/elementwise_math.h"
#include "tally/ops/simd.h"

namespace tally::TALLY_ISA {

TALLY_INLINE double exp_of(double x) { return __builtin_exp(x); }
TALLY_INLINE double fmadd(double a, double b, double c) { return __builtin_fma(a, b, c); }
TALLY_INLINE float broadcast_as(float v, float) { return v; }
TALLY_INLINE double broadcast_as(double v, double) { return v; }
TALLY_INLINE Vec broadcast_as(float v, Vec) { return broadcast(v); }

TALLY_INLINE float sqrt_of(float x) { return __builtin_sqrtf(x); }
TALLY_INLINE double sqrt_of(double x) { return __builtin_sqrt(x); }
TALLY_INLINE Vec sqrt_of(Vec x) {
  Vec y{};
  for (int i = 0; i < kLanes; ++i) y[i] = __builtin_sqrtf(x[i]);
  return y;
}

TALLY_INLINE float log_of(float x) { return __builtin_logf(x); }  // not a lane's bits: these are the C library's
TALLY_INLINE double log_of(double x) { return __builtin_log(x); }

TALLY_INLINE float abs_of(float x) { return __builtin_fabsf(x); }
TALLY_INLINE Vec abs_of(Vec x) { return from_bits(bits_of(x) & 0x7FFFFFFFu); }
TALLY_INLINE double abs_of(double x) { return __builtin_fabs(x); }
// |magnitude| with the sign of x
TALLY_INLINE double with_sign(double magnitude, double x) { return __builtin_copysign(magnitude, x); }
TALLY_INLINE float with_sign(float magnitude, float x) { return __builtin_copysignf(magnitude, x); }
TALLY_INLINE Vec with_sign(Vec magnitude, Vec x) {
  return from_bits((bits_of(magnitude) & 0x7FFFFFFFu) | (bits_of(x) & 0x80000000u));
}

// p[0] x^(n-1) + ... + p[n-1]
template <class N, int n>
TALLY_INLINE N horner(N x, const float (&p)[n]) {
  N y = broadcast_as(p[0], x);
  for (int i = 1; i < n; ++i) y = fmadd(y, x, broadcast_as(p[i], x));
  return y;
}

constexpr float kTanhSmall[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                                -3.33332819422e-1f};
template <class N>
TALLY_INLINE N tanh_float(N x) {
  const N a = abs_of(x), s = x * x;
  const N small = fmadd(horner(s, kTanhSmall) * s, a, a);
  const N large = 1.0f - 2.0f / (exp_of(a + a) + 1.0f);
  return with_sign(a < 0.625f ? small : large, x);
}
TALLY_INLINE float tanh_of(float x) { return tanh_float(x); }
TALLY_INLINE Vec tanh_of(Vec x) { return tanh_float(x); }
TALLY_INLINE double tanh_of(double x) { return __builtin_tanh(x); }

// x p(x^2) / q(x^2) on [-4, 4], behind which erf rounds to 1: within 3.8e-7 of the truth, absolute and relative.
constexpr float kErfP[] = {-2.72614225801306e-10f, 2.77068142495902e-8f,  -2.10102402082508e-6f, -5.69250639462346e-5f,
                           -7.34990630326855e-4f,  -2.95459980854025e-3f, -1.60960333262415e-2f};
constexpr float kErfQ[] = {-1.45660718464996e-5f, -2.13374055278905e-4f, -1.68282697438203e-3f, -7.37332916720468e-3f,
                           -1.42647390514189e-2f};
template <class N>
TALLY_INLINE N erf_float(N x) {
  x = min2(broadcast_as(4.0f, x), max2(broadcast_as(-4.0f, x), x));
  const N s = x * x;
  return x * horner(s, kErfP) / horner(s, kErfQ);
}
TALLY_INLINE float erf_of(float x) { return erf_float(x); }
TALLY_INLINE Vec erf_of(Vec x) { return erf_float(x); }
TALLY_INLINE double erf_of(double x) { return __builtin_erf(x); }

// ln x within 1.5 units of the last place (Cephes' logf): x = 2^e m with m in [sqrt(1/2), sqrt(2)), a polynomial of
// m - 1, and e ln 2 in two parts. Subnormal numbers are scaled first.
constexpr float kLogP[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
                           -1.6668057665e-1f, 2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
TALLY_INLINE Vec log_of(Vec x) {
  const VecI tiny = x < 0x1p-126f;
  const VecU u = bits_of(tiny ? x * 0x1p23f : x);
  const VecU shifted = u + (0x3F800000u - 0x3F3504F3u);  // the exponent changes at sqrt(1/2)
  const VecI exponent = __builtin_bit_cast(VecI, (shifted >> 23) - (tiny ? VecU{} + 150u : VecU{} + 127u));
  const Vec e = __builtin_convertvector(exponent, Vec);
  const Vec z = from_bits((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f, s = z * z;
  Vec y = horner(z, kLogP) * z * s;
  y = fmadd(e, broadcast(-2.12194440e-4f), y);
  y = fmadd(s, broadcast(-0.5f), y);
  y = fmadd(e, broadcast(0.693359375f), z + y);
  const Vec inf = broadcast(__builtin_inff());
  y = x == inf ? inf : (x == 0.0f ? -inf : y);
  return x >= 0.0f ? y : broadcast(__builtin_nanf(""));
}

// Whole numbers: adding and taking off 2^23 (2^52) rounds the magnitude to nearest even. The sign of zero stays.
TALLY_INLINE double round_of(double x) {
  const double a = abs_of(x), r = (a + 0x1p52) - 0x1p52;
  return with_sign(a < 0x1p52 ? r : a, x);
}
template <class N>
TALLY_INLINE N round_of(N x) {
  const N a = abs_of(x), r = (a + 0x1p23f) - 0x1p23f;
  return with_sign(a < 0x1p23f ? r : a, x);
}
template <class N>
TALLY_INLINE N floor_of(N x) {
  const N r = round_of(x);
  return r > x ? r - 1.0f : r;
}
template <class N>
TALLY_INLINE N ceil_of(N x) {
  const N r = round_of(x);
  return with_sign(r < x ? r + 1.0f : r, x);
}
template <class N>
TALLY_INLINE N trunc_of(N x) {
  return with_sign(floor_of(abs_of(x)), x);
}

// f of every lane by itself.
template <class F>
TALLY_INLINE Vec by_lane(Vec x, const F& f) {
  Vec y{};
  for (int i = 0; i < kLanes; ++i) y[i] = f(x[i]);
  return y;
}
template <class F>
TALLY_INLINE Vec by_lane(Vec a, Vec b, const F& f) {
  Vec y{};
  for (int i = 0; i < kLanes; ++i) y[i] = f(a[i], b[i]);
  return y;
}

// sin(x + quarter * pi / 2), |x| < 8192: x less the nearest multiple of pi / 2, which is taken in three parts, then
// Cephes' polynomials on [-pi / 4, pi / 4].
constexpr float kSinP[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
constexpr float kCosP[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
constexpr float kSinLimit = 8192.0f;
TALLY_INLINE Vec sin_in_range(Vec x, uint32_t quarter) {
  const Vec shifted = fmadd(x, broadcast(0x1.45f306p-1f), broadcast(0x1.8p+23f)), n = shifted - 0x1.8p+23f;
  Vec r = fmadd(n, broadcast(-0x1.921fb6p+0f), x);
  r = fmadd(n, broadcast(0x1.777a5cp-25f), r);
  r = fmadd(n, broadcast(0x1.ee59dap-50f), r);
  const VecU q = bits_of(shifted) + quarter;
  const Vec s = r * r;
  const Vec sine = fmadd(horner(s, kSinP) * s, r, r);
  const Vec cosine = fmadd(horner(s, kCosP) * s, s, fmadd(s, broadcast(-0.5f), broadcast(1.0f)));
  const Vec y = (q & 1u) != 0u ? cosine : sine;
  return from_bits(bits_of(y) ^ ((q & 2u) << 30));
}
TALLY_INLINE bool all_of(VecI test) {  // of a comparison
#if defined(TALLY_SIMD_V4)
  return _mm512_movepi32_mask(__builtin_bit_cast(__m512i, test)) == 0xFFFF;
#elif defined(TALLY_SIMD_V3)
  return _mm256_movemask_ps(__builtin_bit_cast(__m256, test)) == 0xFF;
#else
  int32_t all = -1;
  for (int i = 0; i < kLanes; ++i) all &= test[i];
  return all != 0;
#endif
}
TALLY_INLINE bool all_below(Vec magnitude, float limit) { return all_of(magnitude < limit); }  // false for NaN
TALLY_INLINE Vec sin_of(Vec x) {
  if (all_below(abs_of(x), kSinLimit)) return sin_in_range(x, 0);
  const Vec y = sin_in_range(x, 0);
  return abs_of(x) < kSinLimit ? y : by_lane(x, [](float v) { return __builtin_sinf(v); });
}
TALLY_INLINE Vec cos_of(Vec x) {
  if (all_below(abs_of(x), kSinLimit)) return sin_in_range(x, 1);
  const Vec y = sin_in_range(x, 1);
  return abs_of(x) < kSinLimit ? y : by_lane(x, [](float v) { return __builtin_cosf(v); });
}
TALLY_INLINE double sin_of(double x) { return __builtin_sin(x); }
TALLY_INLINE double cos_of(double x) { return __builtin_cos(x); }

// ln(1 + x): of u = 1 + x, and what u lost of x.
TALLY_INLINE Vec log1p_of(Vec x) {
  const Vec u = x + 1.0f, y = log_of(u);
  return abs_of(y) < __builtin_inff() ? y + (x - (u - 1.0f)) / u : y;
}
TALLY_INLINE double log1p_of(double x) { return __builtin_log1p(x); }

// e^x - 1 within 5e-7: near 0 by exp_of's polynomial without its 1.
TALLY_INLINE Vec expm1_of(Vec x) {
  using namespace exp_detail;
  Vec q = fmadd(broadcast(kC[4]), x, broadcast(kC[3]));
  q = fmadd(q, x, broadcast(kC[2]));
  q = fmadd(q, x, broadcast(kC[1]));
  q = fmadd(q, x, broadcast(kC[0]));
  const Vec small = fmadd(q, x * x, x);
  return abs_of(x) < 0.34f ? small : exp_of(x) - 1.0f;
}
TALLY_INLINE double expm1_of(double x) { return __builtin_expm1(x); }

// x^y = e^(y ln |x|) in f64 without fused operations, which every instruction set rounds alike; so the f32 is right but
// for the last place at most. ln m = 2 artanh((m - 1) / (m + 1)). Zeros, infinities and NaN are the C library's.
// Half of the lanes at a time, whose f64 fill a register; a whole number becomes one of f64 as the low bits of 2^52.
using HalfF = float __attribute__((vector_size(2 * kLanes)));
using VecD = double __attribute__((vector_size(4 * kLanes)));
using VecL = uint64_t __attribute__((vector_size(4 * kLanes)));
TALLY_INLINE HalfF pow_half(HalfF x, HalfF y) {
  constexpr uint64_t kTwo52 = 0x4330000000000000;
  const VecL bits = __builtin_bit_cast(VecL, __builtin_convertvector(x, VecD));
  const VecL shifted = bits + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD);  // the exponent changes at sqrt(1/2)
  const VecD e = __builtin_bit_cast(VecD, (shifted >> 52) | kTwo52) - (0x1p52 + 1023.0);
  const VecD m = __builtin_bit_cast(VecD, (shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD);
  const VecD s = (m - 1.0) / (m + 1.0), s2 = s * s;
  const VecD s4 = s2 * s2;  // pairs of terms: short chains
  VecD p = (s2 * (1.0 / 13) + 1.0 / 11) * s4 + (s2 * (1.0 / 9) + 1.0 / 7);
  p = p * s4 + (s2 * (1.0 / 5) + 1.0 / 3);
  const VecD ln = e * 0.69314718055994530942 + 2.0 * (s + s * s2 * p);
  VecD t = __builtin_convertvector(y, VecD) * ln;
  t = t > 200.0 ? VecD{} + 200.0 : t;
  t = t < -200.0 ? VecD{} - 200.0 : t;
  const VecD rounded = t * 1.44269504088896340736 + 0x1.8p52, n = rounded - 0x1.8p52;
  const VecD r = t - n * 0.69314718055994530942;
  const VecD r2 = r * r, r4 = r2 * r2;
  const VecD low = (r * (1.0 / 6) + 0.5) * r2 + (r + 1.0);
  const VecD high = (r * (1.0 / 5040) + 1.0 / 720) * r2 + (r * (1.0 / 120) + 1.0 / 24);
  const VecD q = (r4 * (1.0 / 40320) + high) * r4 + low;
  const VecL power = (__builtin_bit_cast(VecL, rounded) - __builtin_bit_cast(uint64_t, 0x1.8p52) + 1023) << 52;
  return __builtin_convertvector(q * __builtin_bit_cast(VecD, power), HalfF);
}
TALLY_INLINE Vec pow_of(Vec x, Vec y) {
  const Vec a = abs_of(x), inf = broadcast(__builtin_inff());
  const VecI plain = (a > 0.0f) & (a < inf) & (abs_of(y) < inf);
  const Vec base = plain ? a : Vec{} + 1.0f, exponent = plain ? y : Vec{};
  HalfF of[2], to[2];
  __builtin_memcpy(of, &base, sizeof of);
  __builtin_memcpy(to, &exponent, sizeof to);
  for (int i = 0; i < 2; ++i) of[i] = pow_half(of[i], to[i]);
  Vec z;
  __builtin_memcpy(&z, of, sizeof z);
  // Of a negative x: whole powers only, odd ones negative.
  const Vec half = y * 0.5f;
  const Vec signed_z = round_of(half) == half ? z : -z;
  z = x < 0.0f ? (round_of(y) == y ? signed_z : broadcast(__builtin_nanf(""))) : z;
  if (all_of(plain)) return z;
  return plain ? z : by_lane(x, y, [](float v, float w) { return __builtin_powf(v, w); });
}

// Python's quotient of floats and the remainder: exact by a fused multiply-add, as the rounded a / b is never below the
// true floor and at most 1 above. Quotients beyond 2^22, zeros and what is not finite go number by number.
struct Quotient {
  Vec whole, rest;
  bool exact;  // every lane
};
TALLY_INLINE Quotient divide_whole(Vec a, Vec b) {
  const Vec q = floor_of(a / b), r = fmadd(-q, b, a);
  const VecI above = (r != 0.0f) & ((r < 0.0f) ^ (b < 0.0f));
  const Vec whole = above ? q - 1.0f : q, rest = above ? fmadd(-whole, b, a) : r;
  return {whole, rest == 0.0f ? with_sign(Vec{}, a) : rest,
          all_below(abs_of(q), 0x1p22f) && all_below(abs_of(b), 0x1p100f)};
}

// The functions elementwise_math.h asks of a device.
struct CpuMath {
  template <class N>
  TALLY_INLINE static N exp(N x) {
    return exp_of(x);
  }
  template <class N>
  TALLY_INLINE static N log(N x) {
    return log_of(x);
  }
  template <class N>
  TALLY_INLINE static N sqrt(N x) {
    return sqrt_of(x);
  }
  template <class N>
  TALLY_INLINE static N tanh(N x) {
    return tanh_of(x);
  }
  template <class N>
  TALLY_INLINE static N erf(N x) {
    return erf_of(x);
  }
  template <class N>
  TALLY_INLINE static N abs(N x) {
    return abs_of(x);
  }
  template <class N>
  TALLY_INLINE static N sin(N x) {
    return sin_of(x);
  }
  template <class N>
  TALLY_INLINE static N cos(N x) {
    return cos_of(x);
  }
  template <class N>
  TALLY_INLINE static N floor(N x) {
    return floor_of(x);
  }
  template <class N>
  TALLY_INLINE static N ceil(N x) {
    return ceil_of(x);
  }
  template <class N>
  TALLY_INLINE static N round(N x) {
    return round_of(x);
  }
  template <class N>
  TALLY_INLINE static N trunc(N x) {
    return trunc_of(x);
  }
  template <class N>
  TALLY_INLINE static N with_sign(N magnitude, N x) {
    return TALLY_ISA::with_sign(magnitude, x);
  }
  template <class N>
  TALLY_INLINE static N log1p(N x) {
    return log1p_of(x);
  }
  template <class N>
  TALLY_INLINE static N expm1(N x) {
    return expm1_of(x);
  }
  TALLY_INLINE static double pow(double x, double y) { return __builtin_pow(x, y); }
  TALLY_INLINE static double fmod(double x, double y) { return __builtin_fmod(x, y); }
  TALLY_INLINE static float fmod(float x, float y) { return __builtin_fmodf(x, y); }
  TALLY_INLINE static Vec pow(Vec x, Vec y) { return pow_of(x, y); }
  TALLY_INLINE static double floor_divide(double a, double b) { return floor_divide_numbers<CpuMath>(a, b); }
  TALLY_INLINE static double remainder(double a, double b) { return remainder_of_numbers<CpuMath>(a, b); }
  TALLY_INLINE static Vec floor_divide(Vec a, Vec b) {
    const Quotient q = divide_whole(a, b);
    if (q.exact) return q.whole;
    return by_lane(a, b, [](float x, float y) { return floor_divide_numbers<CpuMath>(x, y); });
  }
  TALLY_INLINE static Vec remainder(Vec a, Vec b) {
    const Quotient q = divide_whole(a, b);
    if (q.exact) return q.rest;
    return by_lane(a, b, [](float x, float y) { return remainder_of_numbers<CpuMath>(x, y); });
  }
};

}  // namespace tally::TALLY_ISA
