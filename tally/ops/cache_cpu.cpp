// The cache on the CPU: a row of a head is copied at a time. Positions are the host's.
#include "tally/ops/cache_kernels.h"

#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

namespace {

// The heads of one position of one sequence.
void write_heads(const View& from, const View& to, int64_t b, int64_t t, int64_t first) {
  const int64_t item = item_size(from.dtype), bytes = from.size[3] * item;
  const char* x = from.ptr<char>() + (b * from.stride[0] + t * from.stride[1]) * item;
  char* y = to.ptr<char>() + (b * to.stride[0] + (first + t) * to.stride[1]) * item;
  for (int64_t h = 0; h < from.size[2]; ++h)
    __builtin_memcpy(y + h * to.stride[2] * item, x + h * from.stride[2] * item, static_cast<uint64_t>(bytes));
}

}  // namespace

void cache_write(const CacheWriteArgs& a) {
  if (a.k.numel() == 0) return;
  const int64_t t_size = a.k.size[1], elements = a.k.size[2] * a.k.size[3];
  parallel_for(a.k.size[0] * t_size, 1 + kGrainElements / elements, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      write_heads(a.k, a.keys, row / t_size, row % t_size, a.first);
      write_heads(a.v, a.values, row / t_size, row % t_size, a.first);
    }
  });
}

void cache_advance(const CacheAdvanceArgs& a) { *a.position.ptr<int32_t>() += static_cast<int32_t>(a.by); }

}  // namespace tally::TALLY_ISA
