// Copies, with a change of dtype or without, and fills on the CPU. Floats that f32 holds are converted in blocks of f32
// vectors; all other pairs of dtypes are elementwise_convert_cpu.cpp's. Where x is contiguous along another axis than
// out, both go through tiles, so that every line of memory is read and written once.
#include "tally/core/number.h"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/loops.h"

namespace tally::TALLY_ISA {

namespace {

// The axis along which x is contiguous where out is along the last one; -1 where no tiles are needed.
int tile_axis(const CopyArgs& a) {
  const int axis = turned_axis(a.x);
  return axis >= 0 && a.out.stride.v[a.out.size.rank - 1] == 1 ? axis : -1;
}

template <class T>
void move_tiles(const CopyArgs& a, int axis) {
  constexpr int64_t kSide = sizeof(T) < 4 ? 64 : 32;
  const int64_t out_row = a.out.stride.v[axis], x_row = a.x.stride.v[axis];
  const int64_t x_column = a.x.stride.v[a.x.size.rank - 1];
  for_tiles<2>({a.out, a.x}, axis, kSide, kSide, [&](const int64_t* at, int64_t rows, int64_t columns) {
    const int64_t out = at[0], x = at[1];
    T tile[kSide * kSide];
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) tile[i * kSide + j] = a.x.ptr<T>()[x + j * x_column + i * x_row];
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) a.out.ptr<T>()[out + i * out_row + j] = tile[i * kSide + j];
  });
}

// Same dtype: bits are moved. size is the element's.
template <class T>
void move_bits(const CopyArgs& a) {
  if (const int axis = tile_axis(a); axis >= 0) return move_tiles<T>(a, axis);
  const View views[2] = {a.out, a.x};
  for_rows(views, [&](const int64_t* at, int64_t n, const int64_t* step) {
    T* out = a.out.ptr<T>() + at[0];
    const T* x = a.x.ptr<T>() + at[1];
    if (step[0] == 1 && step[1] == 1) {
      __builtin_memcpy(out, x, static_cast<uint64_t>(n) * sizeof(T));
    } else if (step[0] == 1 && step[1] == 2) {  // a constant, for shuffles instead of loads one by one
      for (int64_t i = 0; i < n; ++i) out[i] = x[2 * i];
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

void convert_tiles(const CopyArgs& a, int axis) {
  constexpr int64_t kSide = 32;
  const int64_t out_row = a.out.stride.v[axis], x_row = a.x.stride.v[axis];
  const int64_t x_column = a.x.stride.v[a.x.size.rank - 1];
  for_tiles<2>({a.out, a.x}, axis, kSide, kSide, [&](const int64_t* at, int64_t rows, int64_t columns) {
    const int64_t out = at[0], x = at[1];
    alignas(64) float tile[kSide * kSide], buffer[kSide];
    for (int64_t j = 0; j < columns; ++j) {
      const float* p = block_of(a.x, x + j * x_column, x_row, rows, buffer);
      for (int64_t i = 0; i < rows; ++i) tile[i * kSide + j] = p[i];
    }
    for (int64_t i = 0; i < rows; ++i) put_block(a.out, out + i * out_row, 1, columns, tile + i * kSide, a.saturate);
  });
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
  if (const int axis = tile_axis(a); axis >= 0) return convert_tiles(a, axis);
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
