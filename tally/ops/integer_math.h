// Arithmetic of integers, shared by CPU and GPU: everything is computed in i64 and wrapped to the dtype at the end, as
// two's complement. Nothing here traps: a division by zero gives 0 (the front refuses it where it can see the numbers),
// and the quotient of the smallest i64 by -1 wraps to itself.
#pragma once

#include "tally/core/view.h"

namespace tally {

enum class IntegerOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kFloorDiv,   // Python's: floor(a / b)
  kTruncDiv,   // C's
  kRemainder,  // Python's: of b's sign
  kPow,        // negative exponents: 1, -1 or 0, as of the truncated fraction
  kMaximum,
  kMinimum,
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRight,
  kAbs,  // of a
  kSign  // of a
};
constexpr int kIntegerOps = 16;
constexpr const char* kIntegerNames[kIntegerOps] = {
    "add",     "sub",     "mul",         "floor_divide", "div",         "remainder",          "pow",
    "maximum", "minimum", "bitwise_and", "bitwise_or",   "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "abs",     "sign"};

TALLY_INLINE int64_t wrapped(uint64_t x) { return static_cast<int64_t>(x); }

TALLY_INLINE int64_t integer_floor_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrapped(-static_cast<uint64_t>(a));
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
TALLY_INLINE int64_t integer_remainder(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
TALLY_INLINE int64_t integer_pow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
  uint64_t y = 1, x = static_cast<uint64_t>(a);
  for (; b > 0; b >>= 1, x *= x)
    if (b & 1) y *= x;
  return wrapped(y);
}

template <IntegerOp op>
TALLY_INLINE int64_t integer_value(int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  if constexpr (op == IntegerOp::kAdd) return wrapped(x + y);
  if constexpr (op == IntegerOp::kSub) return wrapped(x - y);
  if constexpr (op == IntegerOp::kMul) return wrapped(x * y);
  if constexpr (op == IntegerOp::kFloorDiv) return integer_floor_divide(a, b);
  if constexpr (op == IntegerOp::kTruncDiv) return b == 0 ? 0 : b == -1 ? wrapped(-x) : a / b;
  if constexpr (op == IntegerOp::kRemainder) return integer_remainder(a, b);
  if constexpr (op == IntegerOp::kPow) return integer_pow(a, b);
  if constexpr (op == IntegerOp::kMaximum) return a > b ? a : b;
  if constexpr (op == IntegerOp::kMinimum) return a < b ? a : b;
  if constexpr (op == IntegerOp::kAnd) return a & b;
  if constexpr (op == IntegerOp::kOr) return a | b;
  if constexpr (op == IntegerOp::kXor) return a ^ b;
  // Past the width all bits are gone; negative counts give the same.
  if constexpr (op == IntegerOp::kShiftLeft) return y < 64 ? wrapped(x << y) : 0;
  if constexpr (op == IntegerOp::kShiftRight) return a >> (y < 63 ? y : 63);
  if constexpr (op == IntegerOp::kAbs) return a < 0 ? wrapped(-x) : a;
  if constexpr (op == IntegerOp::kSign) return a > 0 ? 1 : a < 0 ? -1 : 0;
}

}  // namespace tally
