// How many pairs of numbers are not close to each other.
#pragma once

#include "tally/core/cost.h"
#include "tally/core/number.h"
#include "tally/ops/rounded.h"

namespace tally {

// out, one i64, grows by the number of elements where not (a == b, or both are NaN and equal_nan, or |a - b| is finite
// and at most atol + rtol |b|). a and b have one shape and any dtypes; integers are compared as such, and with a float
// of dtype `common` after they were rounded to it. Counted: a difference, a product, a sum, a comparison.
struct CountUnequalArgs {
  static constexpr const char* name = "count_unequal";
  View a, b, out;
  DType common;
  double rtol, atol;
  bool equal_nan;
  Device device() const { return out.device; }
  Cost cost() const { return {0, 4 * a.numel(), a.bytes() + b.bytes(), out.bytes(), 0}; }
};

TALLY_INLINE double number_as(const View& v, int64_t at, DType common) {
  const double x = read_number(v.data, v.dtype, at);
  if (is_floating(v.dtype) || !is_floating(common)) return x;
  const uint64_t bits = number_bits(common, x);
  return read_number(&bits, common, 0);
}

TALLY_INLINE bool is_close(const CountUnequalArgs& c, int64_t at_a, int64_t at_b) {
  if (c.a.dtype == DType::kI64 && c.b.dtype == DType::kI64 && c.a.ptr<int64_t>()[at_a] != c.b.ptr<int64_t>()[at_b] &&
      c.rtol == 0 && c.atol == 0)
    return false;  // where f64 has not the bits
  const double x = number_as(c.a, at_a, c.common), y = number_as(c.b, at_b, c.common);
  if (x == y || (c.equal_nan && x != x && y != y)) return true;
  if (c.rtol == 0 && c.atol == 0) return false;
  const double apart = x < y ? y - x : x - y, size = y < 0 ? -y : y;
  return apart <= 1.7976931348623157e308 && apart <= rounded::add(c.atol, rounded::mul(c.rtol, size));
}

#ifdef TALLY_ISA
namespace TALLY_ISA {
void count_unequal(const CountUnequalArgs&);
}
#endif

}  // namespace tally
