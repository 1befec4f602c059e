// Numbers of 8 and 4 bits with scales: a value is a code times the scale of its block (16 or 32 neighbours in memory)
// or of its tensor. The rules, for CPU and GPU alike:
//   f8 per tensor  scale = amax / 448 (e4m3) or / 57344 (e5m2), f32 (Micikevicius et al. 2022)
//   MXFP8, MXFP4   blocks of 32, scale 2^(floor(log2 amax) - emax) as e8m0, emax 8, 15 (e5m2) or 2 (e2m1)
//                  (OCP Microscaling Formats v1.0, 6.3)
//   NVFP4          blocks of 16, tensor scale = amax / (6 * 448) in f32, block scale = amax / 6 / tensor scale as e4m3
//                  (NVIDIA, "Pretraining large language models with NVFP4", 2025)
// amax is taken over finite values. Codes round to nearest even and saturate. What is not finite stays so: NaN is NaN,
// an infinity NaN (e5m2 has it); e2m1 has neither, so its block's scale becomes NaN and with it the whole block. Scales
// of zeros and of the smallest numbers are never 0 or infinite as a divisor: such blocks become zeros.
#pragma once

#include "tally/core/cost.h"

namespace tally {

enum class QuantFormat : uint8_t { kF8E4M3, kF8E5M2, kMxF8E4M3, kMxF8E5M2, kMxF4, kNvF4 };
constexpr int kQuantFormats = 6;

TALLY_INLINE constexpr bool is_f4(QuantFormat f) { return f >= QuantFormat::kMxF4; }
TALLY_INLINE constexpr bool is_e5m2(QuantFormat f) { return f == QuantFormat::kF8E5M2 || f == QuantFormat::kMxF8E5M2; }
// Values a scale; 0: the whole tensor.
TALLY_INLINE constexpr int64_t quant_block(QuantFormat f) {
  return f <= QuantFormat::kF8E5M2 ? 0 : f == QuantFormat::kNvF4 ? 16 : 32;
}
TALLY_INLINE constexpr bool has_tensor_scale(QuantFormat f) {
  return f <= QuantFormat::kF8E5M2 || f == QuantFormat::kNvF4;
}
TALLY_INLINE constexpr DType quant_codes(QuantFormat f) {
  return is_f4(f) ? DType::kF4E2M1x2 : is_e5m2(f) ? DType::kF8E5M2 : DType::kF8E4M3;
}
TALLY_INLINE constexpr DType quant_scales(QuantFormat f) {
  return f == QuantFormat::kNvF4 ? DType::kF8E4M3 : DType::kF8E8M0;
}

TALLY_INLINE uint32_t magnitude_bits(float x) { return __builtin_bit_cast(uint32_t, x) & 0x7FFFFFFFu; }
TALLY_INLINE bool is_finite(float x) { return magnitude_bits(x) < 0x7F800000u; }
// The bits of |x|, which order as the numbers do; 0 of what is not finite.
TALLY_INLINE uint32_t finite_bits(float x) { return is_finite(x) ? magnitude_bits(x) : 0u; }

TALLY_INLINE float tensor_scale_of(QuantFormat f, float amax) {
  const float scale = amax / (f == QuantFormat::kNvF4 ? 2688.0f : is_e5m2(f) ? 57344.0f : 448.0f);
  return amax == 0.0f ? 1.0f : scale < 0x1p-126f ? 0x1p-126f : scale;
}

struct BlockScale {
  uint8_t code;
  float value;  // what the block's codes are multiplied by
};
TALLY_INLINE float block_value(QuantFormat f, uint8_t code, float tensor_scale) {
  return f == QuantFormat::kNvF4 ? to_float(f8e4m3{code}) * tensor_scale : to_float(f8e8m0{code});
}
// amax: over the block's finite values. finite: all of them are.
TALLY_INLINE BlockScale block_scale_of(QuantFormat f, float amax, bool finite, float tensor_scale) {
  uint8_t code = 0;
  if (f == QuantFormat::kNvF4) {
    code = finite ? to_f8e4m3(amax / 6.0f / tensor_scale).bits : 0x7F;
  } else {
    const int exponent = static_cast<int>(magnitude_bits(amax) >> 23) - (is_f4(f) ? 2 : is_e5m2(f) ? 15 : 8);
    code = !finite && is_f4(f) ? 0xFF : static_cast<uint8_t>(exponent < 0 ? 0 : exponent);
  }
  return {code, block_value(f, code, tensor_scale)};
}

TALLY_INLINE uint32_t quant_code(QuantFormat f, float x, float scale) {
  const float scaled = scale > 0.0f ? x / scale : 0.0f;
  if (is_f4(f)) return float_to_e2m1(scaled);
  return is_e5m2(f) ? to_f8e5m2(scaled, is_finite(x)).bits : to_f8e4m3(scaled, is_finite(x)).bits;
}
// code: 8 bits, or the lower 4 of them.
TALLY_INLINE float quant_value(QuantFormat f, uint32_t code, float scale) {
  const float value = is_f4(f)     ? e2m1_to_float(code & 15u)
                      : is_e5m2(f) ? to_float(f8e5m2{static_cast<uint8_t>(code)})
                                   : to_float(f8e4m3{static_cast<uint8_t>(code)});
  return value * scale;
}

// scale () f32 = what tensor_scale_of() makes of x's largest magnitude. x is contiguous f32, bf16 or f16, here and
// below.
struct QuantizeScaleArgs {
  static constexpr const char* name = "quantize_scale";
  View x, scale;
  QuantFormat format;
  Device device() const { return scale.device; }
  Cost cost() const { return {0, x.numel() + 1, x.bytes(), scale.bytes(), 0}; }
};

// codes (..., n) or, of four bits, (..., n / 2) and scales (..., n / block) of x (..., n), n a multiple of the block.
// tensor_scale: where the format has one. Counted: a comparison (blocks) and a division an element, NVFP4's scale 3.
struct QuantizeArgs {
  static constexpr const char* name = "quantize";
  View x, tensor_scale, codes, scales;
  QuantFormat format;
  Device device() const { return codes.device; }
  int64_t blocks() const { return quant_block(format) == 0 ? 0 : x.numel() / quant_block(format); }
  Cost cost() const {
    const int64_t elements = quant_block(format) == 0 ? x.numel() : 2 * x.numel();
    return {0, elements + (format == QuantFormat::kNvF4 ? 3 * blocks() : 0),
            x.bytes() + (has_tensor_scale(format) ? tensor_scale.bytes() : 0), codes.bytes() + blocks(), 0};
  }
};

// out = code * scale, computed in f32 and rounded to out's dtype (f32, bf16, f16). Counted: a product an element, one
// more a block of NVFP4.
struct DequantizeArgs {
  static constexpr const char* name = "dequantize";
  View codes, scales, tensor_scale, out;
  QuantFormat format;
  Device device() const { return out.device; }
  int64_t blocks() const { return quant_block(format) == 0 ? 0 : out.numel() / quant_block(format); }
  Cost cost() const {
    return {0, out.numel() + (format == QuantFormat::kNvF4 ? blocks() : 0),
            codes.bytes() + blocks() + (has_tensor_scale(format) ? tensor_scale.bytes() : 0), out.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void quantize_scale(const QuantizeScaleArgs&);
void quantize(const QuantizeArgs&);
void dequantize(const DequantizeArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
