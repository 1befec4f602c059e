// Softmax and its logarithm on the CPU: the maximum, the sum of exp(x - maximum), then every exp times 1 / sum (x -
// maximum - log(sum)). exp waits in the output where that is f32; else it is computed again, so that nothing is rounded
// to bf16 in between. A row at a time where the axis is the innermost in memory; else columns side by side, whose sums
// are made of the same parts as a row's: no bit depends on the layout.
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"
#include "tally/ops/softmax_kernels.h"

namespace tally::TALLY_ISA {

namespace {

// log_of() a vector is the same on every processor, the C library's of a number is not.
TALLY_INLINE float log_of_sum(float sum) { return log_of(broadcast(sum))[0]; }

void softmax_row(const SoftmaxArgs& a, int64_t row) {
  const int64_t n = row_length(a.x);
  const Row rows[2] = {row_of(a.out, row), row_of(a.x, row)};
  const float most = largest_of_row(rows[1], n);
  const float shift = most == -__builtin_inff() ? 0.0f : most;  // -inf throughout: exp(-inf) = 0 everywhere
  const Vec by = broadcast(shift);
  if (a.log) {
    const Vec log_sum = broadcast(log_of_sum(exp_sum_of_row(rows[1], n, shift)));
    return over_row<1, 1>(rows, n, [&](const Vec* in, Vec* out, int, int64_t) { out[0] = (in[0] - by) - log_sum; });
  }
  if (a.out.dtype != DType::kF32) {
    const float sum = exp_sum_of_row(rows[1], n, shift);
    const Vec scale = broadcast(1.0f / (sum == 0.0f ? 1.0f : sum));
    return over_row<1, 1>(rows, n, [&](const Vec* in, Vec* out, int, int64_t) { out[0] = exp_of(in[0] - by) * scale; });
  }
  Vec part[kRowVecs] = {};
  over_row<1, 1>(rows, n, [&](const Vec* in, Vec* out, int j, int64_t valid) {
    out[0] = exp_of(in[0] - by);
    part[j] += first_lanes(out[0], valid, 0.0f);
  });
  const float sum = sum_partials(part);
  const Vec scale = broadcast(1.0f / (sum == 0.0f ? 1.0f : sum));
  const Row again[2] = {rows[0], rows[0]};
  over_row<1, 1>(again, n, [&](const Vec* in, Vec* out, int, int64_t) { out[0] = in[0] * scale; });
}

void softmax_row_f64(const SoftmaxArgs& a, int64_t row) {
  const int last = a.x.size.rank - 1;
  const int64_t n = row_length(a.x), step = a.x.stride.v[last];
  const double* x = a.x.ptr<double>() + row_offset(a.x, row);
  double* out = a.out.ptr<double>() + row_offset(a.out, row);
  double most = -__builtin_inf(), sum = 0;
  for (int64_t i = 0; i < n; ++i) most = x[i * step] > most ? x[i * step] : most;
  if (most == -__builtin_inf()) most = 0;
  for (int64_t i = 0; i < n; ++i) sum += exp_of(x[i * step] - most);
  const double log_sum = log_of(sum);
  for (int64_t i = 0; i < n; ++i)
    out[i * a.out.stride.v[last]] =
        a.log ? (x[i * step] - most) - log_sum : exp_of(x[i * step] - most) / (sum == 0 ? 1.0 : sum);
}

void gradient_row(const SoftmaxBackwardArgs& a, int64_t row) {
  const int64_t n = row_length(a.y);
  const Row rows[3] = {row_of(a.dx, row), row_of(a.grad, row), row_of(a.y, row)};
  const Row inputs[2] = {rows[1], rows[2]};
  Vec dot[kRowVecs] = {};
  if (a.log) {
    over_row<0, 2>(inputs, n, [&](const Vec* in, Vec*, int j, int64_t) { dot[j] += in[0]; });
    const Vec sum = broadcast(sum_partials(dot));
    return over_row<1, 2>(rows, n,
                          [&](const Vec* in, Vec* out, int, int64_t) { out[0] = in[0] - exp_of(in[1]) * sum; });
  }
  over_row<0, 2>(inputs, n, [&](const Vec* in, Vec*, int j, int64_t) { dot[j] = fmadd(in[0], in[1], dot[j]); });
  const Vec mean = broadcast(sum_partials(dot));
  over_row<1, 2>(rows, n, [&](const Vec* in, Vec* out, int, int64_t) { out[0] = in[1] * (in[0] - mean); });
}

void gradient_row_f64(const SoftmaxBackwardArgs& a, int64_t row) {
  const int last = a.y.size.rank - 1;
  const int64_t n = row_length(a.y), step = a.y.stride.v[last], grad_step = a.grad.stride.v[last];
  const double* y = a.y.ptr<double>() + row_offset(a.y, row);
  const double* g = a.grad.ptr<double>() + row_offset(a.grad, row);
  double* dx = a.dx.ptr<double>() + row_offset(a.dx, row);
  double dot = 0;
  for (int64_t i = 0; i < n; ++i) dot += a.log ? g[i * grad_step] : g[i * grad_step] * y[i * step];
  for (int64_t i = 0; i < n; ++i) {
    const double gi = g[i * grad_step], yi = y[i * step];
    dx[i * a.dx.stride.v[last]] = a.log ? gi - exp_of(yi) * dot : yi * (gi - dot);
  }
}

// ---- columns

constexpr int64_t kColumns = 64;

// The axes of views of one shape but the last one, as rows of neighbours: ordered by the first view's strides and
// merged where memory allows. The innermost, `n` long, is the last axis of `kept`, as row_offset() wants it.
template <int N>
struct Lanes {
  View kept[N];
  int64_t n, step[N];
};
template <int N>
Lanes<N> lanes_of(const View (&views)[N]) {
  const int last = views[0].size.rank - 1;
  int order[kMaxRank], count = 0, rank = 0;
  for (int axis = 0; axis < last; ++axis) {
    if (views[0].size.v[axis] == 1) continue;
    int to = count++;
    for (; to > 0 && views[0].stride.v[order[to - 1]] < views[0].stride.v[axis]; --to) order[to] = order[to - 1];
    order[to] = axis;
  }
  Lanes<N> l;
  for (int i = 0; i < count; ++i) {
    const int64_t size = views[0].size.v[order[i]];
    bool merges = rank > 0;
    for (int k = 0; k < N; ++k) merges = merges && l.kept[k].stride.v[rank - 1] == size * views[k].stride.v[order[i]];
    if (!merges) ++rank;
    for (int k = 0; k < N; ++k) {
      l.kept[k].size.v[rank - 1] = merges ? l.kept[k].size.v[rank - 1] * size : size;
      l.kept[k].stride.v[rank - 1] = views[k].stride.v[order[i]];
    }
  }
  for (int k = 0; k < N; ++k) {
    if (rank == 0) l.kept[k].size.v[0] = 1, l.kept[k].stride.v[0] = 0;
    l.kept[k].size.rank = l.kept[k].stride.rank = rank == 0 ? 1 : rank;
    l.step[k] = l.kept[k].stride.v[l.kept[k].size.rank - 1];
  }
  l.n = row_length(l.kept[0]);
  return l;
}

// Whether columns are worth their tiles. views[0] is the result.
template <int N>
bool by_columns(const View (&views)[N], const Lanes<N>& lanes) {
  constexpr int64_t kLeast = 8;
  const int last = views[0].size.rank - 1;
  return views[0].dtype != DType::kF64 && views[0].stride.v[last] != 1 && lanes.step[0] == 1 && lanes.n >= kLeast;
}

// f(first element of each view, columns) for tiles of at most kColumns columns.
template <int N, class F>
TALLY_INLINE void over_tiles(const View (&views)[N], const Lanes<N>& lanes, const F& f) {
  const int64_t chunks = (lanes.n + kColumns - 1) / kColumns;
  parallel_for(rows_of(lanes.kept[0]) * chunks, row_grain(row_length(views[0]) * kColumns),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t start = unit % chunks * kColumns;
                   int64_t at[N];
                   for (int k = 0; k < N; ++k) at[k] = row_offset(lanes.kept[k], unit / chunks) + start * lanes.step[k];
                   f(at, lanes.n - start < kColumns ? lanes.n - start : kColumns);
                 }
               });
}

using Parts = float[kRowParts][kColumns];

// The sums of n numbers a column, number i in part i mod kRowParts: parts that hold none are zeros, which are left out.
TALLY_INLINE void join_parts(Parts& part, int64_t n, int64_t m) {
  int64_t used = kRowParts;
  while (used > 1 && used / 2 >= n) used /= 2;
  for (int64_t p = n; p < used; ++p)
    for (int64_t i = 0; i < m; i += kLanes) store(part[p] + i, Vec{});
  const Vec zero{};
  for (int64_t width = used / 2; width > 0; width /= 2)
    for (int64_t p = 0; p < width; ++p)
      for (int64_t i = 0; i < m; i += kLanes) store(part[p] + i, load(part[p] + i) + load(part[p + width] + i));
  for (int64_t i = 0; i < m && used < kRowParts; i += kLanes) store(part[0] + i, load(part[0] + i) + zero);  // -0 to 0
}

// Neighbouring elements of a view from `at` on: at(r) is row r of a tile.
struct TileRows {
  const View& view;
  int64_t base, along, step, m;
  TALLY_INLINE const float* read(int64_t r, float* buffer) const {
    return block_in(view, base + r * along, step, m, buffer);
  }
  TALLY_INLINE float* place(int64_t r, float* buffer) const {
    return block_place(view, base + r * along, step, m, buffer);
  }
  TALLY_INLINE void write(int64_t r, const float* from, const float* buffer) const {
    block_out(view, base + r * along, step, m, from, buffer);
  }
};
template <int N>
TALLY_INLINE TileRows rows_of_tile(const View (&views)[N], const Lanes<N>& lanes, const int64_t* at, int k, int64_t m) {
  return {views[k], at[k], views[k].stride.v[views[k].size.rank - 1], lanes.step[k], m};
}

// n rows of a tile: exp(x - shift) into parts and, with `keep`, into `out`.
TALLY_INLINE void exp_parts(const TileRows& x, const TileRows& out, int64_t n, const float* shift, bool keep,
                            Parts& part) {
  alignas(64) float in[kColumns], buffer[kColumns];
  for (int64_t r = 0; r < n; ++r) {
    const float* p = x.read(r, in);
    float* to = keep ? out.place(r, buffer) : buffer;
    float* sum = part[r % kRowParts];
    for (int64_t i = 0; i < x.m; i += kLanes) {
      const Vec e = exp_of(load(p + i) - load(shift + i));
      store(sum + i, r < kRowParts ? e : load(sum + i) + e);
      store(to + i, e);
    }
    if (keep) out.write(r, to, buffer);
  }
}

void softmax_tile(const SoftmaxArgs& a, const TileRows& out, const TileRows& x, int64_t n) {
  alignas(64) float in[kColumns], buffer[kColumns], shift[kColumns], scale[kColumns];
  alignas(64) Parts part;
  const Vec least = broadcast(-__builtin_inff());
  for (int64_t i = 0; i < x.m; i += kLanes) store(shift + i, least);
  for (int64_t r = 0; r < n; ++r) {
    const float* p = x.read(r, in);
    for (int64_t i = 0; i < x.m; i += kLanes) store(shift + i, max2(load(p + i), load(shift + i)));
  }
  for (int64_t i = 0; i < x.m; i += kLanes) store(shift + i, load(shift + i) == least ? Vec{} : load(shift + i));
  const bool keep = a.out.dtype == DType::kF32 && !a.log;
  exp_parts(x, out, n, shift, keep, part);
  join_parts(part, n, x.m);
  for (int64_t i = 0; i < x.m; i += kLanes) {
    const Vec sum = load(part[0] + i);
    store(scale + i, a.log ? log_of(sum) : 1.0f / (sum == 0.0f ? Vec{} + 1.0f : sum));
  }
  for (int64_t r = 0; r < n; ++r) {
    const float* p = (keep ? out : x).read(r, in);
    float* to = out.place(r, buffer);
    for (int64_t i = 0; i < x.m; i += kLanes) {
      const Vec v = load(p + i), s = load(scale + i);
      if (keep) {
        store(to + i, v * s);
      } else if (a.log) {
        store(to + i, (v - load(shift + i)) - s);
      } else {
        store(to + i, exp_of(v - load(shift + i)) * s);
      }
    }
    out.write(r, to, buffer);
  }
}

void gradient_tile(bool log, const TileRows& dx, const TileRows& grad, const TileRows& y, int64_t n) {
  alignas(64) float in[2][kColumns], buffer[kColumns];
  alignas(64) Parts part;
  for (int64_t r = 0; r < n; ++r) {
    const float *g = grad.read(r, in[0]), *p = log ? g : y.read(r, in[1]);
    float* sum = part[r % kRowParts];
    for (int64_t i = 0; i < dx.m; i += kLanes) {
      const Vec so_far = r < kRowParts ? Vec{} : load(sum + i);
      store(sum + i, log ? so_far + load(g + i) : fmadd(load(g + i), load(p + i), so_far));
    }
  }
  join_parts(part, n, dx.m);
  for (int64_t r = 0; r < n; ++r) {
    const float *g = grad.read(r, in[0]), *p = y.read(r, in[1]);
    float* to = dx.place(r, buffer);
    for (int64_t i = 0; i < dx.m; i += kLanes) {
      const Vec gi = load(g + i), yi = load(p + i), sum = load(part[0] + i);
      store(to + i, log ? gi - exp_of(yi) * sum : yi * (gi - sum));
    }
    dx.write(r, to, buffer);
  }
}

}  // namespace

void softmax(const SoftmaxArgs& a) {
  if (a.x.numel() == 0) return;
  const View views[2] = {a.out, a.x};
  const Lanes<2> lanes = lanes_of(views);
  if (by_columns(views, lanes)) {
    return over_tiles(views, lanes, [&](const int64_t* at, int64_t m) {
      softmax_tile(a, rows_of_tile(views, lanes, at, 0, m), rows_of_tile(views, lanes, at, 1, m), row_length(a.x));
    });
  }
  parallel_for(rows_of(a.x), row_grain(row_length(a.x)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (a.x.dtype == DType::kF64) {
        softmax_row_f64(a, row);
      } else {
        softmax_row(a, row);
      }
    }
  });
}

void softmax_backward(const SoftmaxBackwardArgs& a) {
  if (a.y.numel() == 0) return;
  const View views[3] = {a.dx, a.grad, a.y};
  const Lanes<3> lanes = lanes_of(views);
  if (by_columns(views, lanes)) {
    return over_tiles(views, lanes, [&](const int64_t* at, int64_t m) {
      gradient_tile(a.log, rows_of_tile(views, lanes, at, 0, m), rows_of_tile(views, lanes, at, 1, m),
                    rows_of_tile(views, lanes, at, 2, m), row_length(a.y));
    });
  }
  parallel_for(rows_of(a.y), row_grain(row_length(a.y)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (a.y.dtype == DType::kF64) {
        gradient_row_f64(a, row);
      } else {
        gradient_row(a, row);
      }
    }
  });
}

}  // namespace tally::TALLY_ISA
