// Numbers in even steps, for arange, linspace and full.
#pragma once

#include "tally/core/cost.h"
#include "tally/core/number.h"
#include "tally/ops/rounded.h"

namespace tally {

// Element i of n in logical order: start + i step for i < middle, else end - (n - 1 - i) step, so that both ends are
// met exactly; computed in f64, or where `whole` in i64 (first + i by). Counted: the product and the sum.
struct SequenceArgs {
  static constexpr const char* name = "sequence";
  View out;
  double start, step, end;
  int64_t middle;
  bool whole;
  int64_t first, by;
  Device device() const { return out.device; }
  Cost cost() const { return {0, 2 * out.numel(), 0, out.bytes(), 0}; }
};

TALLY_INLINE uint64_t sequence_bits(const SequenceArgs& a, int64_t i, int64_t n) {
  const DType t = a.out.dtype;
  if (a.whole) {
    const uint64_t x = static_cast<uint64_t>(a.first) + static_cast<uint64_t>(i) * static_cast<uint64_t>(a.by);
    return is_integer(t) ? x : number_bits(t, static_cast<double>(static_cast<int64_t>(x)));
  }
  return number_bits(t, i < a.middle ? rounded::add(a.start, rounded::mul(static_cast<double>(i), a.step))
                                     : rounded::add(a.end, -rounded::mul(static_cast<double>(n - 1 - i), a.step)));
}

#ifdef TALLY_ISA
namespace TALLY_ISA {
void sequence(const SequenceArgs&);
}
#endif

}  // namespace tally
