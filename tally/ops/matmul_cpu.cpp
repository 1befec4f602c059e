// The packed CPU matrix product (matmul_kernels.h states its numerics).
// As in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008: rows of A and
// columns of B are packed into micro-panels ([k][rows], [k][columns], f32) and a micro-kernel (matmul_micro.h) keeps a
// tile of C in registers over a block of K. Threads and tiles cut M and N, never K, so no element's sum depends on
// them. Tall products hold a panel of A in the first cache and stream B, packed once for all threads, from the second:
// the other way round the larger panel of B would be pushed out by the stream of A. An operand that already lies as the
// micro-kernel can read it is not packed.
#include "tally/ops/matmul_kernels.h"

#include "tally/base/parallel.h"
#include "tally/ops/matmul_micro.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int64_t kTaskRows = MatmulPlan::kTaskRows;
constexpr int64_t kTaskColumns = 128;

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
  if (c.dtype == DType::kF16) return read_typed<f16>(to, pitch, c, rows, columns);
  c.dtype == DType::kBF16 ? read_typed<bf16>(to, pitch, c, rows, columns)
                          : read_typed<float>(to, pitch, c, rows, columns);
}
void write_result(const float* from, int64_t pitch, const Result& c, int64_t rows, int64_t columns) {
  if (c.dtype == DType::kF16) return write_typed<f16>(from, pitch, c, rows, columns);
  c.dtype == DType::kBF16 ? write_typed<bf16>(from, pitch, c, rows, columns)
                          : write_typed<float>(from, pitch, c, rows, columns);
}

// ---- one product (a batch element)

struct Product {
  Operand a, b;
  Result c;
  View bias;
  int64_t m, n, k;
  bool accumulate, has_bias, b_packed;

  TALLY_INLINE void read_bias(float* to, int64_t first, int64_t columns) const {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = (first + j) * bias.stride[0];
      if (bias.dtype == DType::kF16) {
        to[j] = to_float(bias.ptr<const f16>()[at]);
        continue;
      }
      to[j] = bias.dtype == DType::kBF16 ? to_float(bias.ptr<const bf16>()[at]) : bias.ptr<const float>()[at];
    }
  }
  // For whole panels, with zeros behind the last column; nothing where there is no bias.
  void bias_panels(float* to, int64_t first, int64_t columns) const {
    if (!has_bias) return;
    read_bias(to, first, columns);
    for (int64_t j = columns; j % kColumns != 0; ++j) to[j] = 0;
  }
  template <class T>
  TALLY_INLINE PackedWeight<T> weight(int64_t step) const {
    return {reinterpret_cast<const T*>(b.data), step, k};
  }
  // Rows of A over a block of K: as they lie where they are contiguous along K, else packed into `buffer`.
  PanelA panel_a(int64_t row, int64_t rows, int64_t step, int64_t steps, float* buffer) const {
    const Operand from = a.at(row, step);
    if (a.step == 1 && a.dtype == DType::kF32) return {reinterpret_cast<const float*>(from.data), a.line, true};
    pack<0>(buffer, rows, from, rows, steps);
    return {buffer, rows, false};
  }
  // Columns of B that need no packing: those next to each other, where all of B fits into a core's second cache beside
  // the rest (a larger one would be read over and over from far places), and whole panels of a packed f32 weight.
  int64_t columns_ready() const {
    if (b.dtype != DType::kF32) return 0;
    if (b_packed) return n;
    return b.line == 1 && n * k <= MatmulPlan::kScratchFloats ? n / kColumns * kColumns : 0;
  }
  PanelB ready_panel(int64_t column, int64_t step) const {
    if (b_packed) return {weight<float>(step).at(column), MatmulArgs::kPanel};
    return {reinterpret_cast<const float*>(b.at(column, step).data), b.step};
  }
  // kColumns columns of B over a block of K: packed into `buffer` unless they come so.
  PanelB panel(int64_t column, int64_t columns, int64_t step, int64_t steps, float* buffer) const {
    if (column < columns_ready()) return ready_panel(column, step);
    if (b_packed) {
      const bf16* from = weight<bf16>(step).at(column);
      for (int64_t i = 0; i < steps; ++i)
        for (int j = 0; j < kColumns; j += kLanes)
          store(buffer + i * kColumns + j, load(from + i * MatmulArgs::kPanel + j));
    } else {
      pack_b(buffer, b.at(column, step), columns, steps);
    }
    return {buffer, kColumns};
  }
};

// One tile of `rows` rows and kColumns columns, `columns` of them valid: straight into C or, where C's tile is not
// kColumns whole columns of f32, through a small buffer.
template <class Run>
TALLY_INLINE void run_tile(const Result& c, int64_t rows, int64_t columns, bool add, const float* bias,
                           const Run& run) {
  if (c.direct() && columns == kColumns) return run(Tile{reinterpret_cast<float*>(c.data), c.row, add, bias});
  alignas(64) float buffer[kRows * kColumns] = {};
  if (add) read_result(buffer, kColumns, c, rows, columns);
  run(Tile{buffer, kColumns, add, bias});
  write_result(buffer, kColumns, c, rows, columns);
}

// ---- tall products: C is f32, so the running sums stand in C itself

// What is packed at a time: a block of columns over some blocks of K.
struct Group {
  int64_t column, columns, block, blocks;
};

void pack_group(const Product& p, const MatmulPlan& plan, const Group& g, float* scratch) {
  const int64_t all_ready = p.columns_ready();
  const int64_t ready = all_ready > g.column ? least(all_ready - g.column, g.columns) : 0;
  const int64_t panels = parts(g.columns - ready, kColumns);
  parallel_for(g.blocks * panels, 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / panels, column = ready + i % panels * kColumns;
      const int64_t k = (g.block + block) * kBlockK, steps = least(kBlockK, p.k - k);
      p.panel(g.column + column, least(kColumns, g.columns - column), k, steps,
              scratch + block * plan.block_floats + column * steps);
    }
  });
}

// `rows` rows from `row` on (a panel of A) times the columns [first, last) of the group.
void multiply_panel(const Product& p, const MatmulPlan& plan, const Group& g, const float* scratch, int64_t row,
                    int64_t rows, int64_t first, int64_t last) {
  alignas(64) float packed[kRows * kBlockK + kPadding];
  alignas(64) float bias[MatmulPlan::kBlock + kColumns];
  p.bias_panels(bias, g.column + first, last - first);
  const int64_t ready = p.columns_ready() - g.column;
  for (int64_t i = 0; i < g.blocks; ++i) {
    const int64_t block = g.block + i, k = block * kBlockK, steps = least(kBlockK, p.k - k);
    const bool with_bias = p.has_bias && block + 1 == plan.k_blocks;
    const PanelA a = p.panel_a(row, rows, k, steps, packed);
    for (int64_t column = first; column < last; column += kColumns) {
      const PanelB b = column < ready ? p.ready_panel(g.column + column, k)
                                      : PanelB{scratch + i * plan.block_floats + column * steps, kColumns};
      run_tile(p.c.at(row, g.column + column), rows, least(kColumns, last - column), p.accumulate || block > 0,
               with_bias ? bias + column - first : nullptr, [&](const Tile& t) { run_micro(rows, steps, a, b, t); });
    }
  }
}

void multiply_tall(const Product& p, const MatmulPlan& plan, float* scratch) {
  const int64_t row_panels = parts(p.m, kRows);
  for (int64_t column = 0; column < p.n; column += plan.block)
    for (int64_t block = 0; block < plan.k_blocks; block += plan.group) {
      const Group g{column, least(plan.block, p.n - column), block, least(plan.group, plan.k_blocks - block)};
      pack_group(p, plan, g, scratch);
      // Enough tasks for the threads, but A is packed once a task.
      const int64_t panels = parts(g.columns, kColumns), splits = least(parts(32, row_panels), parts(panels, 4));
      parallel_for(row_panels * splits, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = p.m * (i / splits) / row_panels, next = p.m * (i / splits + 1) / row_panels;
          const int64_t first = panels * (i % splits) / splits, last = panels * (i % splits + 1) / splits;
          multiply_panel(p, plan, g, scratch, row, next - row, first * kColumns, least(last * kColumns, g.columns));
        }
      });
    }
}

// ---- tall and wide products: as above, with A packed once for all threads and B by every task

struct RowGroup {
  int64_t row, rows, block, blocks;
};

void pack_rows(const Product& p, const MatmulPlan& plan, const RowGroup& g, float* scratch) {
  const int64_t count = parts(g.rows, kRows), chunk = parts(48, kRows), chunks = parts(count, chunk);
  parallel_for(g.blocks * chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / chunks, k = (g.block + block) * kBlockK;
      Panels(g.rows, least(kBlockK, p.k - k))
          .pack_a(scratch + block * plan.block_floats, p.a.at(g.row, k), i % chunks * chunk,
                  least(count, (i % chunks + 1) * chunk));
    }
  });
}

// The panels of A [first, last) of the group times `columns` columns from `column` on.
void multiply_columns(const Product& p, const MatmulPlan& plan, const RowGroup& g, const float* scratch, int64_t column,
                      int64_t columns, int64_t first, int64_t last) {
  alignas(64) float packed[kBlockK * kTaskColumns];
  alignas(64) float bias[kTaskColumns + kColumns];
  p.bias_panels(bias, column, columns);
  for (int64_t i = 0; i < g.blocks; ++i) {
    const int64_t block = g.block + i, k = block * kBlockK, steps = least(kBlockK, p.k - k);
    const bool with_bias = p.has_bias && block + 1 == plan.k_blocks;
    PanelB b[kTaskColumns / kColumns];
    for (int64_t j = 0; j < columns; j += kColumns)
      b[j / kColumns] = p.panel(column + j, least(kColumns, columns - j), k, steps, packed + j * steps);
    const Panels panels(g.rows, steps);
    for (int64_t row = first; row < last; ++row)
      for (int64_t j = 0; j < columns; j += kColumns)
        run_tile(p.c.at(g.row + panels.first(row), column + j), panels.size(row), least(kColumns, columns - j),
                 p.accumulate || block > 0, with_bias ? bias + j : nullptr, [&](const Tile& t) {
                   const int64_t rows = panels.size(row);
                   run_micro(rows, steps, {scratch + i * plan.block_floats + panels.offset(row), rows, false},
                             b[j / kColumns], t);
                 });
  }
}

void multiply_wide(const Product& p, const MatmulPlan& plan, float* scratch) {
  const int64_t column_blocks = parts(p.n, kTaskColumns);
  for (int64_t row = 0; row < p.m; row += plan.block)
    for (int64_t block = 0; block < plan.k_blocks; block += plan.group) {
      const RowGroup g{row, least(plan.block, p.m - row), block, least(plan.group, plan.k_blocks - block)};
      pack_rows(p, plan, g, scratch);
      // B is packed once a task: as few tasks as keep the threads busy. No result depends on their number.
      const int64_t panels = parts(g.rows, kRows), wanted = 2 * num_threads();
      const int64_t splits = column_blocks >= wanted ? 1 : least(parts(wanted, column_blocks), parts(panels, 4));
      parallel_for(column_blocks * splits, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i / splits * kTaskColumns, part = i % splits;
          multiply_columns(p, plan, g, scratch, column, least(kTaskColumns, p.n - column), panels * part / splits,
                           panels * (part + 1) / splits);
        }
      });
    }
}

// ---- the others, by tasks of a few rows and columns

// Few rows, B as it lies or a packed weight.
template <class T>
int64_t wide_tile(const Product& p, int64_t k, int64_t steps, const float* a, int64_t rows, int64_t column,
                  int64_t columns, const Result& c, bool add, const float* bias) {
  const int panels = kWidePanels[rows];
  const PackedWeight<T> weight = p.weight<T>(k);
  if (columns >= panels * kColumns) {
    kWideTable<T>[rows][1](steps, a, weight, column, Tile{reinterpret_cast<float*>(c.data), c.row, add, bias});
    return panels * kColumns;
  }
  const int64_t width = least(kColumns, columns);
  run_tile(c, rows, width, add, bias, [&](const Tile& t) { kWideTable<T>[rows][0](steps, a, weight, column, t); });
  return width;
}

// One task. `low`: A packed for all blocks of K, each low_floats long, or null. The running sums of a C that is not f32
// with unit stride stand in a buffer.
void multiply_task(const Product& p, int64_t row, int64_t rows, int64_t column, int64_t columns, const float* low,
                   int64_t low_floats) {
  alignas(64) float packed_a[kTaskRows * (kBlockK + kPadding)];
  alignas(64) float packed_b[kBlockK * kColumns];
  alignas(64) float bias[kTaskColumns + kColumns];
  alignas(64) float sums[kTaskRows * kTaskColumns];
  const Result c = p.c.at(row, column);
  const Result to = c.direct() ? c : Result{reinterpret_cast<char*>(sums), DType::kF32, kTaskColumns, 1};
  if (!c.direct() && p.accumulate) read_result(sums, kTaskColumns, c, rows, columns);
  p.bias_panels(bias, column, columns);
  for (int64_t k = 0; k < p.k; k += kBlockK) {
    const int64_t steps = least(kBlockK, p.k - k);
    const Panels panels(rows, steps);
    const float* a = low != nullptr ? low + k / kBlockK * low_floats : packed_a;
    if (low == nullptr) panels.pack_a(packed_a, p.a.at(row, k), 0, panels.count);
    const bool add = p.accumulate || k > 0;
    for (int64_t j = 0; j < columns;) {
      const int64_t width = least(kColumns, columns - j);
      const float* tile_bias = p.has_bias && k + steps == p.k ? bias + j : nullptr;
      if (p.b_packed && rows <= kStreamRows) {
        j += (p.b.dtype == DType::kF32 ? wide_tile<float> : wide_tile<bf16>)(p, k, steps, a, rows, column + j,
                                                                             columns - j, to.at(0, j), add, tile_bias);
        continue;
      }
      if (rows <= kStreamRows && p.b.dtype == DType::kF32 && p.b.line == 1 && width == kColumns) {
        const int panels = columns - j >= kWidePanels[rows] * kColumns ? kWidePanels[rows] : 1;
        const Result at = to.at(0, j);
        kRowsTable[rows][panels > 1](steps, a, reinterpret_cast<const float*>(p.b.at(column + j, k).data), p.b.step,
                                     Tile{reinterpret_cast<float*>(at.data), at.row, add, tile_bias});
        j += panels * kColumns;
        continue;
      }
      if (rows <= kStreamRows) {
        run_tile(to.at(0, j), rows, width, add, tile_bias,
                 [&](const Tile& t) { kStream[rows](steps, a, p.b.at(column + j, k), width, t); });
      } else {
        const PanelB b = p.panel(column + j, width, k, steps, packed_b);
        for (int64_t i = 0; i < panels.count; ++i)
          run_tile(to.at(panels.first(i), j), panels.size(i), width, add, tile_bias, [&](const Tile& t) {
            run_micro(panels.size(i), steps, {a + panels.offset(i), panels.size(i), false}, b, t);
          });
      }
      j += width;
    }
  }
  if (!c.direct()) write_result(sums, kTaskColumns, c, rows, columns);
}

void pack_low_block(const Product& p, int64_t block, float* to) {
  const Panels panels(p.m, least(kBlockK, p.k - block * kBlockK));
  panels.pack_a(to, p.a.at(0, block * kBlockK), 0, panels.count);
}
// A of a low product, all blocks of K.
void pack_low(const Product& p, const MatmulPlan& plan, float* scratch) {
  parallel_for(plan.k_blocks, parts(8192, p.m * kBlockK), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_low_block(p, i, scratch + i * plan.block_floats);
  });
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
          {args.b_packed ? b.ptr<char>() : base(b), b.dtype, b.stride[2], b.stride[1]},
          {base(c), c.dtype, c.stride[1], c.stride[2]},
          args.bias,
          c.size[1],
          c.size[2],
          a.size[2],
          args.accumulate,
          args.has_bias,
          args.b_packed};
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
  float* const scratch = args.scratch.ptr<float>();
  if (plan.tall && args.c.stride[2] == 1) {
    for (int64_t i = 0; i < batch; ++i) (plan.wide ? multiply_wide : multiply_tall)(product_of(args, i), plan, scratch);
    return;
  }
  if (plan.low) pack_low(product_of(args, 0), plan, scratch);
  // Tasks of like size; several small ones at a time.
  const int64_t row_parts = parts(m, kTaskRows), column_parts = parts(n, kTaskColumns);
  const int64_t per_batch = row_parts * column_parts;
  const int64_t task_work = parts(m, row_parts) * least(n, kTaskColumns) * k;
  parallel_for(batch * per_batch, parts(int64_t{1} << 15, task_work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row_part = i % per_batch / column_parts, column = i % column_parts * kTaskColumns;
      const int64_t row = m * row_part / row_parts;
      multiply_task(product_of(args, i / per_batch), row, m * (row_part + 1) / row_parts - row, column,
                    least(kTaskColumns, n - column), plan.low ? scratch : nullptr, plan.block_floats);
    }
  });
}

}  // namespace tally::TALLY_ISA
