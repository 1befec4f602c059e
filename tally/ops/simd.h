// Vectors of f32 for kernel files. A kernel file is compiled once per instruction set with -DTALLY_ISA=isa_base, isa_v3
// or isa_v4 and sees kLanes = 4, 8 or 16 floats a vector; arithmetic (+ - * / and comparisons) is GCC's own on vectors.
// Every function gives the same bits in every instruction set: fmadd() rounds once everywhere (the baseline, which has
// no such instruction, computes it in f64 with rounding to odd), exp() is one explicit polynomial, and a row reduction
// always has 16 interleaved partial results joined in one fixed tree, so its bits depend on the values and n only.
// All is inlined by force: a copy shared between instruction sets would crash on older processors.
// Sources: rounding to odd, Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 2008;
// exp by Cody and Waite's reduction with a relative-error minimax polynomial of degree 6.
#pragma once

#ifndef TALLY_ISA
#error "simd.h belongs into kernel files, which are compiled with -DTALLY_ISA=<namespace>"
#endif

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "tally/base/rng.h"  // TALLY_INLINE
#include "tally/core/view.h"

namespace tally::TALLY_ISA {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define TALLY_SIMD_V4 1
constexpr int kLanes = 16;
#elif defined(__AVX2__) && defined(__FMA__)
#define TALLY_SIMD_V3 1
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(4 * kLanes)));
using VecU = uint32_t __attribute__((vector_size(4 * kLanes)));    // bits, and indices
using VecI = int32_t __attribute__((vector_size(4 * kLanes)));     // results of comparisons: 0 or -1
using VecU16 = uint16_t __attribute__((vector_size(2 * kLanes)));  // bits of bf16

TALLY_INLINE VecU bits_of(Vec x) { return __builtin_bit_cast(VecU, x); }
TALLY_INLINE Vec from_bits(VecU x) { return __builtin_bit_cast(Vec, x); }
TALLY_INLINE Vec broadcast(float x) { return x - Vec{}; }
TALLY_INLINE VecU broadcast_u(uint32_t x) { return x - VecU{}; }

// ---- loads and stores: any alignment; bf16 and f16 are widened exactly and rounded to nearest even

TALLY_INLINE Vec load(const float* p) {
  Vec x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
TALLY_INLINE void store(float* p, Vec x) { __builtin_memcpy(p, &x, sizeof x); }

#if defined(TALLY_SIMD_V4)
TALLY_INLINE Vec widen(VecU16 x) {
  const __m512i u = _mm512_maskz_cvtepu16_epi32(0xFFFF, __builtin_bit_cast(__m256i, x));
  return from_bits(__builtin_bit_cast(VecU, u) << 16);
}
#elif defined(TALLY_SIMD_V3)
TALLY_INLINE Vec widen(VecU16 x) {
  const __m256i u = _mm256_cvtepu16_epi32(__builtin_bit_cast(__m128i, x));
  return from_bits(__builtin_bit_cast(VecU, u) << 16);
}
#else
TALLY_INLINE Vec widen(VecU16 x) { return from_bits(__builtin_convertvector(x, VecU) << 16); }
#endif
TALLY_INLINE VecU16 narrow(Vec x) {  // to_bf16 of view.h on every lane
  const VecU u = bits_of(x);
  const VecU rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const VecU nan = (u >> 16) | 0x40u;
  return __builtin_convertvector((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded, VecU16);
}
TALLY_INLINE Vec load(const bf16* p) {
  VecU16 x;
  __builtin_memcpy(&x, p, sizeof x);
  return widen(x);
}
TALLY_INLINE void store(bf16* p, Vec x) {
  const VecU16 y = narrow(x);
  __builtin_memcpy(p, &y, sizeof y);
}

#if defined(TALLY_SIMD_V4)
TALLY_INLINE Vec load(const f16* p) {
  return _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TALLY_INLINE void store(f16* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(TALLY_SIMD_V3)
TALLY_INLINE Vec load(const f16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
TALLY_INLINE void store(f16* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
#else
TALLY_INLINE Vec load(const f16* p) {
  Vec x;
  for (int i = 0; i < kLanes; ++i) x[i] = to_float(p[i]);
  return x;
}
TALLY_INLINE void store(f16* p, Vec x) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_f16(x[i]);
}
#endif

// The first n lanes (0 <= n < kLanes), the others zero; nothing behind p[n - 1] is touched.
#if defined(TALLY_SIMD_V4)
TALLY_INLINE Vec load_partial(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p);
}
TALLY_INLINE Vec load_partial(const bf16* p, int64_t n) {
  const __m256i x = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p);
  return widen(__builtin_bit_cast(VecU16, x));
}
TALLY_INLINE void store_partial(float* p, Vec x, int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), x);
}
#else
#if defined(TALLY_SIMD_V3)
TALLY_INLINE __m256i lane_mask(int64_t n) {
  constexpr VecI kIndex = {0, 1, 2, 3, 4, 5, 6, 7};
  return __builtin_bit_cast(__m256i, kIndex < (VecI{} + static_cast<int32_t>(n)));
}
TALLY_INLINE Vec load_partial(const float* p, int64_t n) { return _mm256_maskload_ps(p, lane_mask(n)); }
TALLY_INLINE void store_partial(float* p, Vec x, int64_t n) { _mm256_maskstore_ps(p, lane_mask(n), x); }
#else
TALLY_INLINE Vec load_partial(const float* p, int64_t n) {
  Vec x{};
  for (int64_t i = 0; i < n; ++i) x[i] = p[i];
  return x;
}
TALLY_INLINE void store_partial(float* p, Vec x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = x[i];
}
#endif
TALLY_INLINE Vec load_partial(const bf16* p, int64_t n) {
  VecU16 x{};
  for (int64_t i = 0; i < n; ++i) x[i] = p[i].bits;
  return widen(x);
}
#endif
TALLY_INLINE Vec load_partial(const f16* p, int64_t n) {
  Vec x{};
  for (int64_t i = 0; i < n; ++i) x[i] = to_float(p[i]);
  return x;
}
TALLY_INLINE void store_partial(bf16* p, Vec x, int64_t n) {
  const VecU16 y = narrow(x);
  for (int64_t i = 0; i < n; ++i) p[i].bits = y[i];
}

// The same names on one element, so that a kernel's tail can be a scalar loop.
TALLY_INLINE float load_one(const float* p) { return *p; }
TALLY_INLINE float load_one(const bf16* p) { return to_float(*p); }
TALLY_INLINE float load_one(const f16* p) { return to_float(*p); }
TALLY_INLINE void store_one(float* p, float x) { *p = x; }
TALLY_INLINE void store_one(bf16* p, float x) { *p = to_bf16(x); }
TALLY_INLINE void store_one(f16* p, float x) { *p = to_f16(x); }

// ---- a * b + c rounded once

#if defined(TALLY_SIMD_V4) || defined(TALLY_SIMD_V3)
TALLY_INLINE float fmadd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#if defined(TALLY_SIMD_V4)
TALLY_INLINE Vec fmadd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
#else
TALLY_INLINE Vec fmadd(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
#endif
#else
using VecD2 = double __attribute__((vector_size(16)));
using VecI2 = int64_t __attribute__((vector_size(16)));
using VecF2 = float __attribute__((vector_size(8)));

// a * b is exact in f64. The sum is taken with its error (Knuth); an inexact sum whose last bit is 0 moves one step
// towards the truth, after which rounding to f32 cannot round twice. NaN and infinities have no finite error and stay.
TALLY_INLINE VecF2 fmadd2(VecF2 a, VecF2 b, VecF2 c) {
  const VecD2 p = __builtin_convertvector(a, VecD2) * __builtin_convertvector(b, VecD2);
  const VecD2 q = __builtin_convertvector(c, VecD2);
  const VecD2 s = p + q, t = s - p;
  const VecD2 error = (p - (s - t)) + (q - t);
  const VecI2 bits = __builtin_bit_cast(VecI2, s);
  const VecI2 inexact = (error < 0) | (error > 0), inward = (error < 0) ^ (s < 0);
  const VecI2 step = (inward | 1) & inexact & ((bits & 1) - 1);  // -1 towards zero, 1 away from it, 0 none
  return __builtin_convertvector(__builtin_bit_cast(VecD2, bits + step), VecF2);
}
TALLY_INLINE Vec fmadd(Vec a, Vec b, Vec c) {
  const VecF2 low = fmadd2(__builtin_shufflevector(a, a, 0, 1), __builtin_shufflevector(b, b, 0, 1),
                           __builtin_shufflevector(c, c, 0, 1));
  const VecF2 high = fmadd2(__builtin_shufflevector(a, a, 2, 3), __builtin_shufflevector(b, b, 2, 3),
                            __builtin_shufflevector(c, c, 2, 3));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3);
}
TALLY_INLINE float fmadd(float a, float b, float c) { return fmadd2(VecF2{a, a}, VecF2{b, b}, VecF2{c, c})[0]; }
#endif

// ---- max and min: of two equal values or where one is NaN, the second (as the x86 instruction has it)

TALLY_INLINE float max2(float a, float b) { return a > b ? a : b; }
TALLY_INLINE float min2(float a, float b) { return a < b ? a : b; }
#if defined(TALLY_SIMD_V4)
TALLY_INLINE Vec max2(Vec a, Vec b) { return _mm512_maskz_max_ps(0xFFFF, a, b); }  // the plain form warns in GCC 12
TALLY_INLINE Vec min2(Vec a, Vec b) { return _mm512_maskz_min_ps(0xFFFF, a, b); }
#elif defined(TALLY_SIMD_V3)
TALLY_INLINE Vec max2(Vec a, Vec b) { return _mm256_max_ps(a, b); }
TALLY_INLINE Vec min2(Vec a, Vec b) { return _mm256_min_ps(a, b); }
#else
TALLY_INLINE Vec max2(Vec a, Vec b) { return a > b ? a : b; }
TALLY_INLINE Vec min2(Vec a, Vec b) { return a < b ? a : b; }
#endif

// ---- exp

namespace exp_detail {
constexpr float kLowest = -104.0f, kHighest = 89.0f;  // exp is 0 and infinite from here on
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kRound = 0x1.8p+23f;  // adding it rounds to a whole number in the low bits
constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;  // n * kLn2High is exact
constexpr float kC[] = {0x1.fffffcp-2f, 0x1.55549p-3f, 0x1.5558f8p-5f, 0x1.123b04p-7f, 0x1.6a225p-10f};
}  // namespace exp_detail

// e^x within 1.2e-7 of the truth (relative; subnormal results within half of the smallest subnormal more).
// exp(-inf) = 0, exp(x >= 88.73) = inf, NaN stays NaN. `exp_of` on a float gives the bits of a lane.
// x = n ln 2 + r; e^r = 1 + (r + r^2 q(r)); times 2^n in two steps, so that n may leave the range of one exponent.
TALLY_INLINE Vec exp_of(Vec x) {
  using namespace exp_detail;
  x = min2(broadcast(kHighest), max2(broadcast(kLowest), x));
  const Vec shifted = fmadd(x, broadcast(kLog2E), broadcast(kRound));
  const Vec n = shifted - kRound;
  const Vec r = fmadd(n, broadcast(-kLn2Low), fmadd(n, broadcast(-kLn2High), x));
  Vec q = broadcast(kC[4]);
  q = fmadd(q, r, broadcast(kC[3]));
  q = fmadd(q, r, broadcast(kC[2]));
  q = fmadd(q, r, broadcast(kC[1]));
  q = fmadd(q, r, broadcast(kC[0]));
  const Vec y = fmadd(q, r * r, r) + 1.0f;
#if defined(TALLY_SIMD_V4)
  return _mm512_maskz_scalef_ps(0xFFFF, y, n);  // the same bits: the first of the two products below is exact
#endif
  const VecI whole = __builtin_bit_cast(VecI, bits_of(shifted) - __builtin_bit_cast(uint32_t, kRound));
  const VecI half = whole >> 1;
  const VecU first = (__builtin_bit_cast(VecU, half) + 127u) << 23;
  const VecU second = (__builtin_bit_cast(VecU, whole) - __builtin_bit_cast(VecU, half) + 127u) << 23;
  return y * from_bits(first) * from_bits(second);
}
TALLY_INLINE float exp_of(float x) {
  using namespace exp_detail;
  x = min2(kHighest, max2(kLowest, x));
  const float shifted = fmadd(x, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = fmadd(n, -kLn2Low, fmadd(n, -kLn2High, x));
  const float q = fmadd(fmadd(fmadd(fmadd(kC[4], r, kC[3]), r, kC[2]), r, kC[1]), r, kC[0]);
  const float y = fmadd(q, r * r, r) + 1.0f;
  const uint32_t whole = __builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, kRound);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(whole) >> 1);
  const float first = __builtin_bit_cast(float, (half + 127u) << 23);
  return y * first * __builtin_bit_cast(float, (whole - half + 127u) << 23);
}

// ---- reductions of a row of n contiguous elements (f32 or bf16): element i goes to partial result i mod 16

constexpr int kPartials = 16 / kLanes;  // vectors that hold the 16 partial results

// ((0 with 8) with (4 with 12)) ...: lanes 8 apart first, then 4, 2 and 1.
template <class Join>
TALLY_INLINE float join_partials(const Vec (&partial)[kPartials], Join join) {
  alignas(64) float s[16];
  for (int j = 0; j < kPartials; ++j) store(s + j * kLanes, partial[j]);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) s[i] = join(s[i], s[i + width]);
  return s[0];
}

// step(partial result, index of the first lane's element, vectors' loader) is called for whole vectors and, with
// lanes past n filled by the caller's neutral element, for the tail.
template <class T>
TALLY_INLINE Vec load_padded(const T* x, int64_t i, int64_t n, float neutral) {
  if (i + kLanes <= n) return load(x + i);
  Vec v = broadcast(neutral);
  for (int64_t j = 0; i + j < n; ++j) v[j] = load_one(x + i + j);
  return v;
}

template <class T>
TALLY_INLINE float row_sum(const T* x, int64_t n) {
  Vec partial[kPartials] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < kPartials; ++j) partial[j] += load(x + i + j * kLanes);
  if (i < n)
    for (int j = 0; j < kPartials; ++j) partial[j] += load_padded(x, i + j * kLanes, n, 0.0f);
  return join_partials(partial, [](float a, float b) { return a + b; });
}

// Sum of x[i] * y[i]; every partial result is one chain of fused multiply-adds.
template <class T, class U>
TALLY_INLINE float row_dot(const T* x, const U* y, int64_t n) {
  Vec partial[kPartials] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < kPartials; ++j)
      partial[j] = fmadd(load(x + i + j * kLanes), load(y + i + j * kLanes), partial[j]);
  if (i < n)
    for (int j = 0; j < kPartials; ++j)
      partial[j] = fmadd(load_padded(x, i + j * kLanes, n, 0.0f), load_padded(y, i + j * kLanes, n, 0.0f), partial[j]);
  return join_partials(partial, [](float a, float b) { return a + b; });
}

// The largest element; NaN is passed over; -inf for n = 0.
template <class T>
TALLY_INLINE float row_max(const T* x, int64_t n) {
  Vec partial[kPartials];
  for (Vec& p : partial) p = broadcast(-__builtin_inff());
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < kPartials; ++j) partial[j] = max2(load(x + i + j * kLanes), partial[j]);
  if (i < n)
    for (int j = 0; j < kPartials; ++j)
      partial[j] = max2(load_padded(x, i + j * kLanes, n, -__builtin_inff()), partial[j]);
  return join_partials(partial, [](float a, float b) { return max2(b, a); });
}

}  // namespace tally::TALLY_ISA
