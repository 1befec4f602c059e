// The cache on CUDA: words of a row, 16 bytes where rows allow it, are moved one a thread; grid row 0 for keys, 1 for
// values. The position is read on the device.
#include "tally/ops/cache_kernels.h"

#include <initializer_list>

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

template <class Word>
__global__ void __launch_bounds__(kThreads) write_kernel(const CacheWriteArgs a) {
  const View &from = blockIdx.y == 0 ? a.k : a.v, &to = blockIdx.y == 0 ? a.keys : a.values;
  const int64_t item = item_size(from.dtype), words = from.size[3] * item / static_cast<int64_t>(sizeof(Word));
  const int64_t first = a.position.data ? *a.position.ptr<int32_t>() : a.first;
  const int64_t all = from.size[0] * from.size[1] * from.size[2] * words, step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < all; k += step) {
    int64_t rest = k / words;
    const int64_t word = k - rest * words, h = rest % from.size[2];
    rest /= from.size[2];
    const int64_t b = rest / from.size[1], t = rest - b * from.size[1];
    const char* x = from.ptr<char>() + (b * from.stride[0] + t * from.stride[1] + h * from.stride[2]) * item;
    char* y = to.ptr<char>() + (b * to.stride[0] + (first + t) * to.stride[1] + h * to.stride[2]) * item;
    reinterpret_cast<Word*>(y)[word] = reinterpret_cast<const Word*>(x)[word];
  }
}

__global__ void advance_kernel(int32_t* position, int32_t by) { *position += by; }

// True when every row of the views consists of whole Words at multiples of their size.
template <class Word>
bool in_words(std::initializer_list<const View*> views) {
  constexpr int64_t kBytes = sizeof(Word);
  for (const View* v : views) {
    const int64_t item = item_size(v->dtype);
    if (reinterpret_cast<uintptr_t>(v->data) % kBytes != 0 || v->size[3] * item % kBytes != 0) return false;
    for (int axis = 0; axis < 3; ++axis)
      if (v->size[axis] > 1 && v->stride[axis] * item % kBytes != 0) return false;
  }
  return true;
}

template <class Word>
bool write(const CacheWriteArgs& a) {
  if (!in_words<Word>({&a.k, &a.v, &a.keys, &a.values})) return false;
  const int64_t words = a.k.numel() * item_size(a.k.dtype) / static_cast<int64_t>(sizeof(Word));
  const dim3 grid(blocks_for(words, kThreads), 2);
  write_kernel<Word><<<grid, kThreads, 0, stream_of(a.device())>>>(a);
  check_launch("cache_write");
  return true;
}

}  // namespace

void cache_write(const CacheWriteArgs& a) {
  if (a.k.numel() == 0) return;
  if (!write<uint4>(a) && !write<uint32_t>(a)) write<uint16_t>(a);
}

void cache_advance(const CacheAdvanceArgs& a) {
  advance_kernel<<<1, 1, 0, stream_of(a.device())>>>(a.position.ptr<int32_t>(), static_cast<int32_t>(a.by));
  check_launch("cache_advance");
}

}  // namespace tally::cuda
