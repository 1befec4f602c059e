// Floats of 16, 8 and 4 bits. Conversion from f32 rounds to nearest even; to f32 it is exact. Formats: bf16 (the upper
// half of an f32), f16 (IEEE 754 binary16), f8 e4m3 and e5m2 (Micikevicius et al. 2022, "FP8 formats for deep
// learning"; e4m3 has no infinity), e2m1 and the scale e8m0 (OCP Microscaling Formats v1.0). From f64 and integers they
// go by way of round_to_odd(), which leaves to the second rounding what a single one would see (Boldo and Melquiond,
// "Emulation of FMA and correctly rounded sums", IEEE TC 2008).
#pragma once

#include <cstdint>

#include "tally/base/rng.h"  // TALLY_INLINE

namespace tally {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct f8e4m3 {  // +-448, NaN 0x7F and 0xFF
  uint8_t bits;
};
struct f8e5m2 {  // +-57344, infinities, NaN
  uint8_t bits;
};
struct f8e8m0 {  // 2^(bits - 127), NaN 0xFF
  uint8_t bits;
};

// The f32 next to x whose last bit is 1, x itself where f32 has it.
TALLY_INLINE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  if (!(back < x || back > x)) return nearest;  // exact, or NaN
  const bool away = (back < 0 ? -back : back) > (x < 0 ? -x : x);
  const uint32_t inward = __builtin_bit_cast(uint32_t, nearest) - (away ? 1u : 0u);
  return __builtin_bit_cast(float, inward | 1u);
}
TALLY_INLINE float round_to_odd(int64_t x) {
  constexpr int64_t kExact = int64_t{1} << 53;
  const int64_t odd = (x & ~int64_t{1023}) | ((x & 1023) != 0 ? 1024 : 0);  // 53 bits at most
  return round_to_odd(static_cast<double>(x > -kExact && x < kExact ? x : odd));
}

TALLY_INLINE float to_float(bf16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }
TALLY_INLINE bf16 to_bf16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return {static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded)};
}

namespace detail {

// The magnitude `u` (bits of a finite f32 >= 0) in a format of kMantissa bits and the given bias, with its exponent
// counting on past what the format has: the caller looks for overflow. Below the smallest normal number the addition of
// a power of two whose last place is the smallest subnormal does the rounding.
template <int kMantissa, int kBias>
TALLY_INLINE uint32_t round_magnitude(uint32_t u) {
  constexpr uint32_t kSmallest = static_cast<uint32_t>(128 - kBias) << 23;
  constexpr uint32_t kMagic = static_cast<uint32_t>(151 - kBias - kMantissa) << 23;
  constexpr int kShift = 23 - kMantissa;
  const float sum = __builtin_bit_cast(float, u) + __builtin_bit_cast(float, kMagic);
  const uint32_t subnormal = __builtin_bit_cast(uint32_t, sum) - kMagic;
  const uint32_t rebased = u - (static_cast<uint32_t>(127 - kBias) << 23);
  const uint32_t normal = (rebased + ((1u << (kShift - 1)) - 1) + ((u >> kShift) & 1u)) >> kShift;
  return u < kSmallest ? subnormal : normal;
}

// The value of a magnitude without special codes.
template <int kMantissa, int kBias>
TALLY_INLINE float widen_magnitude(uint32_t bits) {
  constexpr float kUnit = __builtin_bit_cast(float, static_cast<uint32_t>(128 - kBias - kMantissa) << 23);
  const float subnormal = static_cast<float>(static_cast<int32_t>(bits)) * kUnit;
  const uint32_t normal = (bits << (23 - kMantissa)) + (static_cast<uint32_t>(127 - kBias) << 23);
  return bits < (1u << kMantissa) ? subnormal : __builtin_bit_cast(float, normal);
}

TALLY_INLINE float with_sign(float magnitude, bool negative) { return negative ? -magnitude : magnitude; }
TALLY_INLINE float not_a_number() { return __builtin_bit_cast(float, 0x7FC00000u); }

}  // namespace detail

TALLY_INLINE float to_float(f16 x) {
  const uint32_t m = x.bits & 0x7FFFu;
  const uint32_t special = 0x7F800000u | ((m & 0x3FFu) << 13) | (m > 0x7C00u ? 0x400000u : 0u);  // infinity, quiet NaN
  const float value = m >= 0x7C00u ? __builtin_bit_cast(float, special) : detail::widen_magnitude<10, 15>(m);
  return detail::with_sign(value, (x.bits & 0x8000u) != 0);
}
TALLY_INLINE f16 to_f16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x), sign = (u >> 16) & 0x8000u, m = u & 0x7FFFFFFFu;
  const uint32_t finite = m >= 0x477FF000u ? 0x7C00u : detail::round_magnitude<10, 15>(m);  // from 65520 on: infinity
  const uint32_t nan = 0x7E00u | ((m >> 13) & 0x3FFu);
  return {static_cast<uint16_t>(sign | (m > 0x7F800000u ? nan : finite))};
}

TALLY_INLINE float to_float(f8e4m3 x) {
  const uint32_t m = x.bits & 0x7Fu;
  const float value = m == 0x7Fu ? detail::not_a_number() : detail::widen_magnitude<3, 7>(m);
  return detail::with_sign(value, (x.bits & 0x80u) != 0);
}
// saturate: what lies beyond +-448, infinities too, becomes +-448 (as cvt.satfinite on a card); else NaN.
TALLY_INLINE f8e4m3 to_f8e4m3(float x, bool saturate = true) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x), sign = (u >> 24) & 0x80u, m = u & 0x7FFFFFFFu;
  const uint32_t beyond = saturate ? 0x7Eu : 0x7Fu;
  const uint32_t finite = m > 0x43E80000u ? beyond : detail::round_magnitude<3, 7>(m);  // above 464: no tie to 448
  return {static_cast<uint8_t>(sign | (m > 0x7F800000u ? 0x7Fu : finite))};
}

TALLY_INLINE float to_float(f8e5m2 x) {
  const uint32_t m = x.bits & 0x7Fu;
  const uint32_t special = 0x7F800000u | ((m & 3u) << 21);
  const float value = m >= 0x7Cu ? __builtin_bit_cast(float, special) : detail::widen_magnitude<2, 15>(m);
  return detail::with_sign(value, (x.bits & 0x80u) != 0);
}
// saturate: what lies beyond +-57344, infinities too, becomes +-57344; else infinity.
TALLY_INLINE f8e5m2 to_f8e5m2(float x, bool saturate = true) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x), sign = (u >> 24) & 0x80u, m = u & 0x7FFFFFFFu;
  const uint32_t beyond = saturate ? 0x7Bu : 0x7Cu;
  const uint32_t finite = m >= 0x47700000u ? beyond : detail::round_magnitude<2, 15>(m);  // from 61440 on
  return {static_cast<uint8_t>(sign | (m > 0x7F800000u ? 0x7Fu : finite))};
}

TALLY_INLINE float to_float(f8e8m0 x) {
  const uint32_t u = x.bits == 0 ? 0x00400000u : static_cast<uint32_t>(x.bits) << 23;  // 2^-127 is subnormal
  return x.bits == 0xFFu ? detail::not_a_number() : __builtin_bit_cast(float, u);
}
// The nearest power of two, ties upwards (the even significand, as PyTorch rounds); zero and what is smaller than
// 2^-127 become 2^-127, what is larger than 2^127 becomes it; negative numbers and infinities are NaN.
TALLY_INLINE f8e8m0 to_f8e8m0(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x), m = u & 0x7FFFFFFFu;
  if (m >= 0x7F800000u || (u >> 31 && m != 0)) return {0xFF};
  if (m < 0x00800000u) return {static_cast<uint8_t>(m >= 0x00600000u)};  // 2^-127 is 0x00400000
  const uint32_t e = (m + 0x00400000u) >> 23;
  return {static_cast<uint8_t>(e > 0xFEu ? 0xFEu : e)};
}

// A code of four bits: 0 .5 1 1.5 2 3 4 6 and their negatives.
TALLY_INLINE float e2m1_to_float(uint32_t code) {
  return detail::with_sign(detail::widen_magnitude<1, 1>(code & 7u), (code & 8u) != 0);
}
// Saturates at +-6; NaN becomes 6, as cvt.satfinite does.
TALLY_INLINE uint32_t float_to_e2m1(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x), sign = (u >> 28) & 8u, m = u & 0x7FFFFFFFu;
  if (m > 0x7F800000u) return 7u;
  return sign | (m >= 0x40A00000u ? 7u - (m == 0x40A00000u) : detail::round_magnitude<1, 1>(m));  // 5 ties to 4
}

}  // namespace tally
