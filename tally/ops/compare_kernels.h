// Element-wise questions, answered in bool: comparisons, logic, and what a float is.
#pragma once

#include "tally/core/cost.h"

namespace tally {

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kAnd, kOr, kXor, kNot, kIsNan, kIsInf, kIsFinite };
constexpr int kCompareOps = 13;
constexpr const char* kCompareNames[kCompareOps] = {"eq",    "ne",          "lt",         "le",          "gt",
                                                    "ge",    "logical_and", "logical_or", "logical_xor", "logical_not",
                                                    "isnan", "isinf",       "isfinite"};

// The answer for two numbers (the ops from kNot on: for a) of type T.
template <CompareOp op, class T>
TALLY_INLINE bool compare_value(T a, T b) {
  if constexpr (op == CompareOp::kEq) return a == b;
  if constexpr (op == CompareOp::kNe) return a != b;
  if constexpr (op == CompareOp::kLt) return a < b;
  if constexpr (op == CompareOp::kLe) return a <= b;
  if constexpr (op == CompareOp::kGt) return a > b;
  if constexpr (op == CompareOp::kGe) return a >= b;
  if constexpr (op == CompareOp::kAnd) return (a != T{}) & (b != T{});
  if constexpr (op == CompareOp::kOr) return (a != T{}) | (b != T{});
  if constexpr (op == CompareOp::kXor) return (a != T{}) != (b != T{});
  if constexpr (op == CompareOp::kNot) return a == T{};
  if constexpr (op == CompareOp::kIsNan) return a != a;
  if constexpr (std::is_integral_v<T>) return op == CompareOp::kIsFinite;
  const T none = a - a;  // 0, and NaN of what is not finite
  if constexpr (op == CompareOp::kIsInf) return none != none && a == a;
  if constexpr (op == CompareOp::kIsFinite) return none == none;
}

// out (bool) = a op b; a and b have out's shape (axes of stride 0 where they broadcast) and any dtypes, and are
// compared as numbers of `dtype`. One of them may be a number instead of its view, which is then not looked at; so is b
// of the ops of one operand. Counted: one operation an element.
struct CompareArgs {
  static constexpr const char* name = "compare";
  View a, b, out;
  CompareOp op;
  DType dtype;
  enum Number : uint8_t { kNone, kA, kB } number = kNone;
  double real = 0;  // the number, for floats and for integers
  int64_t whole = 0;
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, out.numel(), (number == kA ? 0 : a.bytes()) + (number == kB ? 0 : b.bytes()), out.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void compare(const CompareArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
