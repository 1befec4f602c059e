// Copies, with a change of dtype or without, and fills on the CPU. Floats that f32 holds are converted in blocks of f32
// vectors; all other pairs of dtypes are elementwise_convert_cpu.cpp's.
#include "tally/core/number.h"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

namespace {

// Same dtype: bits are moved. size is the element's.
template <class T>
void move_bits(const CopyArgs& a) {
  const View views[2] = {a.out, a.x};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    T* out = a.out.ptr<T>() + at[0];
    const T* x = a.x.ptr<T>() + at[1];
    if (step[0] == 1 && step[1] == 1) {
      __builtin_memcpy(out, x, static_cast<uint64_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) out[i * step[0]] = x[i * step[1]];
    }
  });
}

template <class T>
void fill_bits(const View& out, uint64_t bits) {
  const View views[1] = {out};
  const T value = static_cast<T>(bits);
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    T* p = out.ptr<T>() + at[0];
    for (int64_t i = 0; i < n; ++i) p[i * step[0]] = value;
  });
}

bool is_f8(DType t) { return t == DType::kF8E4M3 || t == DType::kF8E5M2; }
// What a block of f32 holds exactly and is rounded from once.
bool through_f32(DType t) { return t == DType::kF32 || is_half(t) || is_f8(t); }

const float* block_of(const View& v, int64_t at, int64_t step, int64_t n, float* buffer) {
  if (!is_f8(v.dtype)) return block_in(v, at, step, n, buffer);
  const uint8_t* p = v.ptr<uint8_t>() + at;
  if (v.dtype == DType::kF8E4M3) {
    for (int64_t i = 0; i < n; ++i) buffer[i] = to_float(f8e4m3{p[i * step]});
  } else {
    for (int64_t i = 0; i < n; ++i) buffer[i] = to_float(f8e5m2{p[i * step]});
  }
  return buffer;
}

void put_block(const View& v, int64_t at, int64_t step, int64_t n, const float* x, bool saturate) {
  if (!is_f8(v.dtype)) return block_out(v, at, step, n, x, x);
  uint8_t codes[kBlock];
  if (v.dtype == DType::kF8E4M3) {
    for (int64_t i = 0; i < n; ++i) codes[i] = to_f8e4m3(x[i], saturate).bits;
  } else {
    for (int64_t i = 0; i < n; ++i) codes[i] = to_f8e5m2(x[i], saturate).bits;
  }
  uint8_t* p = v.ptr<uint8_t>() + at;
  for (int64_t i = 0; i < n; ++i) p[i * step] = codes[i];
}

}  // namespace

void fill(const FillArgs& a) {
  const uint64_t bits = number_bits(a.out.dtype, a.value);
  switch (item_size(a.out.dtype)) {
    case 8:
      return fill_bits<uint64_t>(a.out, bits);
    case 4:
      return fill_bits<uint32_t>(a.out, bits);
    case 2:
      return fill_bits<uint16_t>(a.out, bits);
    default:
      return fill_bits<uint8_t>(a.out, bits);
  }
}

void copy(const CopyArgs& a) {
  const View views[2] = {a.out, a.x};
  if (a.x.dtype == a.out.dtype) {
    switch (item_size(a.x.dtype)) {
      case 8:
        return move_bits<uint64_t>(a);
      case 4:
        return move_bits<uint32_t>(a);
      case 2:
        return move_bits<uint16_t>(a);
      default:
        return move_bits<uint8_t>(a);
    }
  }
  if (!through_f32(a.x.dtype) || !through_f32(a.out.dtype)) return isa_plain::convert(a);
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    alignas(64) float buffer[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = n - i < kBlock ? n - i : kBlock;
      put_block(a.out, at[0] + i * step[0], step[0], m, block_of(a.x, at[1] + i * step[1], step[1], m, buffer),
                a.saturate);
    }
  });
}

}  // namespace tally::TALLY_ISA
