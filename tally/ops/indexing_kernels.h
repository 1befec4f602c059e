// What indexing by arrays and masks needs beside gather and scatter: several indices as one, and the places of what is
// not zero.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// out[k] = sum over i < count of id_i[k] * step[i], id + size[i] standing for an id below 0. The ids, i32 or i64, have
// out's shape (strides of 0 where they broadcast); out i64, contiguous. Where an id is not in [-size[i], size[i]), out
// is -1 and `bad` (one i64) becomes the first such k, if it is below what bad holds; else bad is not touched.
struct LinearIndexArgs {
  static constexpr const char* name = "linear_index";
  View ids[kMaxRank];
  int count;
  Dims size, step;
  View out, bad;
  Device device() const { return out.device; }
  Cost cost() const {
    Cost c{0, 0, 0, out.bytes(), 0};
    for (int i = 0; i < count; ++i) c.bytes_read += ids[i].bytes();
    return c;
  }
};

// x is contiguous and taken in pieces of kPiece elements.
struct Nonzero {
  static constexpr int64_t kPiece = 16384;
};
// counts[p] = how many elements of piece p are not zero: counts (pieces) i64.
struct NonzeroCountArgs {
  static constexpr const char* name = "nonzero_count";
  View x, counts;
  Device device() const { return counts.device; }
  Cost cost() const { return {0, 0, x.bytes(), counts.bytes(), 0}; }
};
// out (n, rank of x) i64: the coordinates of what is not zero, in order; begins[p] (i64): the first row of piece p.
struct NonzeroArgs {
  static constexpr const char* name = "nonzero";
  View x, begins, out;
  Device device() const { return out.device; }
  Cost cost() const { return {0, 0, x.bytes() + begins.bytes(), out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void linear_index(const LinearIndexArgs&);
void nonzero_count(const NonzeroCountArgs&);
void nonzero(const NonzeroArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
