#include "tally/core/promote.h"

#include "tally/base/error.h"

namespace tally {

namespace {

bool is_storage_float(DType t) { return is_floating(t) && item_size(t) == 1; }

// Signed integers by width, so that the larger of two is the result.
DType integers(DType a, DType b) {
  const bool unsigned_a = a == DType::kU8, unsigned_b = b == DType::kU8;
  if (unsigned_a != unsigned_b) {  // u8 and a signed one: i16 or wider
    const DType other = unsigned_a ? b : a;
    return other == DType::kI8 ? DType::kI16 : other;
  }
  return item_size(a) >= item_size(b) ? a : b;
}

}  // namespace

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (is_storage_float(a) || is_storage_float(b))
    fail_type("{} and {} have no common dtype: floats of 8 and 4 bits are for storage; convert with to() first",
              name_of(a), name_of(b));
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) {
    if (item_size(a) == 2 && item_size(b) == 2) return DType::kF32;  // f16 with bf16
    return item_size(a) > item_size(b) ? a : b;
  }
  if (a == DType::kU16 || b == DType::kU16)
    fail_type("{} and {} have no common dtype: u16 is for storage; convert with to() first, to i32", name_of(a),
              name_of(b));
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  return integers(a, b);
}

DType result_type(std::initializer_list<Operand> operands) {
  constexpr int kNone = -1;
  const auto kind = [](DType t) { return is_floating(t) ? 2 : t == DType::kBool ? 0 : 1; };
  int of[3] = {kNone, kNone, kNone};  // the result of each category
  for (const Operand& o : operands) {
    int& r = of[o.category()];
    r = static_cast<int>(r == kNone ? o.dtype() : promote_types(static_cast<DType>(r), o.dtype()));
  }
  int result = kNone;
  for (const int lower : of) {
    if (lower == kNone) continue;
    const auto low = static_cast<DType>(lower);
    if (result == kNone) {
      result = lower;
    } else if (kind(low) > kind(static_cast<DType>(result))) {
      result = static_cast<int>(promote_types(static_cast<DType>(result), low));
    }
  }
  TALLY_ASSERT(result != kNone);
  return static_cast<DType>(result);
}

}  // namespace tally
