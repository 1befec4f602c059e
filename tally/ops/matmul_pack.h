// How the CPU matrix product packs its operands: a micro-panel holds a few lines (rows of A or columns of B) over a
// block of K as f32, element (line i, step k) at to[k * pitch + i]. Lines contiguous along K are transposed in
// registers, lines next to each other are copied, others are gathered; bf16 and f16 are widened on the way. For
// matmul_cpu.cpp only.
#pragma once

#include "tally/ops/matmul_kernels.h"
#include "tally/ops/simd.h"

namespace tally::TALLY_ISA {

// Panels are transposed in squares, by vectors of at most 8 lanes: 256-bit shuffles have two ports where 512-bit ones
// have one.
constexpr int kSquare = kLanes < 8 ? kLanes : 8;
using Row = float __attribute__((vector_size(4 * kSquare)));
#if defined(TALLY_SIMD_V4)
TALLY_INLINE Row fmadd(Row a, Row b, Row c) { return _mm256_fmadd_ps(a, b, c); }
#endif

namespace {

#if defined(TALLY_SIMD_V4)
constexpr int kRows = 14;  // of a micro-tile: 28 of 32 registers are sums
#elif defined(TALLY_SIMD_V3)
constexpr int kRows = 6;  // 12 of 16
#else
constexpr int kRows = 4;
#endif
constexpr int kColumns = 2 * kLanes;
constexpr int64_t kBlockK = MatmulPlan::kBlockK;
constexpr int64_t kPadding = MatmulPlan::kPadding;

TALLY_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
TALLY_INLINE int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

// A matrix as packing sees it: `line` is the stride between rows of A or columns of B, `step` the stride along K.
struct Operand {
  const char* data;
  DType dtype;
  int64_t line, step;

  TALLY_INLINE Operand at(int64_t lines, int64_t steps) const {
    return {data + (lines * line + steps * step) * item_size(dtype), dtype, line, step};
  }
};

using RowU = uint32_t __attribute__((vector_size(4 * kSquare)));

TALLY_INLINE void store_row(float* p, Row x) { __builtin_memcpy(p, &x, sizeof x); }

// In every group of four lanes: elements I J K L of the group's eight (a's four, then b's four).
template <int I, int J, int K, int L>
TALLY_INLINE Row shuffle4(Row a, Row b) {
  constexpr auto lane = [](int group, int e) { return e < 4 ? 4 * group + e : kSquare + 4 * group + e - 4; };
#if defined(TALLY_SIMD_V3) || defined(TALLY_SIMD_V4)
  return __builtin_shufflevector(a, b, lane(0, I), lane(0, J), lane(0, K), lane(0, L), lane(1, I), lane(1, J),
                                 lane(1, K), lane(1, L));
#else
  return __builtin_shufflevector(a, b, lane(0, I), lane(0, J), lane(0, K), lane(0, L));
#endif
}

// The 16 bytes at rows i and (where vectors have 8 lanes) i + 4, one after the other; row(i) is the address of row i.
template <class Address>
TALLY_INLINE Row load_pieces(const Address& row, int i, int piece) {
#if defined(TALLY_SIMD_V3) || defined(TALLY_SIMD_V4)
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row(i) + 4 * piece)),
                              _mm_loadu_ps(row(i + 4) + 4 * piece), 1);
#else
  return load(row(i) + 4 * piece);
#endif
}

// Transposes kSquare rows of kSquare floats; store_column(j, column j of the square).
template <class Address, class Store>
TALLY_INLINE void transpose_square(const Address& row, const Store& store_column) {
#pragma GCC unroll 2
  for (int j = 0; j < kSquare / 4; ++j) {
    const Row x0 = load_pieces(row, 0, j), x1 = load_pieces(row, 1, j);
    const Row x2 = load_pieces(row, 2, j), x3 = load_pieces(row, 3, j);
    const Row low0 = shuffle4<0, 4, 1, 5>(x0, x1), low1 = shuffle4<0, 4, 1, 5>(x2, x3);
    const Row high0 = shuffle4<2, 6, 3, 7>(x0, x1), high1 = shuffle4<2, 6, 3, 7>(x2, x3);
    store_column(4 * j, shuffle4<0, 1, 4, 5>(low0, low1));
    store_column(4 * j + 1, shuffle4<2, 3, 6, 7>(low0, low1));
    store_column(4 * j + 2, shuffle4<0, 1, 4, 5>(high0, high1));
    store_column(4 * j + 3, shuffle4<2, 3, 6, 7>(high0, high1));
  }
}

// One square of kSquare lines that are contiguous along K: kSquare steps of f32, or twice as many of bf16, of which two
// are moved as one f32 and split after the transpose. line(i) is the address of line i's first step.
template <class T>
constexpr int kSquareSteps = kSquare * 4 / sizeof(T);
template <class T, class Line>
TALLY_INLINE void pack_square(float* to, int64_t pitch, const Line& line) {
  transpose_square([&](int i) { return reinterpret_cast<const float*>(line(i)); },
                   [&](int j, Row y) {
                     if constexpr (sizeof(T) == 4) {
                       store_row(to + j * pitch, y);
                     } else {
                       const RowU u = __builtin_bit_cast(RowU, y);
                       store_row(to + 2 * j * pitch, __builtin_bit_cast(Row, u << 16));
                       store_row(to + (2 * j + 1) * pitch, __builtin_bit_cast(Row, u & 0xFFFF0000u));
                     }
                   });
}

// At most kSquare lines that are contiguous along K. kPitch: the pitch where it is known (B), else 0. For fewer than
// kSquare lines whole vectors are written.
template <class T, int kPitch>
void pack_lines(float* to, int64_t any_pitch, const T* from, int64_t line, int64_t lines, int64_t steps) {
  const int64_t pitch = kPitch > 0 ? kPitch : any_pitch;
  int64_t k = 0;
  if (lines >= kSquare) {
    const T* p[2] = {from, from + 4 * line};
    for (; k + kSquareSteps<T> <= steps; k += kSquareSteps<T>)
      pack_square<T>(to + k * pitch, pitch, [&](int i) { return p[i / 4] + i % 4 * line + k; });
  } else {
    const T* p[kSquare];
    for (int i = 0; i < kSquare; ++i) p[i] = from + least(i, lines - 1) * line;
    for (; k + kSquareSteps<T> <= steps; k += kSquareSteps<T>)
      pack_square<T>(to + k * pitch, pitch, [&](int i) { return p[i] + k; });
  }
  const int64_t rest = least(lines, kSquare);
  for (; k < steps; ++k)
    for (int64_t i = 0; i < rest; ++i) to[k * pitch + i] = load_one(from + i * line + k);
}

// Lines next to each other in memory. Whole vectors are written; the next step overwrites what is too much.
template <class T>
void pack_steps(float* to, int64_t pitch, const T* from, int64_t step, int64_t lines, int64_t steps) {
  const int64_t whole = lines / kLanes * kLanes, rest = lines - whole;
  for (int64_t k = 0; k < steps; ++k, to += pitch, from += step) {
    for (int64_t i = 0; i < whole; i += kLanes) store(to + i, load(from + i));
    if (rest > 0) store(to + whole, load_partial(from + whole, rest));
  }
}

// Whatever the strides: along the lines where they are next to each other, else along K.
void pack_f16(float* to, int64_t pitch, const Operand& x, int64_t lines, int64_t steps) {
  const f16* from = reinterpret_cast<const f16*>(x.data);
  if (x.line == 1) return pack_steps(to, pitch, from, x.step, lines, steps);
  for (int64_t i = 0; i < lines; ++i)
    for (int64_t k = 0; k < steps; ++k) to[k * pitch + i] = to_float(from[i * x.line + k * x.step]);
}

template <class T, int kPitch>
void pack_typed(float* to, int64_t pitch, const Operand& x, int64_t lines, int64_t steps) {
  const T* from = reinterpret_cast<const T*>(x.data);
  if (x.step == 1) {
    // Some steps at a time, so that what is written stays in the nearest cache until its lines are full. The last lines
    // first: what they write too much is the first lines' place at the next step.
    constexpr int64_t kChunk = 64;
    for (int64_t k = 0; k < steps; k += kChunk) {
      if (k + kChunk < steps)
        for (int64_t i = 0; i < lines; ++i)
          for (int64_t j = 0; j < kChunk; j += 64 / static_cast<int64_t>(sizeof(T)))
            __builtin_prefetch(from + i * x.line + k + kChunk + j, 0, 3);
      for (int64_t i = (lines - 1) / kSquare * kSquare; i >= 0; i -= kSquare)
        pack_lines<T, kPitch>(to + k * pitch + i, pitch, from + i * x.line + k, x.line, lines - i,
                              least(kChunk, steps - k));
    }
  } else if (x.line == 1) {
    pack_steps(to, pitch, from, x.step, lines, steps);
  } else {
    for (int64_t k = 0; k < steps; ++k)
      for (int64_t i = 0; i < lines; ++i) to[k * pitch + i] = load_one(from + i * x.line + k * x.step);
  }
}

// f16 is gathered, where bf16 and f32 are transposed in registers.
template <int kPitch>
void pack(float* to, int64_t pitch, const Operand& x, int64_t lines, int64_t steps) {
  if (x.dtype == DType::kF16) return pack_f16(to, pitch, x, lines, steps);
  x.dtype == DType::kBF16 ? pack_typed<bf16, kPitch>(to, pitch, x, lines, steps)
                          : pack_typed<float, kPitch>(to, pitch, x, lines, steps);
}

// Columns of B behind the last one are zero or a copy of it.
void pack_b(float* to, const Operand& b, int64_t columns, int64_t steps) {
  if (columns < kColumns)
    for (int64_t i = 0; i < steps * kColumns; ++i) to[i] = 0.0f;
  pack<kColumns>(to, kColumns, b, columns, steps);
}

}  // namespace
}  // namespace tally::TALLY_ISA
