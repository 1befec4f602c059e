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

// The bits of x as a number of dtype t. Narrow integers go by way of i32, as processors convert them.
TALLY_INLINE uint64_t number_bits(DType t, double x) {
  switch (t) {
    case DType::kF64:
      return __builtin_bit_cast(uint64_t, x);
    case DType::kF32:
      return __builtin_bit_cast(uint32_t, static_cast<float>(x));
    case DType::kBF16:
      return to_bf16(static_cast<float>(x)).bits;
    case DType::kF16:
      return to_f16(static_cast<float>(x)).bits;
    case DType::kF8E4M3:
      return to_f8e4m3(static_cast<float>(x)).bits;
    case DType::kF8E5M2:
      return to_f8e5m2(static_cast<float>(x)).bits;
    case DType::kF8E8M0:
      return to_f8e8m0(static_cast<float>(x)).bits;
    case DType::kI64:
      return static_cast<uint64_t>(static_cast<int64_t>(x));
    case DType::kI32:
      return static_cast<uint32_t>(static_cast<int32_t>(x));
    case DType::kI16:
    case DType::kU16:
      return static_cast<uint16_t>(static_cast<int32_t>(x));
    case DType::kBool:
      return x != 0;
    case DType::kI8:
    case DType::kU8:
    case DType::kF4E2M1x2:
      return static_cast<uint8_t>(static_cast<int32_t>(x));
  }
  return 0;
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
