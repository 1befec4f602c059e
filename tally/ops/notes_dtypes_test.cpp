// The course's notes on dtypes and on the bytes of tensors, a test a numbered line (docs/course.md lists them). Lines
// where the notes slip are tested at the right value.
#include <bit>
#include <cmath>
#include <limits>

#include "tally/core/ledger.h"
#include "tally/core/number.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

uint64_t bits_of(DType t, double x) { return number_bits(t, x); }
double value_of(DType t, uint64_t bits) { return read_number(&bits, t, 0); }

// x as a tensor of dtype t holds it.
double stored(double x, DType t) { return to(Tensor::from(std::vector<double>{x}, Dims(1)), t).item(); }

// Width of the exponent and the fraction, found from values: 1 is 2^bias in the exponent's field, and its last digit.
struct Layout {
  int exponent, fraction;
};
Layout layout_of(DType t, int bits) {
  const uint64_t one = bits_of(t, 1.0), two = bits_of(t, 2.0);
  const int fraction = std::countr_zero(two - one);  // one step of the exponent
  return {bits - 1 - fraction, fraction};
}
int bias_of(DType t, int fraction) { return static_cast<int>(bits_of(t, 1.0) >> fraction); }

int64_t memory_usage(const Tensor& x) { return x.numel() * x.element_size(); }
Tensor matrix(DType t) { return Tensor::empty(Dims(12288 * 4, 12288), t, kMetaCpu); }
constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

TEST(Notes, A020_DefaultDtypeIsFloat32) {
  const Tensor x = Tensor::empty(Dims(4, 8));
  EXPECT_EQ(x.dtype(), DType::kF32);
  EXPECT_EQ(x.element_size(), 4);
}
TEST(Notes, A021_BytesOfNarrowFloats) {
  EXPECT_EQ(Tensor::empty(Dims(4, 8), DType::kF16).element_size(), 2);
  EXPECT_EQ(Tensor::empty(Dims(4, 8), DType::kBF16).element_size(), 2);
  EXPECT_EQ(Tensor::empty(Dims(4, 8), DType::kF8E4M3).element_size(), 1);
  EXPECT_EQ(Tensor::empty(Dims(4, 8), DType::kF8E5M2).element_size(), 1);
}
TEST(Notes, A022_LayoutOfFloat32) {
  EXPECT_EQ(layout_of(DType::kF32, 32).exponent, 8);
  EXPECT_EQ(layout_of(DType::kF32, 32).fraction, 23);
  EXPECT_EQ(bits_of(DType::kF32, -0.0), 1u << 31);
}
TEST(Notes, A023_LayoutOfFloat16) {
  EXPECT_EQ(layout_of(DType::kF16, 16).exponent, 5);
  EXPECT_EQ(layout_of(DType::kF16, 16).fraction, 10);
  EXPECT_EQ(bits_of(DType::kF16, -0.0), 1u << 15);
}
TEST(Notes, A024_LayoutOfBfloat16) {
  EXPECT_EQ(layout_of(DType::kBF16, 16).exponent, 8);
  EXPECT_EQ(layout_of(DType::kBF16, 16).fraction, 7);
  EXPECT_EQ(bits_of(DType::kBF16, -0.0), 1u << 15);
}
TEST(Notes, A025_ExponentBiases) {
  EXPECT_EQ(bias_of(DType::kF32, 23), 127);
  EXPECT_EQ(bias_of(DType::kF16, 10), 15);
  EXPECT_EQ(bias_of(DType::kBF16, 7), 127);
}
TEST(Notes, A026_LargestFloat32) {
  EXPECT_EQ(finfo(DType::kF32).max, 3.4028234663852886e38);
  EXPECT_EQ(bits_of(DType::kF32, finfo(DType::kF32).max), 0b0'11111110'11111111111111111111111u);
}
TEST(Notes, A027_FormulaOfTheLargestFloat32) {
  EXPECT_EQ(std::pow(2.0, 127) * (1 + (std::pow(2.0, 23) - 1) / std::pow(2.0, 23)), finfo(DType::kF32).max);
}
TEST(Notes, A028_MostNegativeFloat32) { EXPECT_EQ(finfo(DType::kF32).min, -3.4028234663852886e38); }
TEST(Notes, A029_LargestFloat16) {
  EXPECT_EQ(finfo(DType::kF16).max, std::pow(2.0, 15) * (1 + 1023.0 / 1024));
  EXPECT_EQ(finfo(DType::kF16).max, 65504);
  EXPECT_EQ(value_of(DType::kF16, 0x7BFF), 65504);
}
TEST(Notes, A030_MostNegativeFloat16) {
  EXPECT_EQ(finfo(DType::kF16).min, -65504);
  EXPECT_EQ(value_of(DType::kF16, 0xFBFF), -65504);
}
TEST(Notes, A031_TheMinimumIsNotTheSmallestPositiveNumber) {
  EXPECT_EQ(finfo(DType::kF32).tiny, 1.1754943508222875e-38);
  EXPECT_EQ(finfo(DType::kF16).tiny, 6.103515625e-05);
  EXPECT_LT(finfo(DType::kF16).min, 0);
}
TEST(Notes, A032_Float16Underflows) { EXPECT_EQ(stored(1e-8, DType::kF16), 0); }
TEST(Notes, A033_Bfloat16DoesNot) {
  EXPECT_EQ(stored(1e-8, DType::kBF16), 1.0011717677116394e-08);
  EXPECT_EQ(bits_of(DType::kBF16, 1e-8), 0x322Cu);
}
TEST(Notes, A034_Float32HoldsIt) {
  EXPECT_EQ(stored(1e-8, DType::kF32), 9.99999993922529e-09);
  EXPECT_GT(stored(1e-8, DType::kF32), finfo(DType::kF32).tiny);
}
TEST(Notes, A035_UnderflowBoundaryOfFloat16) {
  EXPECT_EQ(stored(0x1p-25, DType::kF16), 0);
  EXPECT_EQ(stored(std::nextafter(0x1p-25, 1.0), DType::kF16), 0x1p-24);
  EXPECT_EQ(finfo(DType::kF16).smallest_subnormal, 0x1p-24);
}
TEST(Notes, A036_OverflowBoundaryOfFloat16) {
  EXPECT_EQ(stored(65519, DType::kF16), 65504);
  EXPECT_EQ(stored(65520, DType::kF16), std::numeric_limits<double>::infinity());
}
TEST(Notes, A037_LimitsOfFloat32) {
  const FloatInfo i = finfo(DType::kF32);
  EXPECT_FLOAT_EQ(static_cast<float>(i.max), 3.4028235e38f);
  EXPECT_FLOAT_EQ(static_cast<float>(i.tiny), 1.1754944e-38f);
  EXPECT_EQ(i.eps, 0x1p-23);
  EXPECT_NEAR(i.smallest_subnormal, 1.4013e-45, 1e-49);
  EXPECT_EQ(i.bits, 32);
}
TEST(Notes, A038_LimitsOfFloat16) {
  const FloatInfo i = finfo(DType::kF16);
  EXPECT_EQ(i.max, 65504);
  EXPECT_EQ(i.min, -65504);
  EXPECT_NEAR(i.tiny, 6.1035e-05, 1e-9);
  EXPECT_EQ(i.eps, 9.765625e-04);
  EXPECT_NEAR(i.smallest_subnormal, 5.9605e-08, 1e-12);
  EXPECT_EQ(i.bits, 16);
}
TEST(Notes, A039_LimitsOfBfloat16) {
  const FloatInfo i = finfo(DType::kBF16);
  EXPECT_EQ(i.max, 3.3895313892515355e38);
  EXPECT_EQ(i.tiny, finfo(DType::kF32).tiny);
  EXPECT_EQ(i.eps, 7.8125e-03);
  EXPECT_NEAR(i.smallest_subnormal, 9.1835e-41, 1e-45);
  EXPECT_EQ(i.bits, 16);
}
TEST(Notes, A040_Bfloat16HasTheRangeAndNotTheResolution) {
  EXPECT_EQ(finfo(DType::kBF16).tiny, finfo(DType::kF32).tiny);
  EXPECT_EQ(layout_of(DType::kBF16, 16).exponent, layout_of(DType::kF32, 32).exponent);
  EXPECT_EQ(finfo(DType::kBF16).eps / finfo(DType::kF16).eps, 8);
}
TEST(Notes, A041_Bfloat16IsTheRoundedUpperHalf) {
  for (const float x : {1.0f, -3.14159f, 1e-40f, 6e37f, 0.1f}) {
    const uint32_t u = __builtin_bit_cast(uint32_t, x), low = u & 0xFFFFu, high = u >> 16;
    const uint32_t want = high + (low > 0x8000u || (low == 0x8000u && high % 2 == 1));
    EXPECT_EQ(bits_of(DType::kBF16, x), want) << x;
    EXPECT_EQ(static_cast<float>(value_of(DType::kBF16, want)), __builtin_bit_cast(float, want << 16));
  }
}
TEST(Notes, A042_TwoVariantsOfFp8) {
  EXPECT_LT(finfo(DType::kF8E4M3).eps, finfo(DType::kF8E5M2).eps);  // resolution
  EXPECT_LT(finfo(DType::kF8E4M3).max, finfo(DType::kF8E5M2).max);  // range
}
TEST(Notes, A043_LimitsOfFp8) {
  EXPECT_EQ(finfo(DType::kF8E4M3).max, 448);
  EXPECT_EQ(finfo(DType::kF8E5M2).max, 57344);
  EXPECT_EQ(bias_of(DType::kF8E4M3, 3), 7);
  EXPECT_EQ(bias_of(DType::kF8E5M2, 2), 15);
  EXPECT_EQ(value_of(DType::kF8E4M3, 1), 0x1p-9);
  EXPECT_EQ(value_of(DType::kF8E5M2, 1), 0x1p-16);
}
TEST(Notes, A044_LargestFp4) {
  EXPECT_EQ(finfo(DType::kF4E2M1x2).max, 6);
  EXPECT_EQ(e2m1_to_float(7), 6);
}
TEST(Notes, A045_TableOfBytes) {
  EXPECT_EQ(item_size(DType::kF32), 4);
  EXPECT_EQ(item_size(DType::kF16), 2);
  EXPECT_EQ(item_size(DType::kBF16), 2);
  EXPECT_EQ(item_size(DType::kF8E4M3), 1);
}
TEST(Notes, A048_Fp8IsNotTinyInE5M2) {
  EXPECT_EQ(finfo(DType::kF8E4M3).max, 448);
  EXPECT_GT(finfo(DType::kF8E5M2).max / finfo(DType::kF16).max, 0.87);
}
TEST(Notes, A049_MemoryIsNumelTimesElementSize) {
  for (int t = 0; t < kDTypes; ++t) {
    const Tensor x = Tensor::empty(Dims(3, 5), static_cast<DType>(t));
    EXPECT_EQ(x.raw().bytes(), memory_usage(x)) << name_of(x.dtype());
    EXPECT_EQ(memory_usage(x), 15 * item_size(x.dtype()));
  }
}
TEST(Notes, A050_BytesOfAFloat32Tensor) {
  const Tensor x = Tensor::empty(Dims(4, 8));
  EXPECT_EQ(x.numel(), 32);
  EXPECT_EQ(memory_usage(x), 128);
}
TEST(Notes, A051_BytesOfAFloat16Tensor) { EXPECT_EQ(memory_usage(Tensor::empty(Dims(4, 8), DType::kF16)), 64); }
TEST(Notes, A052_BytesOfAGpt3Matrix) {
  LedgerGuard guard;
  const Tensor x = matrix(DType::kF32);
  EXPECT_EQ(x.numel(), 603979776);
  EXPECT_EQ(memory_usage(x), 2415919104);
  EXPECT_EQ(static_cast<double>(memory_usage(x)) / kMiB, 2304);
  EXPECT_EQ(guard.ledger().live_bytes(), memory_usage(x));  // of the plan: a multiple of 256
}
TEST(Notes, A053_GigabytesOfIt) {
  EXPECT_EQ(static_cast<double>(memory_usage(matrix(DType::kF32))) / kGiB, 2.25);
  EXPECT_NEAR(static_cast<double>(memory_usage(matrix(DType::kF32))) / 1e9, 2.416, 5e-4);
}
TEST(Notes, A054_In16Bits) {
  for (const DType t : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(memory_usage(matrix(t)), 1207959552);
    EXPECT_EQ(static_cast<double>(memory_usage(matrix(t))) / kMiB, 1152);
  }
}
TEST(Notes, A055_GigabytesIn16Bits) {
  EXPECT_EQ(static_cast<double>(memory_usage(matrix(DType::kF16))) / kGiB, 1.125);
  EXPECT_NEAR(static_cast<double>(memory_usage(matrix(DType::kF16))) / 1e9, 1.208, 5e-4);
}
TEST(Notes, A056_InFp8) {
  for (const DType t : {DType::kF8E4M3, DType::kF8E5M2}) {
    EXPECT_EQ(memory_usage(matrix(t)), 603979776);
    EXPECT_EQ(static_cast<double>(memory_usage(matrix(t))) / kMiB, 576);
  }
}
TEST(Notes, A057_GigabytesInFp8) {
  EXPECT_EQ(static_cast<double>(memory_usage(matrix(DType::kF8E4M3))) / kGiB, 0.5625);
  EXPECT_NEAR(static_cast<double>(memory_usage(matrix(DType::kF8E4M3))) / 1e9, 0.604, 5e-4);
}

}  // namespace
}  // namespace tally
