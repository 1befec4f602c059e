// Element-wise arithmetic of integers and bool: out = a op b.
#pragma once

#include "tally/core/cost.h"
#include "tally/ops/integer_math.h"

namespace tally {

// a and b have out's shape (axes of stride 0 where they broadcast) and any integer dtypes or bool; they are wrapped to
// out's dtype first. One of them may be the number `value` instead of its view, which is then not looked at; so is b of
// the ops of one operand. Counted: one operation an element.
struct IntegerArgs {
  static constexpr const char* name = "integer";
  View a, b, out;
  IntegerOp op;
  enum Number : uint8_t { kNone, kA, kB } number = kNone;
  int64_t value = 0;
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, out.numel(), (number == kA ? 0 : a.bytes()) + (number == kB ? 0 : b.bytes()), out.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void integer(const IntegerArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
