// The inner loops of the CPU matrix product: a tile of C over one block of K, its sums in registers, every element one
// chain of fused multiply-adds in order of k. For matmul_cpu.cpp only.
//  - micro<R>: R rows by kColumns columns, B packed, A packed or as its rows lie.
//  - stream<R>: few rows, B as it lies; it is transposed on the way, a few steps at a time.
//  - rows<R>: few rows, several panels of columns that lie next to each other as they lie.
//  - wide<R>: few rows, several panels of a packed weight at a time, f32 or bf16, at the speed of memory.
#pragma once

#include "tally/ops/matmul_pack.h"
#include "tally/ops/simd.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int kStreamRows = MatmulPlan::kStreamRows;

// Rows cut into panels of at most kRows, of as equal size as possible, at a fixed place each.
struct Panels {
  int64_t rows, count, steps;
  TALLY_INLINE Panels(int64_t rows, int64_t steps) : rows(rows), count(parts(rows, kRows)), steps(steps) {}
  TALLY_INLINE int64_t first(int64_t panel) const { return rows * panel / count; }
  TALLY_INLINE int64_t size(int64_t panel) const { return first(panel + 1) - first(panel); }
  TALLY_INLINE int64_t offset(int64_t panel) const { return first(panel) * steps + panel * kPadding; }
  // Panels [begin, end). Where rows lie next to each other, a few steps of all panels at a time: a cache line of A
  // belongs to several panels.
  void pack_a(float* to, const Operand& a, int64_t begin, int64_t end) const {
    const int64_t chunk = a.line == 1 ? 16 : steps;
    for (int64_t k = 0; k < steps; k += chunk)
      for (int64_t i = begin; i < end; ++i)
        pack<0>(to + offset(i) + k * size(i), size(i), a.at(first(i), k), size(i), least(chunk, steps - k));
  }
};

// R rows of A over a block of K, step after step: element (row i, step k) at data[k * pitch + i] ...
struct StepsA {
  const float* data;
  int64_t pitch;
  TALLY_INLINE void next() { data += pitch; }
  TALLY_INLINE float at(int i) const { return data[i]; }
};
// ... or at data[i * pitch + k]. A pointer for every third row: the others are one of them and one of two strides away,
// which an instruction's address can say.
template <int R>
struct RowsA {
  const float* data[(R + 2) / 3];
  int64_t pitch;
  TALLY_INLINE RowsA(const float* from, int64_t pitch) : pitch(pitch) {
    for (int i = 0; i < R; i += 3) data[i / 3] = from + i * pitch;
  }
  TALLY_INLINE void next() {
    for (const float*& p : data) ++p;
  }
  TALLY_INLINE float at(int i) const { return data[i / 3][i % 3 * pitch]; }
};

// kColumns packed columns of B over a block of K: step k at data + k * pitch.
struct PanelB {
  const float* data;
  int64_t pitch;
};

// What becomes of a tile: c = sums, or c + sums when `add`; then + bias (a float a column) unless null.
struct Tile {
  float* c;
  int64_t pitch;
  bool add;
  const float* bias;
};

// The sums of a tile of R rows and kVectors vectors of type V.
template <int R, int kVectors, class V>
struct Sums {
  static constexpr int kWidth = sizeof(V) / 4;
  V v[R][kVectors] = {};

  template <class A>
  TALLY_INLINE void step(const A& a, const V (&y)[kVectors]) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const V x = a.at(i) - V{};
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) v[i][j] = fmadd(x, y[j], v[i][j]);
    }
  }

  template <class A>
  TALLY_INLINE void add(int64_t steps, A a, const PanelB& b) {
    const float* from = b.data;
#pragma GCC unroll 2
    for (int64_t k = 0; k < steps; ++k, a.next(), from += b.pitch) {
      if constexpr (R >= kRows / 2) {  // else loads, not sums, are the limit
        for (int j = 0; j < kVectors * kWidth; j += 16) __builtin_prefetch(from + 16 * b.pitch + j, 0, 3);
      }
      V y[kVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) __builtin_memcpy(&y[j], from + j * kWidth, sizeof(V));
      step(a, y);
    }
  }

  TALLY_INLINE void finish(const Tile& t) const {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        float* c = t.c + i * t.pitch + j * kWidth;
        V x = v[i][j], old;
        if (t.add) {
          __builtin_memcpy(&old, c, sizeof(V));
          x = old + x;
        }
        if (t.bias != nullptr) {
          __builtin_memcpy(&old, t.bias + j * kWidth, sizeof(V));
          x += old;
        }
        __builtin_memcpy(c, &x, sizeof(V));
      }
  }
};

// A micro-panel of A: packed ([k][pitch], pitch >= R) or rows as they lie.
struct PanelA {
  const float* data;
  int64_t pitch;
  bool rows;
};

template <int R, class A>
void micro(int64_t steps, const float* a, int64_t pitch, const PanelB& b, const Tile& t) {
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < kColumns; j += 16) __builtin_prefetch(t.c + i * t.pitch + j, 1, 3);
  Sums<R, kColumns / kLanes, Vec> sums;
  sums.add(steps, A{a, pitch}, b);
  sums.finish(t);
}

// The whole squares of kColumns columns that are contiguous along K: packed a square's steps at a time, so that the
// processor overlaps the shuffles of the next steps with the chains of additions of the last ones. Returns the steps
// done. The sums are as wide as the rows packed, because a load cannot be served from two stores still under way.
template <int R>
using StreamSums = Sums<R, kColumns / kSquare, Row>;
template <int R, class T>
TALLY_INLINE int64_t stream_squares(StreamSums<R>& sums, int64_t steps, const float* a, const Operand& b) {
  constexpr int64_t kLine = 64 / sizeof(T);  // a cache line of every column at a time
  alignas(64) float packed[kLine * kColumns];
  const T* p[kColumns / 4];
  for (int i = 0; i < kColumns / 4; ++i) p[i] = reinterpret_cast<const T*>(b.data) + 4 * i * b.line;
  int64_t k = 0;
  for (; k + kLine <= steps; k += kLine) {
#pragma GCC unroll 4
    for (int g = 0; g < kColumns / kSquare; ++g)
#pragma GCC unroll 4
      for (int64_t h = 0; h < kLine; h += kSquareSteps<T>)
        pack_square<T>(packed + h * kColumns + g * kSquare, kColumns,
                       [&](int i) { return p[(g * kSquare + i) / 4] + i % 4 * b.line + k + h; });
    sums.add(kLine, StepsA{a + k * R, R}, {packed, kColumns});
  }
  return k;
}

template <int R>
void stream(int64_t steps, const float* a, const Operand& b, int64_t columns, const Tile& t) {
  constexpr int64_t kChunk = 32;
  alignas(64) float packed[kChunk * kColumns];
  StreamSums<R> sums;
  int64_t k = 0;
  if (b.step == 1 && columns == kColumns && b.dtype != DType::kF16)
    k = b.dtype == DType::kBF16 ? stream_squares<R, bf16>(sums, steps, a, b)
                                : stream_squares<R, float>(sums, steps, a, b);
  for (; k < steps; k += kChunk) {
    const int64_t n = least(kChunk, steps - k);
    pack_b(packed, b.at(0, k), columns, n);
    sums.add(n, StepsA{a + k * R, R}, {packed, kColumns});
  }
  sums.finish(t);
}

// Columns from `column` on of a weight packed as matmul_kernels.h says, over a block of K.
template <class T>
struct PackedWeight {
  static constexpr int64_t kPanel = MatmulArgs::kPanel;
  const T* data;
  int64_t k, steps_all;  // first step, steps of the whole weight
  TALLY_INLINE const T* at(int64_t column) const {
    return data + (column / kPanel * steps_all + k) * kPanel + column % kPanel;
  }
};

// Panels of kColumns that wide<R> takes at once: enough chains to hide the latency, few enough for the registers.
constexpr int kWideSums = kLanes == 16 ? 24 : 10;
template <int R>
constexpr int kWide = R * 8 <= kWideSums   ? 4
                      : R * 4 <= kWideSums ? 2
                                           : 1;

template <int R, int kPanels, class T>
void wide(int64_t steps, const float* a, const PackedWeight<T>& b, int64_t column, const Tile& t) {
  constexpr int kPanelVectors = kColumns / kLanes;
  const T* from[kPanels];
  for (int i = 0; i < kPanels; ++i) from[i] = b.at(column + i * kColumns);
  Sums<R, kPanels * kPanelVectors, Vec> sums;
  for (int64_t k = 0; k < steps; ++k) {
    Vec y[kPanels * kPanelVectors];
    // A page ahead, where the processor's own prefetching stops.
    for (int i = 0; i < kPanels; ++i)
      for (int j = 0; j < kColumns; j += 64 / static_cast<int>(sizeof(T)))
        __builtin_prefetch(from[i] + (k + 64 / static_cast<int>(sizeof(T)) * 2) * PackedWeight<T>::kPanel + j);
#pragma GCC unroll 4
    for (int i = 0; i < kPanels; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kPanelVectors; ++j)
        y[i * kPanelVectors + j] = load(from[i] + k * PackedWeight<T>::kPanel + j * kLanes);
    sums.step(StepsA{a + k * R, R}, y);
  }
  sums.finish(t);
}

// kPanels panels of columns that lie next to each other, unpacked, over a block of K.
template <int R, int kPanels>
void rows(int64_t steps, const float* a, const float* b, int64_t pitch, const Tile& t) {
  constexpr int kVectors = kPanels * kColumns / kLanes;
  constexpr int64_t kAhead = 8;  // rows of B that memory is asked for early
  Sums<R, kVectors, Vec> sums;
  for (int64_t k = 0; k < steps; ++k, b += pitch) {
    if (k + kAhead < steps)
      for (int j = 0; j < kPanels * kColumns; j += 16) __builtin_prefetch(b + kAhead * pitch + j, 0, 3);
    Vec y[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) y[j] = load(b + j * kLanes);
    sums.step(StepsA{a + k * R, R}, y);
  }
  sums.finish(t);
}

// ---- by number of rows

using Micro = void (*)(int64_t, const float*, int64_t, const PanelB&, const Tile&);
using Stream = void (*)(int64_t, const float*, const Operand&, int64_t, const Tile&);
template <class T>
using Wide = void (*)(int64_t, const float*, const PackedWeight<T>&, int64_t, const Tile&);

template <int R>
constexpr Micro micro_of(int64_t rows, bool as_rows) {
  if constexpr (R == 0)
    return nullptr;
  else if (rows == R)
    return as_rows ? micro<R, RowsA<R>> : micro<R, StepsA>;
  else
    return micro_of<R - 1>(rows, as_rows);
}
struct MicroTable {
  Micro of[2][kRows + 1];
  constexpr MicroTable() : of{} {
    for (int i = 1; i <= kRows; ++i) of[0][i] = micro_of<kRows>(i, false), of[1][i] = micro_of<kRows>(i, true);
  }
};
constexpr MicroTable kMicro;
TALLY_INLINE void run_micro(int64_t rows, int64_t steps, const PanelA& a, const PanelB& b, const Tile& t) {
  kMicro.of[a.rows][rows](steps, a.data, a.pitch, b, t);
}
constexpr Stream kStream[] = {nullptr, stream<1>, stream<2>, stream<3>, stream<4>};
template <class T>
constexpr Wide<T> kWideTable[][2] = {{nullptr, nullptr},
                                     {wide<1, 1, T>, wide<1, kWide<1>, T>},
                                     {wide<2, 1, T>, wide<2, kWide<2>, T>},
                                     {wide<3, 1, T>, wide<3, kWide<3>, T>},
                                     {wide<4, 1, T>, wide<4, kWide<4>, T>}};
using Rows = void (*)(int64_t, const float*, const float*, int64_t, const Tile&);
constexpr Rows kRowsTable[][2] = {{nullptr, nullptr},
                                  {rows<1, 1>, rows<1, kWide<1>>},
                                  {rows<2, 1>, rows<2, kWide<2>>},
                                  {rows<3, 1>, rows<3, kWide<3>>},
                                  {rows<4, 1>, rows<4, kWide<4>>}};
constexpr int kWidePanels[] = {0, kWide<1>, kWide<2>, kWide<3>, kWide<4>};
static_assert(kStreamRows == 4);

}  // namespace
}  // namespace tally::TALLY_ISA
