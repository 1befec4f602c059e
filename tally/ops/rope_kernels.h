// Rotary position embedding (Su et al. 2021, "RoFormer"): a table of cos and sin, and the rotation of pairs by it.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// Which two numbers of a head make a pair: (2i, 2i + 1) as in the paper, or (i, i + D/2) as in GPT-NeoX and Hugging
// Face.
enum class RopeStyle : uint8_t { kInterleaved, kHalfSplit };

// out (T, D/2, 2) f32: out(t, i) = (cos a, sin a), a = (first_position + t) * theta^(-2i / D), in f64 and rounded once.
// Counted: product, cos and sin of every angle. The D/2 frequencies are host numbers.
struct RopeTableArgs {
  static constexpr const char* name = "rope_table";
  View out;
  double theta;
  int64_t first_position;
  Device device() const { return out.device; }
  Cost cost() const { return {0, out.numel() / 2 * 3, 0, out.bytes(), 0}; }
};

// x and out (B, T, H, D), D contiguous; table (T, D/2, 2), its row t for position t of x. inverse turns by the negative
// angle (the backward). Where there is a position (cache_kernels.h), the table starts at row `first` of a larger one,
// and row *position + t is taken. Counted: 4 products and 2 sums a pair.
struct RopeArgs {
  static constexpr const char* name = "rope";
  View x, table, out;
  RopeStyle style;
  bool inverse;
  View position = {};
  int64_t first = 0;
  Device device() const { return out.device; }
  Cost cost() const { return {0, out.numel() * 3, x.bytes() + table.bytes(), out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void rope_table(const RopeTableArgs&);
void rope(const RopeArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
