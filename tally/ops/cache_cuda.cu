// The cache on CUDA: rows are moved in the largest pieces, up to 16 bytes, that their alignment allows, one a thread;
// grid row 0 is for keys, 1 for values. The position is read on the device.
#include "tally/ops/cache_kernels.h"

#include <initializer_list>

#include "tally/ops/pieces.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

template <class Item>
__global__ void __launch_bounds__(kThreads) write_kernel(const CacheWriteArgs a) {
  const View &from = blockIdx.y == 0 ? a.k : a.v, &to = blockIdx.y == 0 ? a.keys : a.values;
  const int64_t item = item_size(from.dtype), items = from.size[3] * item / static_cast<int64_t>(sizeof(Item));
  const int64_t first = a.position.data ? *a.position.ptr<int32_t>() : a.first;
  const int64_t all = from.size[0] * from.size[1] * from.size[2] * items, step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < all; k += step) {
    int64_t rest = k / items;
    const int64_t at = k - rest * items, h = rest % from.size[2];
    rest /= from.size[2];
    const int64_t b = rest / from.size[1], t = rest - b * from.size[1];
    const char* x = from.ptr<char>() + (b * from.stride[0] + t * from.stride[1] + h * from.stride[2]) * item;
    char* y = to.ptr<char>() + (b * to.stride[0] + (first + t) * to.stride[1] + h * to.stride[2]) * item;
    reinterpret_cast<Item*>(y)[at] = reinterpret_cast<const Item*>(x)[at];
  }
}

__global__ void advance_kernel(int32_t* position, int32_t by) { *position += by; }

// The largest piece in bytes in which the rows of all views can be moved.
int64_t piece_of(std::initializer_list<const View*> views) {
  uint64_t all = 0;
  for (const View* v : views) {
    const int64_t item = item_size(v->dtype);
    all |= reinterpret_cast<uintptr_t>(v->data) | static_cast<uint64_t>(v->size[3] * item);
    for (int axis = 0; axis < 3; ++axis)
      if (v->size[axis] > 1) all |= static_cast<uint64_t>(v->stride[axis] * item);
  }
  return largest_piece(all);
}

}  // namespace

void cache_write(const CacheWriteArgs& a) {
  if (a.k.numel() == 0) return;
  with_piece(piece_of({&a.k, &a.v, &a.keys, &a.values}), [&](auto tag) {
    using Item = decltype(tag);
    const int64_t items = a.k.numel() * item_size(a.k.dtype) / static_cast<int64_t>(sizeof(Item));
    write_kernel<Item><<<dim3(blocks_for(items, kThreads), 2), kThreads, 0, stream_of(a.device())>>>(a);
    check_launch("cache_write");
  });
}

void cache_advance(const CacheAdvanceArgs& a) {
  advance_kernel<<<1, 1, 0, stream_of(a.device())>>>(a.position.ptr<int32_t>(), static_cast<int32_t>(a.by));
  check_launch("cache_advance");
}

}  // namespace tally::cuda
