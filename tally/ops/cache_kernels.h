// A cache of keys and values: new ones are written at its position, which then moves on.
// The position of a cache is a host number and, beside it, an i32 of one element on the cache's device that equals it
// in the stream's order. A kernel whose work depends on the position takes both: on a card it reads the device's,
// because a launch that was captured in a graph is replayed at later positions with the host numbers of its capture;
// sizes of launches then depend on the cache's capacity only. The CPU's kernels take the host number. An argument
// `position` of rank 0 says that there is none. Its four bytes are not counted: to the algorithm it is a host number.
#pragma once

#include "tally/ops/rope_kernels.h"

namespace tally {

// keys[:, first + i] = k[:, i], values[:, first + i] = v[:, i]; k and v (B, t, H, D), keys and values (B, capacity, H,
// D), all of one dtype with D contiguous; first = *position where there is one. Bits are moved.
// On CUDA, where there is a table (t, D/2, 2), whose row 0 is row `first` of a larger one: k is turned on its way as
// rope() turns it (rope_kernels.h), and so is q (B, t, Hq, D) into turned. The CPU's kernel is never asked to.
struct CacheWriteArgs {
  static constexpr const char* name = "cache_write";
  View k, v, keys, values, position;
  int64_t first;
  View q = {}, turned = {}, table = {};
  RopeStyle style = RopeStyle::kHalfSplit;
  Device device() const { return keys.device; }
  Cost cost() const {
    Cost c{0, 0, k.bytes() + v.bytes(), (k.numel() + v.numel()) * item_size(k.dtype), 0};
    if (table.rank() > 0) {
      c.other_flops += (q.numel() + k.numel()) * 3;
      c.bytes_read += q.bytes() + table.bytes(), c.bytes_written += turned.bytes();
    }
    return c;
  }
};

// *position += by
struct CacheAdvanceArgs {
  static constexpr const char* name = "cache_advance";
  View position;
  int64_t by;
  Device device() const { return position.device; }
  Cost cost() const { return {0, 1, position.bytes(), position.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void cache_write(const CacheWriteArgs&);
void cache_advance(const CacheAdvanceArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
