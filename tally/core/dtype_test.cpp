// Narrow floats against exact arithmetic: every code of every format against its fields, and rounding at every number,
// every midpoint and the neighbours of both, from f32 and from f64. Integers at the ends of their ranges.
#include "tally/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "tally/core/number.h"
#include "tests/support/support.h"

namespace tally {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// A sign, `exponent` and `mantissa` bits.
struct Format {
  DType dtype;
  int exponent, mantissa, bias;
  uint32_t infinity;  // the first magnitude that is no finite number
  int bits() const { return 1 + exponent + mantissa; }
};
constexpr Format kFormats[] = {
    {DType::kBF16, 8, 7, 127, 0x7F80}, {DType::kF16, 5, 10, 15, 0x7C00}, {DType::kF8E4M3, 4, 3, 7, 0x7F},
    {DType::kF8E5M2, 5, 2, 15, 0x7C},  {DType::kF4E2M1x2, 2, 1, 1, 0x8},
};

// The value of a magnitude from its fields alone, as if no code were special.
double value_of(const Format& f, uint32_t magnitude) {
  const int e = static_cast<int>(magnitude >> f.mantissa), m = static_cast<int>(magnitude & ((1u << f.mantissa) - 1));
  return e == 0 ? std::ldexp(m, 1 - f.bias - f.mantissa) : std::ldexp(m + (1 << f.mantissa), e - f.bias - f.mantissa);
}

double decoded(const Format& f, uint32_t code) {
  if (f.dtype == DType::kF4E2M1x2) return e2m1_to_float(code);
  const uint64_t bits = code;
  return read_number(&bits, f.dtype, 0);
}

uint32_t from_f32(const Format& f, float x, bool saturate) {
  switch (f.dtype) {
    case DType::kBF16:
      return to_bf16(x).bits;
    case DType::kF16:
      return to_f16(x).bits;
    case DType::kF8E4M3:
      return to_f8e4m3(x, saturate).bits;
    case DType::kF8E5M2:
      return to_f8e5m2(x, saturate).bits;
    default:
      return float_to_e2m1(x);
  }
}
uint32_t from_f64(const Format& f, double x, bool saturate) {
  if (f.dtype == DType::kF4E2M1x2) return float_to_e2m1(round_to_odd(x));
  return static_cast<uint32_t>(number_bits(f.dtype, x, saturate));
}

// x, a number that f32 has, and its negative, from both.
void expect_code(const Format& f, double x, uint32_t magnitude, bool saturate) {
  const uint32_t sign = 1u << (f.bits() - 1);
  ASSERT_EQ(static_cast<double>(static_cast<float>(x)), x);
  ASSERT_EQ(from_f32(f, static_cast<float>(x), saturate), magnitude) << name_of(f.dtype) << " of " << x;
  ASSERT_EQ(from_f32(f, static_cast<float>(-x), saturate), magnitude | sign) << name_of(f.dtype) << " of " << -x;
  ASSERT_EQ(from_f64(f, x, saturate), magnitude) << name_of(f.dtype) << " of f64 " << x;
  ASSERT_EQ(from_f64(f, -x, saturate), magnitude | sign) << name_of(f.dtype) << " of f64 " << -x;
}
// Numbers of f64 that f32 does not have: rounding twice, by way of f32, would see a tie.
void expect_wide(const Format& f, double x, uint32_t magnitude, bool saturate) {
  ASSERT_EQ(from_f64(f, x, saturate), magnitude) << name_of(f.dtype) << " of f64 " << x;
}

TEST(SmallFloats, EveryCodeIsItsFields) {
  for (const Format& f : kFormats)
    for (uint32_t code = 0; code < 1u << f.bits(); ++code) {
      const uint32_t magnitude = code & ((1u << (f.bits() - 1)) - 1);
      const double sign = code == magnitude ? 1 : -1, got = decoded(f, code);
      if (magnitude < f.infinity) {
        ASSERT_EQ(got, sign * value_of(f, magnitude)) << name_of(f.dtype) << " " << code;
        ASSERT_EQ(std::signbit(got), sign < 0) << name_of(f.dtype) << " " << code;
        ASSERT_EQ(from_f32(f, static_cast<float>(got), true), code) << name_of(f.dtype);
        ASSERT_EQ(from_f64(f, got, false), code) << name_of(f.dtype);
      } else if (magnitude == f.infinity && f.dtype != DType::kF8E4M3) {
        ASSERT_EQ(got, sign * kInf) << name_of(f.dtype) << " " << code;
        ASSERT_EQ(from_f32(f, static_cast<float>(got), false), code) << name_of(f.dtype);
      } else {
        ASSERT_TRUE(std::isnan(got)) << name_of(f.dtype) << " " << code;
        ASSERT_TRUE(std::isnan(decoded(f, from_f32(f, static_cast<float>(got), true)))) << name_of(f.dtype);
      }
    }
}

TEST(SmallFloats, RoundToNearestEvenAtEveryMidpoint) {
  for (const Format& f : kFormats)
    for (uint32_t low = 0; low + 1 < f.infinity; ++low) {
      const double a = value_of(f, low), b = value_of(f, low + 1), middle = (a + b) / 2;
      const float m = static_cast<float>(middle), inf = std::numeric_limits<float>::infinity();
      ASSERT_NO_FATAL_FAILURE(expect_code(f, middle, low % 2 == 0 ? low : low + 1, true));
      ASSERT_NO_FATAL_FAILURE(expect_code(f, std::nextafterf(m, 0.0f), low, true));
      ASSERT_NO_FATAL_FAILURE(expect_code(f, std::nextafterf(m, inf), low + 1, true));
      ASSERT_NO_FATAL_FAILURE(expect_code(f, std::nextafterf(static_cast<float>(b), 0.0f), low + 1, true));
      ASSERT_NO_FATAL_FAILURE(expect_wide(f, std::nextafter(middle, 0.0), low, true));
      ASSERT_NO_FATAL_FAILURE(expect_wide(f, std::nextafter(middle, kInf), low + 1, true));
      ASSERT_NO_FATAL_FAILURE(expect_wide(f, middle * (1 - 0x1p-40), low, true));
      ASSERT_NO_FATAL_FAILURE(expect_wide(f, middle * (1 + 0x1p-40), low + 1, true));
    }
}

TEST(SmallFloats, BeyondTheRange) {
  for (const Format& f : kFormats) {
    const uint32_t most = f.infinity - 1;
    const double last = value_of(f, most), step = last - value_of(f, most - 1), middle = last + step / 2;
    const bool saturates = f.dtype == DType::kF4E2M1x2;  // always
    const bool f8 = f.dtype == DType::kF8E4M3 || f.dtype == DType::kF8E5M2;
    const uint32_t beyond = saturates ? most : f.infinity;
    const uint32_t at_tie = most % 2 == 0 ? most : beyond;
    ASSERT_NO_FATAL_FAILURE(expect_wide(f, std::nextafter(middle, 0.0), most, false));
    ASSERT_NO_FATAL_FAILURE(expect_wide(f, middle, at_tie, false));
    ASSERT_NO_FATAL_FAILURE(expect_wide(f, std::nextafter(middle, kInf), beyond, false));
    for (const double x : {2 * middle, 1e300, kInf}) {
      ASSERT_NO_FATAL_FAILURE(expect_wide(f, x, beyond, false));
      if (f8) {
        ASSERT_NO_FATAL_FAILURE(expect_wide(f, x, most, true));
      }
    }
    if (f.dtype != DType::kF4E2M1x2) {
      EXPECT_TRUE(std::isnan(decoded(f, from_f64(f, kNan, true)))) << name_of(f.dtype);
    }
  }
  EXPECT_EQ(float_to_e2m1(std::nanf("")), 7u);
}

TEST(SmallFloats, ScalesAreThePowersOfTwo) {
  for (uint32_t code = 0; code < 255; ++code) {
    const double value = std::ldexp(1.0, static_cast<int>(code) - 127);
    const auto c = static_cast<uint8_t>(code);
    ASSERT_EQ(to_float(f8e8m0{c}), value);
    ASSERT_EQ(to_f8e8m0(static_cast<float>(value)).bits, c);
    if (code == 254) continue;
    ASSERT_EQ(to_f8e8m0(static_cast<float>(1.5 * value)).bits, c + 1) << code;  // a tie goes up
    ASSERT_EQ(number_bits(DType::kF8E8M0, 1.5 * value * (1 - 0x1p-50)), c) << code;
  }
  EXPECT_TRUE(std::isnan(to_float(f8e8m0{0xFF})));
  EXPECT_EQ(to_f8e8m0(0.0f).bits, 0);
  EXPECT_EQ(to_f8e8m0(std::numeric_limits<float>::max()).bits, 254);
  for (const float x : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()})
    EXPECT_EQ(to_f8e8m0(x).bits, 0xFF) << x;
}

TEST(Numbers, IntegersKeepTheirDigits) {
  for (const int64_t x : {(int64_t{1} << 53) + 1, -(int64_t{1} << 53) - 1, INT64_MAX, INT64_MIN, int64_t{-1}}) {
    EXPECT_EQ(convert_bits(DType::kI64, &x, DType::kI64, 0), static_cast<uint64_t>(x));
    EXPECT_EQ(convert_bits(DType::kI32, &x, DType::kI64, 0), static_cast<uint32_t>(x));
    EXPECT_EQ(convert_bits(DType::kU8, &x, DType::kI64, 0), static_cast<uint8_t>(x));
    EXPECT_EQ(convert_bits(DType::kBool, &x, DType::kI64, 0), 1u);
    EXPECT_EQ(convert_bits(DType::kF32, &x, DType::kI64, 0), __builtin_bit_cast(uint32_t, static_cast<float>(x)));
  }
  const int32_t minus = -2;
  EXPECT_EQ(convert_bits(DType::kI64, &minus, DType::kI32, 0), static_cast<uint64_t>(int64_t{-2}));
}

// One above a tie of bf16, f16 and f8, in the last of 63 bits: f64 or f32 in between would make it a tie.
TEST(Numbers, IntegersRoundOnce) {
  for (const Format& f : kFormats) {
    if (f.dtype == DType::kF4E2M1x2) continue;
    for (int e = f.mantissa + 2; e < 63; ++e) {
      const int64_t tie = (int64_t{1} << e) + (int64_t{1} << (e - f.mantissa - 1));  // between 1.0 and 1.0 + eps
      const double low = std::ldexp(1.0, e), high = low * (1 + std::ldexp(1.0, -f.mantissa));
      if (high > finfo(f.dtype).max) break;
      const auto got = [&](int64_t x) {
        const uint64_t bits = integer_bits(f.dtype, x);
        return read_number(&bits, f.dtype, 0);
      };
      ASSERT_EQ(got(tie - 1), low) << name_of(f.dtype) << " " << e;
      ASSERT_EQ(got(tie), low) << name_of(f.dtype) << " " << e;
      ASSERT_EQ(got(tie + 1), high) << name_of(f.dtype) << " " << e;
      ASSERT_EQ(got(-tie + 1), -low) << name_of(f.dtype) << " " << e;
      ASSERT_EQ(got(-tie - 1), -high) << name_of(f.dtype) << " " << e;
    }
  }
}

TEST(Numbers, FloatsToIntegersAreDefinedEverywhere) {
  const auto i64 = [](double x) { return static_cast<int64_t>(number_bits(DType::kI64, x)); };
  const auto i32 = [](double x) { return static_cast<int32_t>(number_bits(DType::kI32, x)); };
  const auto u8 = [](double x) { return static_cast<int>(number_bits(DType::kU8, x)); };
  EXPECT_EQ(i64(2.9), 2);
  EXPECT_EQ(i64(-2.9), -2);
  EXPECT_EQ(i64(-0x1p63), INT64_MIN);
  EXPECT_EQ(i64(0x1.fffffffffffffp62), INT64_MAX - 1023);
  EXPECT_EQ(i32(2147483647.9), INT32_MAX);
  EXPECT_EQ(i32(-2147483648.9), INT32_MIN);
  for (const double x : {kNan, kInf, -kInf, 1e300, -1e300, 0x1p63}) {
    EXPECT_EQ(i64(x), INT64_MIN) << x;
    EXPECT_EQ(i32(x), INT32_MIN) << x;
    EXPECT_EQ(u8(x), 0) << x;
    EXPECT_EQ(number_bits(DType::kBool, x), 1u) << x;
  }
  EXPECT_EQ(u8(300.0), 44);  // the low bits, as PyTorch
  EXPECT_EQ(u8(-1.0), 255);
  EXPECT_EQ(number_bits(DType::kI8, -129.0), 127u);
  EXPECT_EQ(number_bits(DType::kBool, 0.0), 0u);
  EXPECT_EQ(number_bits(DType::kBool, -0.0), 0u);
  EXPECT_EQ(number_bits(DType::kBool, 1e-300), 1u);
}

TEST(DTypes, LimitsOfFloats) {
  for (const Format& f : kFormats) {
    const FloatInfo i = finfo(f.dtype);
    EXPECT_EQ(i.max, value_of(f, f.infinity - 1)) << name_of(f.dtype);
    EXPECT_EQ(i.min, -i.max);
    EXPECT_EQ(i.tiny, value_of(f, 1u << f.mantissa)) << name_of(f.dtype);
    EXPECT_EQ(i.eps, std::ldexp(1.0, -f.mantissa)) << name_of(f.dtype);
    EXPECT_EQ(i.smallest_subnormal, value_of(f, 1)) << name_of(f.dtype);
    EXPECT_EQ(i.bits, f.bits()) << name_of(f.dtype);
  }
  EXPECT_EQ(finfo(DType::kF64).max, std::numeric_limits<double>::max());
  EXPECT_EQ(finfo(DType::kF64).smallest_subnormal, std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(finfo(DType::kF32).eps, std::numeric_limits<float>::epsilon());
  EXPECT_EQ(finfo(DType::kF8E8M0).max, 0x1p127);
  test::expect_error([] { finfo(DType::kI32); }, "finfo: i32 is not a floating dtype; use iinfo");
  test::expect_error([] { iinfo(DType::kF16); }, "iinfo: f16 is not an integer dtype; use finfo");
  test::expect_error([] { iinfo(DType::kBool); }, "iinfo: bool is not an integer dtype");
}

TEST(DTypes, LimitsOfIntegers) {
  const std::map<DType, std::pair<int64_t, int64_t>> want = {{DType::kI64, {INT64_MIN, INT64_MAX}},
                                                             {DType::kI32, {INT32_MIN, INT32_MAX}},
                                                             {DType::kI16, {-32768, 32767}},
                                                             {DType::kU16, {0, 65535}},
                                                             {DType::kI8, {-128, 127}},
                                                             {DType::kU8, {0, 255}}};
  for (const auto& [t, ends] : want) {
    EXPECT_EQ(iinfo(t).min, ends.first) << name_of(t);
    EXPECT_EQ(iinfo(t).max, ends.second) << name_of(t);
    EXPECT_EQ(iinfo(t).bits, 8 * item_size(t)) << name_of(t);
  }
}

}  // namespace
}  // namespace tally
