// What the forward and the backward of attention_cpu.cpp are built from: small matrix products with one chain of fused
// multiply-adds an element, loading of blocks (transposed or widened and padded), addresses of rows. For that file
// only.
#pragma once

#include <utility>

#include "tally/ops/loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

// Sizes of the buffers on the stack, in floats: a block of keys, a tile of rows.
constexpr int64_t kKeyFloats = 64 * 128;
constexpr int64_t kForwardFloats = 96 * 128, kBackwardFloats = 48 * 128;
constexpr int64_t kMaxRows = 96, kMaxKeys = 64, kGroup = 6;  // rows computed at a time
constexpr int kGroupVecs = kLanes == 16 ? 4 : 2;

TALLY_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
TALLY_INLINE int64_t clamp(int64_t x, int64_t high) { return x < 0 ? 0 : smaller(x, high); }
TALLY_INLINE int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }
// Keys of a block and rows of a tile by head size. The block is part of the result's definition, the tile is not.
TALLY_INLINE int64_t block_keys(int64_t d) { return d <= 128 ? 64 : 32; }
TALLY_INLINE int64_t tile_rows(int64_t floats, int64_t d) {
  return d == 0 ? kMaxRows : smaller(kMaxRows, floats / padded(d) / kGroup * kGroup);
}

// ---- products

// C[m][n] = C[m][n] * factor[m] (0 without factors) + A[m][0] B[0][n] + A[m][1] B[1][n] + ...: one chain an element.
struct Product {
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  const float* factor;
};

template <int M, int V>
void product_tile(const Product& p, int64_t column, int64_t steps) {
  Vec sum[M][V];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      sum[m][v] = p.factor ? load(p.c + m * p.c_row + column + v * kLanes) * p.factor[m] : Vec{};
  const float* a = p.a;
  const float* b = p.b + column;
  for (int64_t k = 0; k < steps; ++k, a += p.a_step, b += p.b_row) {
    Vec x[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) x[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const Vec s = broadcast(a[m * p.a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[m][v] = fmadd(s, x[v], sum[m][v]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(p.c + m * p.c_row + column + v * kLanes, sum[m][v]);
}

// M rows, `columns` a multiple of kLanes.
template <int M>
void product_rows(const Product& p, int64_t columns, int64_t steps) {
  int64_t n = 0;
  for (; n + kGroupVecs * kLanes <= columns; n += kGroupVecs * kLanes) product_tile<M, kGroupVecs>(p, n, steps);
  if (kGroupVecs == 4 && n + 2 * kLanes <= columns) product_tile<M, 2>(p, n, steps), n += 2 * kLanes;
  if (n < columns) product_tile<M, 1>(p, n, steps);
}

// At most kGroup rows.
void product(int64_t rows, const Product& p, int64_t columns, int64_t steps) {
  switch (rows) {
    case 6:
      return product_rows<6>(p, columns, steps);
    case 5:
      return product_rows<5>(p, columns, steps);
    case 4:
      return product_rows<4>(p, columns, steps);
    case 3:
      return product_rows<3>(p, columns, steps);
    case 2:
      return product_rows<2>(p, columns, steps);
    case 1:
      return product_rows<1>(p, columns, steps);
    default:
      return;
  }
}

constexpr float kOnes[kGroup] = {1, 1, 1, 1, 1, 1};

// ---- loading blocks

// Exchanges the blocks of `w` lanes off the diagonal of rows i and i + w.
template <int w, int... I>
TALLY_INLINE void exchange(Vec& a, Vec& b, std::integer_sequence<int, I...>) {
  const Vec low = __builtin_shufflevector(a, b, ((I & w) == 0 ? I : kLanes + I - w)...);
  b = __builtin_shufflevector(a, b, ((I & w) == 0 ? I + w : kLanes + I)...);
  a = low;
}
template <int w>
TALLY_INLINE void exchange_all(Vec (&x)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if ((i & w) == 0) exchange<w>(x[i], x[i + w], std::make_integer_sequence<int, kLanes>{});
  if constexpr (w > 1) exchange_all<w / 2>(x);
}

// out[column][row] of n rows of d columns, `rows` apart in `out` and zero in [n, rows). rows is a multiple of kLanes.
template <class T>
void load_transposed(const T* x, int64_t x_row, int64_t n, int64_t d, int64_t rows, float* out) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    int64_t c = 0;
    if (r + kLanes <= n) {
      for (; c + kLanes <= d; c += kLanes) {
        Vec t[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) t[i] = load(x + (r + i) * x_row + c);
        exchange_all<kLanes / 2>(t);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(out + (c + i) * rows + r, t[i]);
      }
    }
    for (; c < d; ++c)
      for (int64_t i = 0; i < kLanes; ++i) out[c * rows + r + i] = r + i < n ? load_one(x + (r + i) * x_row + c) : 0.0f;
  }
}

template <class T>
TALLY_INLINE void load_row(const T* x, int64_t d, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= d; i += kLanes) store(out + i, load(x + i));
  for (; i < d; ++i) out[i] = load_one(x + i);
  for (; i % 16 != 0; ++i) out[i] = 0;
}
template <class T>
TALLY_INLINE void store_row(T* out, const float* x, int64_t d) {
  int64_t i = 0;
  for (; i + kLanes <= d; i += kLanes) store(out + i, load(x + i));
  for (; i < d; ++i) store_one(out + i, x[i]);
}

// n rows of d columns as f32, rows `row` apart and padded with zeros: in place where they already lie so.
template <class T>
const float* load_rows(const T* x, int64_t x_row, int64_t n, int64_t d, float* buffer, int64_t& row) {
  if constexpr (std::is_same_v<T, float>) {
    if (d % 16 == 0) {
      row = x_row;
      return x;
    }
  }
  row = padded(d);
  for (int64_t i = 0; i < n; ++i) load_row(x + i * x_row, d, buffer + i * row);
  return buffer;
}

// ---- addresses

// The rows of one key head: row r is query r / heads, head kv_head * heads + r % heads.
struct Rows {
  int64_t batch, kv_head, heads;
};
// One of them; a walk over rows divides once.
struct Row {
  const Rows& of;
  int64_t query, head;  // head counted from the first of the key head
  TALLY_INLINE Row(const Rows& rows, int64_t r) : of(rows), query(r / rows.heads), head(r % rows.heads) {}
  TALLY_INLINE void operator++() {
    if (++head == of.heads) head = 0, ++query;
  }
};
template <class T>
TALLY_INLINE T* row_of(const View& v, const Row& row) {
  const Rows& rows = row.of;
  return v.ptr<T>() + rows.batch * v.stride[0] + row.query * v.stride[1] +
         (rows.kv_head * rows.heads + row.head) * v.stride[2];
}
template <class T>
TALLY_INLINE T& number_of(const View& v, const Row& row) {  // v (B, H, Tq)
  const Rows& rows = row.of;
  return v.ptr<T>()[rows.batch * v.stride[0] + (rows.kv_head * rows.heads + row.head) * v.stride[1] +
                    row.query * v.stride[2]];
}
template <class T>
TALLY_INLINE T* key_of(const View& v, const Rows& rows, int64_t key) {
  return v.ptr<T>() + rows.batch * v.stride[0] + key * v.stride[1] + rows.kv_head * v.stride[2];
}
}  // namespace

}  // namespace tally::TALLY_ISA
