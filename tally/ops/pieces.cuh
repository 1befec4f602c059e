// Rows moved in pieces of 1 to 16 bytes, whatever their numbers are: for cache_cuda.cu, embedding_cuda.cu and
// gather_cuda.cu only.
#pragma once

#include "tally/ops/device.cuh"

namespace tally::cuda {

// All bits set: NaN as a float.
template <class Item>
__device__ __forceinline__ Item ones() {
  if constexpr (sizeof(Item) == 16) {
    return make_uint4(~0u, ~0u, ~0u, ~0u);
  } else {
    return static_cast<Item>(~uint64_t{0});
  }
}

// The largest piece in bytes that divides every number whose bits are in `all`: addresses, strides and sizes in bytes.
inline int64_t largest_piece(uint64_t all) {
  all |= 16u;
  return static_cast<int64_t>(all & (~all + 1));
}

// f(Item{}) for an unsigned Item of `piece` bytes.
template <class F>
void with_piece(int64_t piece, const F& f) {
  switch (piece) {
    case 16:
      return f(uint4{});
    case 8:
      return f(uint64_t{});
    case 4:
      return f(uint32_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint8_t{});
  }
}

}  // namespace tally::cuda
