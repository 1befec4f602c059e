// Numbers of any dtype as unsigned integers in the same order, for sorting and for the place of an extreme. NaN is the
// largest, whatever its sign; -0 equals 0. f64 and i64 need 64 bits (wide_key), all others 32.
#pragma once

#include "tally/core/view.h"

namespace tally {

TALLY_INLINE constexpr bool wide_key(DType t) { return t == DType::kF64 || t == DType::kI64; }

TALLY_INLINE uint32_t order_key(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x + 0.0f);  // -0 becomes 0
  const uint32_t key = bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
  return x != x ? 0xFFFFFFFFu : key;
}
TALLY_INLINE uint64_t order_key(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x + 0.0);
  const uint64_t key = bits ^ (static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63) | (uint64_t{1} << 63));
  return x != x ? ~uint64_t{0} : key;
}
TALLY_INLINE uint32_t order_key(int32_t x) { return static_cast<uint32_t>(x) ^ 0x80000000u; }
TALLY_INLINE uint64_t order_key(int64_t x) { return static_cast<uint64_t>(x) ^ (uint64_t{1} << 63); }
TALLY_INLINE uint32_t order_key(bf16 x) { return order_key(to_float(x)); }
TALLY_INLINE uint32_t order_key(f16 x) { return order_key(to_float(x)); }
TALLY_INLINE uint32_t order_key(int16_t x) { return order_key(int32_t{x}); }
TALLY_INLINE uint32_t order_key(uint16_t x) { return order_key(int32_t{x}); }
TALLY_INLINE uint32_t order_key(int8_t x) { return order_key(int32_t{x}); }
TALLY_INLINE uint32_t order_key(uint8_t x) { return order_key(int32_t{x}); }

// f(T{}) for the type of numbers that have an order: f64 f32 bf16 f16, integers and bool (as u8). False for others.
template <class F>
TALLY_INLINE bool with_ordered(DType t, const F& f) {
  switch (t) {
    case DType::kF64:
      return f(double{}), true;
    case DType::kF32:
      return f(float{}), true;
    case DType::kBF16:
      return f(bf16{}), true;
    case DType::kF16:
      return f(f16{}), true;
    case DType::kI64:
      return f(int64_t{}), true;
    case DType::kI32:
      return f(int32_t{}), true;
    case DType::kI16:
      return f(int16_t{}), true;
    case DType::kU16:
      return f(uint16_t{}), true;
    case DType::kI8:
      return f(int8_t{}), true;
    case DType::kU8:
    case DType::kBool:
      return f(uint8_t{}), true;
    default:
      return false;
  }
}
TALLY_INLINE constexpr bool is_ordered(DType t) { return t <= DType::kF16 || (t >= DType::kI64 && t <= DType::kBool); }

}  // namespace tally
