// Copies, with a change of dtype or without, and fills on CUDA.
#include "tally/core/number.h"
#include "tally/ops/elementwise_cuda.cuh"
#include "tally/ops/elementwise_kernels.h"

namespace tally::cuda {

namespace {

struct Move {
  static constexpr int kBlocks = 4;
  static constexpr bool kMoves = true;
  __device__ __forceinline__ void run(const float (&in)[1], float (&out)[1]) const { out[0] = in[0]; }
};

// ---- copies of other dtypes and fills

// Bits of numbers of 1 or 8 bytes, or of words of 16.
template <class Word>
__global__ void __launch_bounds__(kThreads) copy_words(const __grid_constant__ Axes<2> a, int64_t count) {
  let_next_start();
  wait_for_previous();
  const int last = a.rank - 1;
  const int64_t stride = int64_t{gridDim.x} * (kThreads * kAtOnce);
  for (int64_t first = int64_t{blockIdx.x} * (kThreads * kAtOnce) + threadIdx.x; first < count; first += stride) {
    Word word[kAtOnce] = {};
    int64_t to[kAtOnce] = {};
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t k = first + u * kThreads;
      if (k >= count) continue;
      const int64_t row = last == 0 ? 0 : k / a.size[last], column = k - row * a.size[last];
      int64_t at[2] = {column * a.stride[0][last], column * a.stride[1][last]};
      add_row(a, row, at);
      word[u] = static_cast<const Word*>(a.data[1])[at[1]], to[u] = at[0];
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (first + u * kThreads < count) static_cast<Word*>(a.data[0])[to[u]] = word[u];
  }
}

// Rows seen as words of `size` / `item` numbers, where strides and pointers allow it.
bool widen(Axes<2>& a, int64_t item, int64_t size) {
  const int last = a.rank - 1;
  const int64_t numbers = size / item;
  bool fits = a.size[last] % numbers == 0;
  for (int k = 0; k < 2; ++k) {
    fits = fits && a.stride[k][last] == 1 && reinterpret_cast<uintptr_t>(a.data[k]) % static_cast<uint64_t>(size) == 0;
    for (int axis = 0; axis < last; ++axis) fits = fits && a.stride[k][axis] % numbers == 0;
  }
  if (!fits) return false;
  a.size[last] /= numbers;
  for (int k = 0; k < 2; ++k)
    for (int axis = 0; axis < last; ++axis) a.stride[k][axis] /= numbers;
  return true;
}

void move_wide_or_narrow(const CopyArgs& c) {
  Axes<2> a = axes_of<2>({&c.out, &c.x});
  const int64_t item = item_size(c.x.dtype);
  const bool wide = widen(a, item, 16);
  int64_t count = 1;
  for (int axis = 0; axis < a.rank; ++axis) count *= a.size[axis];
  const auto kernel = wide ? copy_words<uint4> : item == 8 ? copy_words<uint64_t> : copy_words<uint8_t>;
  launch_after(CopyArgs::name, kernel, {blocks_for(count, kThreads * kAtOnce), kThreads}, c.device(), a, count);
}

// Any two dtypes, as on the CPU.
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const __grid_constant__ Axes<2> a, DType to, DType from, bool saturate, int64_t count) {
  let_next_start();
  wait_for_previous();
  const int last = a.rank - 1;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < count; k += int64_t{gridDim.x} * kThreads) {
    const int64_t row = last == 0 ? 0 : k / a.size[last], column = k - row * a.size[last];
    int64_t at[2] = {column * a.stride[0][last], column * a.stride[1][last]};
    add_row(a, row, at);
    write_number_bits(a.data[0], item_size(to), at[0], convert_bits(to, a.data[1], from, at[1], saturate));
  }
}

// Between f8 and f32, bf16 or f16 that lie flat and aligned: 8 numbers a thread.
struct F8 {
  const void* x;
  void* out;
  DType wide;
  bool e5m2, saturate;
};
template <bool kNarrows>
__global__ void __launch_bounds__(kThreads) f8_kernel(const __grid_constant__ F8 a, int64_t chunks) {
  const bool half = a.wide != DType::kF32, f16 = a.wide == DType::kF16;
  let_next_start();
  wait_for_previous();
  for (int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x; c < chunks; c += int64_t{gridDim.x} * kThreads) {
    float x[kChunk];
    uint32_t w[2] = {0, 0};
    if constexpr (kNarrows) {
      unpack(load_chunk(a.x, c * kChunk, 1, kChunk, half, true), half, f16, x);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const uint32_t code = a.e5m2 ? to_f8e5m2(x[i], a.saturate).bits : to_f8e4m3(x[i], a.saturate).bits;
        w[i / 4] |= code << (i % 4 * 8);
      }
      static_cast<uint2*>(a.out)[c] = make_uint2(w[0], w[1]);
    } else {
      const uint2 codes = static_cast<const uint2*>(a.x)[c];
      w[0] = codes.x, w[1] = codes.y;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const auto code = static_cast<uint8_t>(w[i / 4] >> (i % 4 * 8));
        x[i] = a.e5m2 ? to_float(f8e5m2{code}) : to_float(f8e4m3{code});
      }
      store_chunk(a.out, c * kChunk, 1, kChunk, half, true, pack(x, half, f16));
    }
  }
}

bool is_f8(DType t) { return t == DType::kF8E4M3 || t == DType::kF8E5M2; }

// True when it took the call.
bool convert_f8(const CopyArgs& a) {
  const bool narrows = is_f8(a.out.dtype);
  const View &wide = narrows ? a.x : a.out, &narrow = narrows ? a.out : a.x;
  if (!is_f8(narrow.dtype) || (wide.dtype != DType::kF32 && !is_half(wide.dtype))) return false;
  const int64_t count = a.out.numel();
  if (!a.x.contiguous() || !a.out.contiguous() || count % kChunk != 0 || !aligned<float>(wide.data, 0) ||
      reinterpret_cast<uintptr_t>(narrow.data) % kChunk != 0)
    return false;
  const F8 f8 = {a.x.data, a.out.data, wide.dtype, narrow.dtype == DType::kF8E5M2, a.saturate};
  const auto kernel = narrows ? f8_kernel<true> : f8_kernel<false>;
  launch_after(CopyArgs::name, kernel, {blocks_for(count / kChunk, kThreads), kThreads}, a.device(), f8,
               count / kChunk);
  return true;
}

// `words` of 16 bytes, then the numbers from `done` on; strided views have no words.
__global__ void __launch_bounds__(kThreads) fill_kernel(const __grid_constant__ Axes<1> a, int64_t item, uint64_t bits,
                                                        uint4 word, int64_t words, int64_t done, int64_t count) {
  let_next_start();
  wait_for_previous();
  const int last = a.rank - 1;
  const int64_t start = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
  for (int64_t k = start; k < words; k += stride) static_cast<uint4*>(a.data[0])[k] = word;
  for (int64_t k = done + start; k < count; k += stride) {
    const int64_t row = last == 0 ? 0 : k / a.size[last], column = k - row * a.size[last];
    int64_t at[1] = {column * a.stride[0][last]};
    add_row(a, row, at);
    write_number_bits(a.data[0], item, at[0], bits);
  }
}

bool is_mapped(DType t) { return t == DType::kF32 || is_half(t); }

}  // namespace

void fill(const FillArgs& a) {
  const int64_t count = a.out.numel(), item = item_size(a.out.dtype);
  if (count == 0) return;
  const Axes<1> axes = axes_of<1>({&a.out});
  const uint64_t bits = number_bits(a.out.dtype, a.value);
  uint64_t twice = bits;
  for (int64_t width = item; width < 8; width *= 2) twice |= twice << (8 * width);
  const uint32_t low = static_cast<uint32_t>(twice), high = static_cast<uint32_t>(twice >> 32);
  const bool flat = axes.rank == 1 && axes.stride[0][0] == 1 && reinterpret_cast<uintptr_t>(a.out.data) % 16 == 0;
  const int64_t words = flat ? count * item / 16 : 0, done = words * 16 / item;
  launch_after(FillArgs::name, fill_kernel, {blocks_for(words + count - done, kThreads), kThreads}, a.device(), axes,
               item, bits, make_uint4(low, high, low, high), words, done, count);
}

void copy(const CopyArgs& a) {
  const int64_t count = a.out.numel(), item = item_size(a.x.dtype);
  if (count == 0) return;
  const bool same = a.x.dtype == a.out.dtype;
  if ((same && (item == 2 || item == 4)) || (is_mapped(a.x.dtype) && is_mapped(a.out.dtype)))
    return map<1, 1>(CopyArgs::name, a.device(), {&a.out, &a.x}, Move{});
  if (same) return move_wide_or_narrow(a);
  if (convert_f8(a)) return;
  launch_after(CopyArgs::name, convert_kernel, {blocks_for(count, kThreads), kThreads}, a.device(),
               axes_of<2>({&a.out, &a.x}), a.out.dtype, a.x.dtype, a.saturate, count);
}

}  // namespace tally::cuda
