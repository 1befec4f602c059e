// Philox's words and the formula of a normal number on vectors of 64-bit lanes: the operations of rng.h and
// random_math.h one for one, so that every lane has their bits. For random_cpu.cpp only.
#pragma once

#include "tally/ops/random_math.h"
#include "tally/ops/simd.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int kWideLanes = kLanes / 2;
using WideU = uint64_t __attribute__((vector_size(4 * kLanes)));
using WideI = int64_t __attribute__((vector_size(4 * kLanes)));
using WideD = double __attribute__((vector_size(4 * kLanes)));

// The product of the lanes' lower halves.
#if defined(TALLY_SIMD_V4)
TALLY_INLINE WideU mul_halves(WideU a, WideU b) {
  return __builtin_bit_cast(
      WideU, _mm512_maskz_mul_epu32(0xFF, __builtin_bit_cast(__m512i, a), __builtin_bit_cast(__m512i, b)));
}
#elif defined(TALLY_SIMD_V3)
TALLY_INLINE WideU mul_halves(WideU a, WideU b) {
  return __builtin_bit_cast(WideU, _mm256_mul_epu32(__builtin_bit_cast(__m256i, a), __builtin_bit_cast(__m256i, b)));
}
#else
TALLY_INLINE WideU mul_halves(WideU a, WideU b) { return (a & 0xFFFFFFFFull) * (b & 0xFFFFFFFFull); }
#endif

// philox() at the positions `at`; the words are the lanes' lower halves, what is above them is left over.
TALLY_INLINE void philox_lanes(uint64_t seed, uint64_t stream, WideU at, WideU (&word)[4]) {
  constexpr WideU kFirst = WideU{} + 0xD2511F53u, kSecond = WideU{} + 0xCD9E8D57u;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  WideU c0 = at, c1 = at >> 32, c2 = WideU{} + stream, c3 = WideU{} + (stream >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const WideU p0 = mul_halves(c0, kFirst), p1 = mul_halves(c2, kSecond);
    c0 = (p1 >> 32) ^ c1 ^ k0, c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ k1, c3 = p0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

// Whole numbers below 2^51 in magnitude as doubles.
TALLY_INLINE WideD number_of(WideI n) {
  constexpr double kShift = 0x1.8p52;
  return __builtin_bit_cast(WideD, n + __builtin_bit_cast(int64_t, kShift)) - kShift;
}

TALLY_INLINE WideD root_of(WideD x) {
#if defined(TALLY_SIMD_V4)
  return _mm512_maskz_sqrt_pd(0xFF, x);
#elif defined(TALLY_SIMD_V3)
  return _mm256_sqrt_pd(x);
#else
  for (int i = 0; i < kWideLanes; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

template <class... C>
TALLY_INLINE WideD poly(WideD z, double first, C... rest) {
  WideD p = WideD{} + first;
  ((p = p * z + rest), ...);
  return p;
}

// draws::log_of, draws::cos_of_turn (of the lower halves) and draws::normal of the words 0 and 1.
TALLY_INLINE WideD log_lanes(WideD x) {
  const WideU bits = __builtin_bit_cast(WideU, x);
  WideD m = __builtin_bit_cast(WideD, (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  const WideI above = m > 1.4142135623730951;
  m = above ? m * 0.5 : m;
  const WideD n = number_of(__builtin_bit_cast(WideI, bits >> 52) - 1023 - above);
  const WideD s = (m - 1.0) / (m + 1.0), z = s * s;
  const WideD p =
      poly(z, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  const WideD tail = s * z * p;
  return n * 0x1.62e42fefap-1 + (n * 0x1.cf79abc9e3b3ap-40 + 2.0 * (s + tail));
}
TALLY_INLINE WideD cos_of_turn_lanes(WideU v) {
  v &= 0xFFFFFFFFull;
  const WideU quarter = (v + 0x20000000u) >> 30;  // 4 is 0
  const WideD angle = number_of(__builtin_bit_cast(WideI, v - (quarter << 30))) * 0x1.921fb54442d18p-30;
  const WideD z = angle * angle;
  const WideD sine = angle + angle * z *
                                 poly(z, 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                                      1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  const WideD cosine = 1.0 + z * poly(z, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
                                      1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5);
  const WideD x = (quarter & 1u) != 0u ? sine : cosine;
  return __builtin_bit_cast(WideD, __builtin_bit_cast(WideU, x) ^ (((quarter + 1u) & 2u) << 62));  // - of 1 and 2
}
TALLY_INLINE WideD normal_lanes(WideU first, WideU second) {
  const WideD u = (number_of(__builtin_bit_cast(WideI, first & 0xFFFFFFFFull)) + 1.0) * 0x1p-32;
  return root_of(-2.0 * log_lanes(u)) * cos_of_turn_lanes(second);
}

// draws::open_uniform of the same words.
TALLY_INLINE WideD open_uniform_lanes(WideU first, WideU second) {
  const WideU bits = ((first << 32) | (second & 0xFFFFFFFFull)) >> 11;
  const WideD high = number_of(__builtin_bit_cast(WideI, bits >> 32));
  const WideD low = number_of(__builtin_bit_cast(WideI, bits & 0xFFFFFFFFull));
  return (high * 0x1p32 + low + 0.5) * 0x1p-53;
}

// draws::normal_quantile: the middle by vectors, the tails number by number.
TALLY_INLINE WideD quantile_lanes(WideD p) {
  const WideD q = p - 0.5, r = 0.180625 - q * q;
  const WideD over =
      poly(r, 2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
           1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080);
  const WideD under =
      poly(r, 5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
           5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0);
  WideD x = q * over / under;
  for (int i = 0; i < kWideLanes; ++i)
    if (!(q[i] <= 0.425 && q[i] >= -0.425)) x[i] = draws::normal_quantile(p[i]);
  return x;
}

}  // namespace
}  // namespace tally::TALLY_ISA
