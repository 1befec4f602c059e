// Reductions on the CPU. Element number r of an output's reduced elements, in logical order, goes to part r mod 16;
// the parts are joined in one fixed tree. Where the last axis is reduced a vector holds elements of one output, else
// neighbouring outputs.
#include "tally/ops/reduce_kernels.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

constexpr int kParts = 16;
constexpr int64_t kColumns = 128;  // outputs that are summed side by side

// Axes of x of one kind (reduced or kept) without those of size 1, neighbours merged where memory allows: rows of
// `n` elements `step` apart; `outer` lists the other axes before a dummy last one, as row_offset() wants it.
struct Space {
  View outer;
  int64_t rows, n, step;
};

Space space_of(const View& x, const View& out, bool reduced) {
  View v;
  int rank = 0;
  for (int axis = 0; axis < x.size.rank; ++axis) {
    const int64_t size = x.size.v[axis], stride = x.stride.v[axis];
    if (size == 1 || (size != out.size.v[axis]) != reduced) continue;
    if (rank > 0 && v.stride.v[rank - 1] == size * stride) {
      v.size.v[rank - 1] *= size, v.stride.v[rank - 1] = stride;
    } else {
      v.size.v[rank] = size, v.stride.v[rank++] = stride;
    }
  }
  if (rank == 0) v.size.v[rank] = 1, v.stride.v[rank++] = 1;
  v.size.rank = v.stride.rank = rank;
  return {v, rows_of(v), row_length(v), v.stride.v[rank - 1]};
}

TALLY_INLINE Vec larger(Vec x, Vec most) { return ((x > most) | (x != x)) ? x : most; }
TALLY_INLINE float larger(float x, float most) { return x > most || x != x ? x : most; }
TALLY_INLINE double larger(double x, double most) { return x > most || x != x ? x : most; }

// m reduced elements from number `start` on as f32, padded with `neutral` to whole vectors.
const float* block_of(const View& x, int64_t base, const Space& s, int64_t start, int64_t m, float neutral,
                      float* buffer) {
  const int64_t row = start / s.n, i = start % s.n;
  if (i + m <= s.n) {
    const float* p = block_in(x, base + row_offset(s.outer, row) + i * s.step, s.step, m, buffer);
    for (int64_t j = m; j % kLanes != 0; ++j) buffer[j] = neutral;
    return p;
  }
  for (int64_t done = 0; done < m;) {
    const int64_t r = (start + done) / s.n, from = (start + done) % s.n;
    const int64_t k = s.n - from < m - done ? s.n - from : m - done;
    const int64_t at = base + row_offset(s.outer, r) + from * s.step;
    for (int64_t j = 0; j < k; ++j) buffer[done + j] = float_at(x, at + j * s.step);
    done += k;
  }
  for (int64_t j = m; j % kLanes != 0; ++j) buffer[j] = neutral;
  return buffer;
}

// All reduced elements of one output.
template <class Join, class Number>
TALLY_INLINE float reduce_one(const View& x, int64_t base, const Space& s, float neutral, const Join& join,
                              const Number& join_numbers) {
  alignas(64) float buffer[kBlock];
  Vec part[kPartials];
  for (Vec& p : part) p = broadcast(neutral);
  const int64_t total = s.rows * s.n;
  for (int64_t start = 0; start < total; start += kBlock) {
    const int64_t m = total - start < kBlock ? total - start : kBlock;
    const float* p = block_of(x, base, s, start, m, neutral, buffer);
    int64_t i = 0;
    for (; i + kParts <= m; i += kParts)
      for (int j = 0; j < kPartials; ++j) part[j] = join(load(p + i + j * kLanes), part[j]);
    for (int j = 0; j < kPartials; ++j)
      if (i + j * kLanes < m) part[j] = join(load(p + i + j * kLanes), part[j]);
  }
  return join_partials(part, join_numbers);
}

// Up to kColumns neighbouring outputs: column c of every reduced element, parts side by side.
template <class Join>
TALLY_INLINE void reduce_columns(const View& x, int64_t base, const Space& s, int64_t step, int64_t m, float neutral,
                                 float* result, const Join& join) {
  alignas(64) float part[kParts][kColumns];
  alignas(64) float buffer[kColumns];
  const int64_t padded = (m + kLanes - 1) / kLanes * kLanes, total = s.rows * s.n;
  for (int p = 0; p < kParts; ++p)
    for (int64_t i = 0; i < padded; ++i) part[p][i] = neutral;
  int64_t number = 0;
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t from = base + row_offset(s.outer, row);
    for (int64_t r = 0; r < s.n; ++r, ++number) {
      const float* p = block_in(x, from + r * s.step, step, m, buffer);
      float* into = part[number % kParts];
      for (int64_t i = 0; i < m; i += kLanes) store(into + i, join(load(p + i), load(into + i)));
    }
  }
  int used = kParts;  // parts that got an element; joining untouched ones changes nothing
  while (used > 1 && used / 2 >= total) used /= 2;
  for (int width = used / 2; width > 0; width /= 2)
    for (int p = 0; p < width; ++p)
      for (int64_t i = 0; i < m; i += kLanes) store(part[p] + i, join(load(part[p + width] + i), load(part[p] + i)));
  for (int64_t i = 0; i < m; i += kLanes) store(result + i, load(part[0] + i));
}

// Columns [start, start + m) of row `row` of the kept axes.
void columns(const ReduceArgs& a, const Space& reduced, const Space& kept, const Space& out, int64_t row, int64_t start,
             int64_t m) {
  alignas(64) float result[kColumns];
  const int64_t base = row_offset(kept.outer, row) + start * kept.step;
  if (a.op == ReduceOp::kSum) {
    reduce_columns(a.x, base, reduced, kept.step, m, 0.0f, result, [](Vec x, Vec sum) { return sum + x; });
    const float scale = static_cast<float>(a.scale);
    for (int64_t i = 0; i < m; ++i) result[i] *= scale;
  } else {
    reduce_columns(a.x, base, reduced, kept.step, m, -__builtin_inff(), result,
                   [](Vec x, Vec most) { return larger(x, most); });
  }
  const int64_t first = row * kept.n + start;
  for (int64_t i = 0; i < m;) {  // out's own rows may be cut otherwise than x's
    const int64_t at = (first + i) % out.n, k = out.n - at < m - i ? out.n - at : m - i;
    block_out(a.out, row_offset(out.outer, (first + i) / out.n) + at * out.step, out.step, k, result + i, result + i);
    i += k;
  }
}

float reduced_value(const ReduceArgs& a, const Space& reduced, int64_t base) {
  if (a.op == ReduceOp::kMax)
    return reduce_one(
        a.x, base, reduced, -__builtin_inff(), [](Vec x, Vec most) { return larger(x, most); },
        [](float x, float y) { return larger(y, x); });
  const float sum = reduce_one(
      a.x, base, reduced, 0.0f, [](Vec x, Vec total) { return total + x; }, [](float x, float y) { return x + y; });
  return sum * static_cast<float>(a.scale);
}

double reduced_value_f64(const ReduceArgs& a, const Space& reduced, int64_t base) {
  double sum = 0, most = -__builtin_inf();
  for (int64_t row = 0; row < reduced.rows; ++row) {
    const double* x = a.x.ptr<double>() + base + row_offset(reduced.outer, row);
    for (int64_t i = 0; i < reduced.n; ++i) {
      if (a.op == ReduceOp::kSum) {
        sum += x[i * reduced.step];
      } else {
        most = larger(x[i * reduced.step], most);
      }
    }
  }
  return a.op == ReduceOp::kSum ? sum * a.scale : most;
}

TALLY_INLINE int64_t offset_in(const Space& s, int64_t k) { return row_offset(s.outer, k / s.n) + k % s.n * s.step; }

bool last_axis_kept(const View& x, const View& out) {
  for (int axis = x.size.rank - 1; axis >= 0; --axis)
    if (x.size.v[axis] != 1) return x.size.v[axis] == out.size.v[axis];
  return false;
}

// ---- the gradient of max

template <class T>
void spread(const MaxBackwardArgs& a, int64_t k, const Space& kept, const Space& kept_dx, const Space& reduced,
            const Space& reduced_dx, int64_t max_at, int64_t grad_at) {
  const T* x = a.x.ptr<T>() + offset_in(kept, k);
  T* dx = a.dx.ptr<T>() + offset_in(kept_dx, k);
  const auto most = load_one(a.max.ptr<T>() + max_at);
  Compute<T> count = 0;
  const int64_t total = reduced.rows * reduced.n;
  for (int64_t r = 0; r < total; ++r) count += load_one(x + offset_in(reduced, r)) == most;
  const Compute<T> share = load_one(a.grad.ptr<T>() + grad_at) / (count > 0 ? count : 1);
  for (int64_t r = 0; r < total; ++r)
    store_one(dx + offset_in(reduced_dx, r), load_one(x + offset_in(reduced, r)) == most ? share : Compute<T>(0));
}

}  // namespace

void reduce(const ReduceArgs& a) {
  if (a.out.numel() == 0) return;
  const Space reduced = space_of(a.x, a.out, true), kept = space_of(a.x, a.out, false);
  const Space out = space_of(a.out, a.out, false);
  const int64_t total = reduced.rows * reduced.n;
  if (a.x.dtype != DType::kF64 && last_axis_kept(a.x, a.out)) {
    const int64_t chunks = (kept.n + kColumns - 1) / kColumns;
    parallel_for(kept.rows * chunks, row_grain(kColumns * total), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t start = unit % chunks * kColumns;
        columns(a, reduced, kept, out, unit / chunks, start, kept.n - start < kColumns ? kept.n - start : kColumns);
      }
    });
    return;
  }
  parallel_for(kept.rows * kept.n, row_grain(total), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t base = offset_in(kept, k), at = offset_in(out, k);
      if (a.x.dtype == DType::kF64) {
        a.out.ptr<double>()[at] = reduced_value_f64(a, reduced, base);
      } else {
        const float value = reduced_value(a, reduced, base);
        block_out(a.out, at, 1, 1, &value, &value);
      }
    }
  });
}

void max_backward(const MaxBackwardArgs& a) {
  if (a.dx.numel() == 0) return;
  const Space reduced = space_of(a.x, a.max, true), kept = space_of(a.x, a.max, false);
  const Space reduced_dx = space_of(a.dx, a.max, true), kept_dx = space_of(a.dx, a.max, false);
  const Space max = space_of(a.max, a.max, false), grad = space_of(a.grad, a.max, false);
  with_any_float(a.x.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(kept.rows * kept.n, row_grain(reduced.rows * reduced.n), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        spread<T>(a, k, kept, kept_dx, reduced, reduced_dx, offset_in(max, k), offset_in(grad, k));
    });
  });
}

}  // namespace tally::TALLY_ISA
