// One element of a view of any dtype as a number, for conversions and tests. For kernel files: inlined by force.
#pragma once

#include "tally/core/view.h"

namespace tally {

TALLY_INLINE double read_number(const void* p, DType t, int64_t at) {
  switch (t) {
    case DType::kF64:
      return static_cast<const double*>(p)[at];
    case DType::kF32:
      return static_cast<const float*>(p)[at];
    case DType::kBF16:
      return to_float(static_cast<const bf16*>(p)[at]);
    case DType::kF16:
      return to_float(static_cast<const f16*>(p)[at]);
    case DType::kF8E4M3:
      return to_float(static_cast<const f8e4m3*>(p)[at]);
    case DType::kF8E5M2:
      return to_float(static_cast<const f8e5m2*>(p)[at]);
    case DType::kF8E8M0:
      return to_float(static_cast<const f8e8m0*>(p)[at]);
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(p)[at]);
    case DType::kI32:
      return static_cast<const int32_t*>(p)[at];
    case DType::kI16:
      return static_cast<const int16_t*>(p)[at];
    case DType::kU16:
      return static_cast<const uint16_t*>(p)[at];
    case DType::kI8:
      return static_cast<const int8_t*>(p)[at];
    case DType::kU8:
    case DType::kBool:
    case DType::kF4E2M1x2:  // the byte: two codes are no number
      return static_cast<const uint8_t*>(p)[at];
  }
  return 0;
}

// An element of an integer or bool view.
TALLY_INLINE int64_t read_integer(const void* p, DType t, int64_t at) {
  if (t == DType::kI64) return static_cast<const int64_t*>(p)[at];
  return static_cast<int64_t>(read_number(p, t, at));
}

// Towards zero; NaN and what the type cannot hold become its smallest number, as x86 converts them.
TALLY_INLINE int64_t whole_i64(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? static_cast<int64_t>(x) : -0x7FFFFFFFFFFFFFFF - 1;
}
TALLY_INLINE int32_t whole_i32(double x) {
  return x > -2147483649.0 && x < 2147483648.0 ? static_cast<int32_t>(x) : -0x7FFFFFFF - 1;
}

// The bits of x as a number of dtype t, rounded once. Integers of 16 and 8 bits are the low bits of an i32, as in
// PyTorch. saturate: what lies beyond f8's range becomes its largest number, else NaN (e4m3) or infinity (e5m2).
TALLY_INLINE uint64_t number_bits(DType t, double x, bool saturate = true) {
  switch (t) {
    case DType::kF64:
      return __builtin_bit_cast(uint64_t, x);
    case DType::kF32:
      return __builtin_bit_cast(uint32_t, static_cast<float>(x));
    case DType::kBF16:
      return to_bf16(round_to_odd(x)).bits;
    case DType::kF16:
      return to_f16(round_to_odd(x)).bits;
    case DType::kF8E4M3:
      return to_f8e4m3(round_to_odd(x), saturate).bits;
    case DType::kF8E5M2:
      return to_f8e5m2(round_to_odd(x), saturate).bits;
    case DType::kF8E8M0:
      return to_f8e8m0(round_to_odd(x)).bits;
    case DType::kI64:
      return static_cast<uint64_t>(whole_i64(x));
    case DType::kI32:
      return static_cast<uint32_t>(whole_i32(x));
    case DType::kI16:
    case DType::kU16:
      return static_cast<uint16_t>(whole_i32(x));
    case DType::kBool:
      return x != 0;
    case DType::kI8:
    case DType::kU8:
    case DType::kF4E2M1x2:
      return static_cast<uint8_t>(whole_i32(x));
  }
  return 0;
}
// The same of an integer: exact to integers that hold it, the low bits else.
TALLY_INLINE uint64_t integer_bits(DType t, int64_t x, bool saturate = true) {
  switch (t) {
    case DType::kF64:
      return __builtin_bit_cast(uint64_t, static_cast<double>(x));
    case DType::kF32:
      return __builtin_bit_cast(uint32_t, static_cast<float>(x));
    case DType::kBF16:
    case DType::kF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
      return number_bits(t, round_to_odd(x), saturate);
    case DType::kBool:
      return x != 0;
    default: {
      const int64_t item = item_size(t);
      return static_cast<uint64_t>(x) & (~uint64_t{0} >> (64 - 8 * item));
    }
  }
}
// An element of dtype `from` as one of `to`.
TALLY_INLINE uint64_t convert_bits(DType to, const void* p, DType from, int64_t at, bool saturate = true) {
  return is_floating(from) ? number_bits(to, read_number(p, from, at), saturate)
                           : integer_bits(to, read_integer(p, from, at), saturate);
}

TALLY_INLINE void write_number_bits(void* p, int64_t item, int64_t at, uint64_t bits) {
  if (item == 8) {
    static_cast<uint64_t*>(p)[at] = bits;
  } else if (item == 4) {
    static_cast<uint32_t*>(p)[at] = static_cast<uint32_t>(bits);
  } else if (item == 2) {
    static_cast<uint16_t*>(p)[at] = static_cast<uint16_t>(bits);
  } else {
    static_cast<uint8_t*>(p)[at] = static_cast<uint8_t>(bits);
  }
}
TALLY_INLINE void write_number(void* p, DType t, int64_t at, double x) {
  write_number_bits(p, item_size(t), at, number_bits(t, x));
}

}  // namespace tally
