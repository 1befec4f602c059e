// The cache on CUDA: rows are moved in the largest pieces, up to 16 bytes, that their alignment allows, one a thread;
// grid row 0 is for keys, 1 for values. The position is read on the device. Where keys and queries are turned on the
// way, a thread has a pair; grid row 2 is for the queries.
#include "tally/ops/cache_kernels.h"

#include <initializer_list>

#include "tally/ops/pieces.cuh"
#include "tally/ops/rope_cuda.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

template <class Item>
__global__ void __launch_bounds__(kThreads) write_kernel(const CacheWriteArgs a) {
  let_next_start();
  wait_for_previous();
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

template <class T>
__global__ void __launch_bounds__(kThreads) turn_and_write_kernel(const __grid_constant__ CacheWriteArgs a) {
  const int what = static_cast<int>(blockIdx.y);
  const View &from = what == 0   ? a.k
                     : what == 1 ? a.v
                                 : a.q,
             &to = what == 0   ? a.keys
                   : what == 1 ? a.values
                               : a.turned;
  const int64_t half = from.size[3] / 2, step = int64_t{gridDim.x} * kThreads;
  const int64_t pairs = from.size[0] * from.size[1] * from.size[2] * half;
  const bool together = a.style == RopeStyle::kInterleaved;
  let_next_start();
  wait_for_previous();
  const int64_t position = a.position.data ? *a.position.ptr<int32_t>() : a.first;
  const float* const table = a.table.ptr<float>() + (position - a.first) * a.table.stride[0];
  for (int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x; n < pairs; n += step) {
    int64_t rest = n / half;
    const int64_t pair = n - rest * half, h = rest % from.size[2];
    rest /= from.size[2];
    const int64_t b = rest / from.size[1], t = rest - b * from.size[1], row = what == 2 ? t : position + t;
    const int64_t i = together ? 2 * pair : pair, j = together ? i + 1 : i + half;
    const T* const x = from.ptr<T>() + b * from.stride[0] + t * from.stride[1] + h * from.stride[2];
    T* const y = to.ptr<T>() + b * to.stride[0] + row * to.stride[1] + h * to.stride[2];
    if (what == 1) {  // bits as they are
      y[i] = x[i], y[j] = x[j];
      continue;
    }
    const float* const angle = table + t * a.table.stride[0] + pair * a.table.stride[1];
    float first = load_one(x + i), second = load_one(x + j);
    turn(first, second, angle[0], angle[a.table.stride[2]]);
    store_one(y + i, first), store_one(y + j, second);
  }
}

__global__ void advance_kernel(int32_t* position, int32_t by) {
  let_next_start();
  wait_for_previous();
  *position += by;
}

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
  if (a.table.rank() > 0) {
    const int64_t most = a.q.numel() > a.k.numel() ? a.q.numel() : a.k.numel();
    if (most == 0) return;
    return with_float("cache_write", a.k.dtype, [&](auto tag) {
      launch_after("cache_write", turn_and_write_kernel<decltype(tag)>,
                   {dim3(blocks_for(most / 2, kThreads), 3), kThreads}, a.device(), a);
    });
  }
  if (a.k.numel() == 0) return;
  with_piece(piece_of({&a.k, &a.v, &a.keys, &a.values}), [&](auto tag) {
    using Item = decltype(tag);
    const int64_t items = a.k.numel() * item_size(a.k.dtype) / static_cast<int64_t>(sizeof(Item));
    launch_after("cache_write", write_kernel<Item>, {dim3(blocks_for(items, kThreads), 2), kThreads}, a.device(), a);
  });
}

void cache_advance(const CacheAdvanceArgs& a) {
  launch_after("cache_advance", advance_kernel, {1, 1}, a.device(), a.position.ptr<int32_t>(),
               static_cast<int32_t>(a.by));
}

}  // namespace tally::cuda
