// The packed CPU matrix product (matmul_kernels.h states its numerics).
// As in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008: rows of A and
// columns of B are packed into micro-panels ([k][rows], [k][columns], f32) and a micro-kernel keeps a tile of C in
// registers over a block of K. Threads and tiles cut M and N, never K, so no element's sum depends on them.
//  - Tall products: a block of A is packed into scratch by all threads, then every thread takes panels of B, packs each
//    on its stack and runs over the block of A.
//  - All others: a task is (batch, rows, columns); it packs both operands on its stack. With few rows every task reads
//    its part of B once, which is what decoding needs.
#include "tally/ops/matmul_kernels.h"

#include "tally/base/parallel.h"
#include "tally/ops/matmul_pack.h"
#include "tally/ops/simd.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int kStreamRows = 4;
constexpr int64_t kTaskRows = MatmulPlan::kTaskRows;
constexpr int64_t kTaskColumns = 128;

// Cache lines of a panel of B that will be packed next, to be asked for while the present one is at work.
struct Prefetch {
  const char* data = nullptr;
  int64_t stride = 0, lines = 0;  // bytes between runs of 2^shift cache lines; cache lines in all
  int shift = 0;

  Prefetch() = default;
  Prefetch(const Operand& b, int64_t steps) {
    const int64_t run = item_size(b.dtype) * (b.step == 1 ? kBlockK : kColumns);
    if (b.step != 1 && b.line != 1) return;
    while ((int64_t{64} << (shift + 1)) <= run) ++shift;
    data = b.data;
    stride = item_size(b.dtype) * (b.step == 1 ? b.line : b.step);
    lines = (b.step == 1 ? kColumns : steps) << shift;
  }
  // Part i of n.
  TALLY_INLINE void part(int64_t i, int64_t n) const {
    for (int64_t l = lines * i / n, end = lines * (i + 1) / n; l < end; ++l)
      __builtin_prefetch(data + (l >> shift) * stride + (l & ((1 << shift) - 1)) * 64, 0, 2);
  }
};

// Rows cut into panels of at most kRows, of as equal size as possible, at a fixed place each.
struct Panels {
  int64_t rows, count, steps;
  TALLY_INLINE Panels(int64_t rows, int64_t steps) : rows(rows), count(parts(rows, kRows)), steps(steps) {}
  TALLY_INLINE int64_t first(int64_t panel) const { return rows * panel / count; }
  TALLY_INLINE int64_t offset(int64_t panel) const { return first(panel) * steps + panel * kPadding; }
  // Panels [begin, end). Where rows lie next to each other, a few steps of all panels at a time: a cache line of A
  // belongs to several panels.
  void pack_a(float* to, const Operand& a, int64_t begin, int64_t end) const {
    const int64_t chunk = a.line == 1 ? 16 : steps;
    for (int64_t k = 0; k < steps; k += chunk)
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = first(i), n = first(i + 1) - row;
        pack<0>(to + offset(i) + k * n, n, a.at(row, k), n, least(chunk, steps - k));
      }
  }
};
constexpr int64_t kTaskFloats = kTaskRows * kBlockK + kPadding * (kTaskRows / 3 + 1);

// ---- the micro-kernel

// kColumns columns of B over a block of K, packed or (up to kStreamRows rows) as they are.
struct PanelB {
  const float* packed;
  Operand source;
  int64_t columns;  // valid ones
};

// What becomes of a tile: c = sums, or c + sums when `add`; then + bias (kColumns floats) unless null.
struct Tile {
  float* c;
  int64_t pitch;
  bool add;
  const float* bias;
};

// The sums of a tile of R rows in vectors of type V.
template <int R, class V>
struct Sums {
  static constexpr int kWidth = sizeof(V) / 4, kVectors = kColumns / kWidth;
  V v[R][kVectors] = {};

  // a: [k][R]; b: [k][kColumns].
  TALLY_INLINE void add(int64_t steps, const float* a, const float* b) {
#pragma GCC unroll 2
    for (int64_t k = 0; k < steps; ++k, a += R, b += kColumns) {
      V y[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) __builtin_memcpy(&y[j], b + j * kWidth, sizeof(V));
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const V x = a[i] - V{};
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) v[i][j] = fmadd(x, y[j], v[i][j]);
      }
    }
  }

  TALLY_INLINE void finish(const Tile& t) const {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
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

// a: [k][R]; b: packed, [k][kColumns].
template <int R>
void micro(int64_t steps, const float* a, const PanelB& b, const Tile& t) {
  if (t.add)
    for (int i = 0; i < R; ++i)
      for (int j = 0; j < kColumns; j += 16) __builtin_prefetch(t.c + i * t.pitch + j, 0, 2);
  Sums<R, Vec> sums;
  sums.add(steps, a, b.packed);
  sums.finish(t);
}

// The whole squares of kColumns columns that are contiguous along K: packed a square's steps at a time, so that the
// processor overlaps the shuffles of the next steps with the chains of additions of the last ones. Returns the steps
// done.
template <int R, class T>
TALLY_INLINE int64_t stream_squares(Sums<R, Row>& sums, int64_t steps, const float* a, const Operand& b) {
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
    sums.add(kLine, a + k * R, packed);
  }
  return k;
}

// micro() for few rows, which spend their time on B: it is packed some steps at a time. The sums are as wide as the
// rows packed, because a load cannot be served from two stores still under way.
template <int R>
void stream(int64_t steps, const float* a, const PanelB& b, const Tile& t) {
  constexpr int64_t kChunk = 32;
  alignas(64) float packed[kChunk * kColumns];
  Sums<R, Row> sums;
  int64_t k = 0;
  if (b.source.step == 1 && b.columns == kColumns)
    k = b.source.dtype == DType::kBF16 ? stream_squares<R, bf16>(sums, steps, a, b.source)
                                       : stream_squares<R, float>(sums, steps, a, b.source);
  for (; k < steps; k += kChunk) {
    const int64_t n = least(kChunk, steps - k);
    pack_b(packed, b.source.at(0, k), b.columns, n);
    sums.add(n, a + k * R, packed);
  }
  sums.finish(t);
}

using Micro = void (*)(int64_t, const float*, const PanelB&, const Tile&);
template <int R>
constexpr Micro micro_of(int64_t rows, bool packed) {
  if constexpr (R == 0) {
    return nullptr;
  } else {
    if constexpr (R <= kStreamRows)
      if (rows == R && !packed) return stream<R>;
    return rows == R ? micro<R> : micro_of<R - 1>(rows, packed);
  }
}
struct MicroTable {
  Micro packed[kRows + 1], streamed[kStreamRows + 1];
  constexpr MicroTable() {
    for (int i = 0; i <= kRows; ++i) packed[i] = micro_of<kRows>(i, true);
    for (int i = 0; i <= kStreamRows; ++i) streamed[i] = micro_of<kRows>(i, false);
  }
};
constexpr MicroTable kMicro;

// `t` stands at the panel's first row.
TALLY_INLINE void micro_panel(const Panels& panels, int64_t panel, const float* a, const PanelB& b, const Tile& t) {
  const int64_t n = panels.first(panel + 1) - panels.first(panel);
  (b.packed != nullptr ? kMicro.packed[n] : kMicro.streamed[n])(panels.steps, a + panels.offset(panel), b, t);
}

// ---- C between its own layout and rows of f32

struct Result {
  char* data;
  DType dtype;
  int64_t row, column;  // strides

  TALLY_INLINE Result at(int64_t r, int64_t c) const {
    return {data + (r * row + c * column) * item_size(dtype), dtype, row, column};
  }
  TALLY_INLINE bool direct() const { return dtype == DType::kF32 && column == 1; }
};

template <class T>
void read_typed(float* to, int64_t pitch, const Result& c, int64_t rows, int64_t columns) {
  const T* from = reinterpret_cast<const T*>(c.data);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * pitch + j] = load_one(from + i * c.row + j * c.column);
}
template <class T>
void write_typed(const float* from, int64_t pitch, const Result& c, int64_t rows, int64_t columns) {
  T* to = reinterpret_cast<T*>(c.data);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) store_one(to + i * c.row + j * c.column, from[i * pitch + j]);
}
void read_result(float* to, int64_t pitch, const Result& c, int64_t rows, int64_t columns) {
  c.dtype == DType::kBF16 ? read_typed<bf16>(to, pitch, c, rows, columns)
                          : read_typed<float>(to, pitch, c, rows, columns);
}
void write_result(const float* from, int64_t pitch, const Result& c, int64_t rows, int64_t columns) {
  c.dtype == DType::kBF16 ? write_typed<bf16>(from, pitch, c, rows, columns)
                          : write_typed<float>(from, pitch, c, rows, columns);
}

// ---- one product (a batch element)

struct Product {
  Operand a, b;
  Result c;
  View bias;
  int64_t m, n, k;
  bool accumulate, has_bias;

  TALLY_INLINE void read_bias(float* to, int64_t first, int64_t columns) const {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = (first + j) * bias.stride[0];
      to[j] = bias.dtype == DType::kBF16 ? to_float(bias.ptr<const bf16>()[at]) : bias.ptr<const float>()[at];
    }
  }
};

// A panel of B over panels [first, last) of a packed block of A, straight into C or, where C's panel is not kColumns
// whole columns of f32, through a small buffer.
void run_panel(const Panels& panels, int64_t first, int64_t last, const float* a, const PanelB& b, const Result& c,
               bool add, const float* bias, const Prefetch& next) {
  const bool direct = c.direct() && b.columns == kColumns;
  alignas(64) float buffer[kRows * kColumns];
  for (int64_t i = first; i < last; ++i) {
    const int64_t row = panels.first(i), rows = panels.first(i + 1) - row;
    const Result part = c.at(row, 0);
    next.part(i - first, last - first);
    if (direct) {
      micro_panel(panels, i, a, b, {reinterpret_cast<float*>(part.data), c.row, add, bias});
      continue;
    }
    for (float& x : buffer) x = 0.0f;
    if (add) read_result(buffer, kColumns, part, rows, b.columns);
    micro_panel(panels, i, a, b, {buffer, kColumns, add, bias});
    write_result(buffer, kColumns, part, rows, b.columns);
  }
}

// Tall products: C is f32, so the running sums stand in C itself.
void multiply_tall(const Product& p, const MatmulPlan& plan, float* scratch) {
  const int64_t column_panels = parts(p.n, kColumns);
  for (int64_t row = 0; row < p.m; row += plan.block_rows) {
    const int64_t rows = least(plan.block_rows, p.m - row);
    const int64_t splits = column_panels >= 16 ? 1 : least(parts(16, column_panels), parts(rows, kTaskRows));
    for (int64_t block = 0; block < plan.k_blocks; ++block) {
      const int64_t k = block * kBlockK, steps = least(kBlockK, p.k - k);
      const Panels panels(rows, steps);
      const Operand a = p.a.at(row, k);
      parallel_for(panels.count, parts(48, kRows),
                   [&](int64_t begin, int64_t end) { panels.pack_a(scratch, a, begin, end); });
      parallel_for(column_panels * splits, 1, [&](int64_t begin, int64_t end) {
        alignas(64) float b[kBlockK * kColumns];
        alignas(64) float bias[kColumns] = {};
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i / splits * kColumns, part = i % splits;
          const int64_t columns = least(kColumns, p.n - column);
          const bool with_bias = p.has_bias && block + 1 == plan.k_blocks;
          if (with_bias) p.read_bias(bias, column, columns);
          const Operand source = p.b.at(column, k);
          pack_b(b, source, columns, steps);
          run_panel(panels, panels.count * part / splits, panels.count * (part + 1) / splits, scratch,
                    {b, source, columns}, p.c.at(row, column), p.accumulate || block > 0, with_bias ? bias : nullptr,
                    column + kColumns < p.n ? Prefetch(p.b.at(column + kColumns, k), steps) : Prefetch());
        }
      });
    }
  }
}

// One task of the others. The running sums of a C that is not f32 with unit stride stand in a buffer.
void multiply_task(const Product& p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  alignas(64) float a[kTaskFloats];
  alignas(64) float b[kBlockK * kColumns];
  alignas(64) float bias[kTaskColumns] = {};
  alignas(64) float sums[kTaskRows * kTaskColumns];
  const Result c = p.c.at(row, column);
  const Result to = c.direct() ? c : Result{reinterpret_cast<char*>(sums), DType::kF32, kTaskColumns, 1};
  if (!c.direct() && p.accumulate) read_result(sums, kTaskColumns, c, rows, columns);
  if (p.has_bias) p.read_bias(bias, column, columns);
  for (int64_t k = 0; k < p.k; k += kBlockK) {
    const int64_t steps = least(kBlockK, p.k - k);
    const Panels panels(rows, steps);
    panels.pack_a(a, p.a.at(row, k), 0, panels.count);
    for (int64_t j = 0; j < columns; j += kColumns) {
      const Operand source = p.b.at(column + j, k);
      const int64_t width = least(kColumns, columns - j);
      if (rows > kStreamRows) pack_b(b, source, width, steps);
      run_panel(panels, 0, panels.count, a, {rows > kStreamRows ? b : nullptr, source, width}, to.at(0, j),
                p.accumulate || k > 0, p.has_bias && k + steps == p.k ? bias + j : nullptr, Prefetch());
    }
  }
  if (!c.direct()) write_result(sums, kTaskColumns, c, rows, columns);
}

// ---- f64 and K = 0

void multiply_f64(const Product& p, int64_t row, int64_t rows) {
  constexpr int64_t kWidth = 64;
  for (int64_t i = row; i < row + rows; ++i)
    for (int64_t j = 0; j < p.n; j += kWidth) {
      const int64_t columns = least(kWidth, p.n - j);
      double total[kWidth] = {}, sum[kWidth];
      double* c = reinterpret_cast<double*>(p.c.at(i, j).data);
      if (p.accumulate)
        for (int64_t l = 0; l < columns; ++l) total[l] = c[l * p.c.column];
      for (int64_t k = 0; k < p.k; ++k) {
        if (k % kBlockK == 0)
          for (double& x : sum) x = 0.0;
        const double x = *reinterpret_cast<const double*>(p.a.at(i, k).data);
        const double* b = reinterpret_cast<const double*>(p.b.at(j, k).data);
        for (int64_t l = 0; l < columns; ++l) sum[l] += x * b[l * p.b.line];
        if (k % kBlockK == kBlockK - 1 || k + 1 == p.k)
          for (int64_t l = 0; l < columns; ++l) total[l] += sum[l];
      }
      for (int64_t l = 0; l < columns; ++l)
        c[l * p.c.column] = total[l] + (p.has_bias ? p.bias.ptr<const double>()[(j + l) * p.bias.stride[0]] : 0.0);
    }
}

// C = (C) (+ bias): what is left of a product with K = 0.
void finish_empty(const Product& p, int64_t row, int64_t rows) {
  for (int64_t i = row; i < row + rows; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      float x = 0.0f, bias = 0.0f;
      if (p.accumulate) read_result(&x, 1, p.c.at(i, j), 1, 1);
      if (p.has_bias) {
        p.read_bias(&bias, j, 1);
        x += bias;
      }
      write_result(&x, 1, p.c.at(i, j), 1, 1);
    }
}

Product product_of(const MatmulArgs& args, int64_t batch) {
  const auto base = [&](const View& v) { return v.ptr<char>() + batch * v.stride[0] * item_size(v.dtype); };
  const View &a = args.a, &b = args.b, &c = args.c;
  return {{base(a), a.dtype, a.stride[1], a.stride[2]},
          {base(b), b.dtype, b.stride[2], b.stride[1]},
          {base(c), c.dtype, c.stride[1], c.stride[2]},
          args.bias,
          c.size[1],
          c.size[2],
          a.size[2],
          args.accumulate,
          args.has_bias};
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const int64_t batch = args.c.size[0], m = args.c.size[1], n = args.c.size[2], k = args.a.size[2];
  if (batch == 0 || m == 0 || n == 0) return;
  if (args.c.dtype == DType::kF64 || k == 0) {
    const int64_t grain = parts(int64_t{1} << 16, n * (k + 1));
    parallel_for(batch * m, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Product p = product_of(args, i / m);
        args.c.dtype == DType::kF64 ? multiply_f64(p, i % m, 1) : finish_empty(p, i % m, 1);
      }
    });
    return;
  }
  const MatmulPlan plan(batch, m, n, k, args.c.dtype == DType::kF32);
  if (plan.row_blocks > 0 && args.c.stride[2] == 1) {
    for (int64_t i = 0; i < batch; ++i) multiply_tall(product_of(args, i), plan, args.scratch.ptr<float>());
    return;
  }
  // Tasks of like size; several small ones at a time.
  const int64_t row_parts = parts(m, kTaskRows), column_parts = parts(n, kTaskColumns);
  const int64_t per_batch = row_parts * column_parts;
  const int64_t task_work = parts(m, row_parts) * least(n, kTaskColumns) * k;
  parallel_for(batch * per_batch, parts(int64_t{1} << 15, task_work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row_part = i % per_batch / column_parts, column = i % column_parts * kTaskColumns;
      const int64_t row = m * row_part / row_parts;
      multiply_task(product_of(args, i / per_batch), row, m * (row_part + 1) / row_parts - row, column,
                    least(kTaskColumns, n - column));
    }
  });
}

}  // namespace tally::TALLY_ISA
