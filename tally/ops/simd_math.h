// tanh, erf, log, sqrt for Vec, float and double beside exp_of of simd.h; a float gives the bits of a lane.
// tanh: Cephes' single-precision polynomials (Moshier, netlib.org/cephes); erf: Eigen's rational function
// (eigen.tuxfamily.org, MathFunctionsImpl.h); with fused multiply-adds.
#pragma once

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

TALLY_INLINE float log_of(float x) { return __builtin_logf(x); }
TALLY_INLINE double log_of(double x) { return __builtin_log(x); }
TALLY_INLINE Vec log_of(Vec x) {
  Vec y{};
  for (int i = 0; i < kLanes; ++i) y[i] = __builtin_logf(x[i]);
  return y;
}

TALLY_INLINE float abs_of(float x) { return __builtin_fabsf(x); }
TALLY_INLINE Vec abs_of(Vec x) { return from_bits(bits_of(x) & 0x7FFFFFFFu); }
// |magnitude| with the sign of x
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
};

}  // namespace tally::TALLY_ISA
