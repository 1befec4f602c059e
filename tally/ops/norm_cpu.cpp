// LayerNorm and RMSNorm on the CPU, row by row: one reading for their sums, LayerNorm's second for the
// variance while they are in the cache, and one to write. The variance is the mean of squares around the mean. Squares
// are f32 also for bf16 and f16.
#include "tally/ops/norm_kernels.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

const float kOne = 1.0f, kZero = 0.0f;

// A view of n equal numbers for a weight or bias that is not there.
View constant_view(const float& value, int64_t n) {
  View v;
  v.data = const_cast<float*>(&value);  // never written
  v.size = Dims(n), v.stride = Dims(0);
  return v;
}
View view_or(const View& v, const float& value, int64_t n) { return norm_has(v) ? v : constant_view(value, n); }

// The tensor that is normed.
template <class A>
const View& normed_of(const A& a) {
  return norm_has(a.residual) ? a.sum : a.x;
}

// x as it is after a store to memory.
TALLY_INLINE Vec rounded(Vec x, DType t) {
  if (t == DType::kBF16) return widen(narrow(x));
  if (t != DType::kF16) return x;
  f16 stored[kLanes];
  store(stored, x);
  return load(stored);
}

double f64_at(const View& v, int64_t i) { return v.ptr<double>()[i * v.stride.v[0]]; }
double weight_at(const View& v, int64_t i) { return norm_has(v) ? f64_at(v, i) : 1.0; }

using Partials = Vec[kRowVecs];

// sum = x + residual of a row.
template <class A>
void add_row(const A& a, int64_t row) {
  const Row rows[3] = {row_of(a.sum, row), row_of(a.x, row), row_of(a.residual, row)};
  over_row<1, 2>(rows, row_length(a.x), [](const Vec* in, Vec* out, int, int64_t) { out[0] = in[0] + in[1]; });
}

// A row of either norm N: N::Numbers::read() makes its numbers, apply() its results. One at a time: with two, rows a
// page apart and those asked for ahead would fill every way of the first cache.
template <class N>
void norm_row(const N& norm, int64_t row) {
  constexpr int kParameters = N::kParameters;
  if (norm_has(norm.a.residual)) add_row(norm.a, row);
  const Row x = row_of(normed_of(norm.a), row);
  fetch_row(norm.a.out, row);
  typename N::Numbers numbers;
  numbers.read(norm.a, row, x);
  if (row + 1 < rows_of(norm.a.x)) fetch_row(norm.a.x, row + 1);
  Row rows[2 + kParameters] = {row_of(norm.a.out, row), x};
  for (int i = 0; i < kParameters; ++i) rows[2 + i] = row_of(norm.parameters[i], 0);
  over_row<1, 1 + kParameters>(rows, row_length(norm.a.x),
                               [&](const Vec* in, Vec* out, int, int64_t) { out[0] = numbers.apply(in[0], in + 1); });
}

// Rows [begin, end).
template <class N>
void norm_rows(const N& norm, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) norm_row(norm, row);
}

// ---- LayerNorm

using HalfVec = float __attribute__((vector_size(2 * kLanes)));
using HalfVecD = double __attribute__((vector_size(4 * kLanes)));

// The partial sums of a row in f64.
struct WideSum {
  HalfVecD part[2 * kRowVecs] = {};
  TALLY_INLINE void add(Vec x, int j) {
    HalfVec half[2];
    __builtin_memcpy(half, &x, sizeof half);
    part[2 * j] += __builtin_convertvector(half[0], HalfVecD);
    part[2 * j + 1] += __builtin_convertvector(half[1], HalfVecD);
  }
  TALLY_INLINE double total() const {
    double s[kRowParts];
    __builtin_memcpy(s, part, sizeof s);
    for (int width = kRowParts / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) s[i] += s[i + width];
    return s[0];
  }
};

// The sum of a row of n numbers: four that are kRowParts apart are added in f32, then in f64, which spares most of the
// conversions. Four equal numbers add up without an error, so a constant row's mean is its number to the bit.
TALLY_INLINE double sum_row(const Row& x, int64_t n) {
  constexpr int64_t kFour = 4 * kRowParts;
  alignas(64) float buffer[kBlock];
  WideSum sum;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t m = n - start < kBlock ? n - start : kBlock;
    const float* p = block_in(*x.view, x.at + start * x.step, x.step, m, buffer);
    int64_t i = 0;
    for (; i + kFour <= m; i += kFour)
#pragma GCC unroll 8
      for (int j = 0; j < kRowVecs; ++j) {
        const float* q = p + i + j * kLanes;
        sum.add((load(q) + load(q + kRowParts)) + (load(q + 2 * kRowParts) + load(q + 3 * kRowParts)), j);
      }
    for (; i < m; i += kRowParts)
#pragma GCC unroll 8
      for (int j = 0; j < kRowVecs; ++j)
        if (i + j * kLanes < m) sum.add(load(p + i + j * kLanes), j);
  }
  return sum.total();
}

struct LayerNorm {
  static constexpr int kParameters = 2;
  const LayerNormArgs& a;
  View parameters[2];
  struct Numbers {
    float mean, rstd;
    TALLY_INLINE void read(const LayerNormArgs& args, int64_t row, const Row& x) {
      const int64_t n = row_length(args.x);
      mean = static_cast<float>(sum_row(x, n) / static_cast<double>(n));
      Partials squares = {};
      const Row rows[1] = {x};
      over_row<0, 1>(rows, n, [&](const Vec* in, Vec*, int j, int64_t valid) {
        const Vec t = first_lanes(in[0] - mean, valid, 0.0f);
        squares[j] = fmadd(t, t, squares[j]);
      });
      const float variance = sum_partials(squares) / static_cast<float>(n);
      rstd = 1.0f / sqrt_of(variance + static_cast<float>(args.eps));
      args.mean.ptr<float>()[row] = mean;
      args.rstd.ptr<float>()[row] = rstd;
    }
    TALLY_INLINE Vec apply(Vec x, const Vec* p) const { return fmadd((x - mean) * rstd, p[0], p[1]); }
  };
};

// sum = x + residual of a row.
template <class A>
void add_row_f64(const A& a, int64_t row) {
  const int last = a.x.size.rank - 1;
  const double *x = a.x.template ptr<double>() + row_offset(a.x, row),
               *r = a.residual.template ptr<double>() + row_offset(a.residual, row);
  double* sum = a.sum.template ptr<double>() + row_offset(a.sum, row);
  for (int64_t i = 0; i < row_length(a.x); ++i)
    sum[i * a.sum.stride.v[last]] = x[i * a.x.stride.v[last]] + r[i * a.residual.stride.v[last]];
}

void layer_norm_row_f64(const LayerNormArgs& a, int64_t row) {
  if (norm_has(a.residual)) add_row_f64(a, row);
  const View& v = normed_of(a);
  const int64_t n = row_length(v), step = v.stride.v[v.size.rank - 1];
  const double* x = v.ptr<double>() + row_offset(v, row);
  double* out = a.out.ptr<double>() + row_offset(a.out, row);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i * step];
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (x[i * step] - mean) * (x[i * step] - mean);
  const double rstd = 1.0 / sqrt_of(squares / static_cast<double>(n) + a.eps);
  a.mean.ptr<double>()[row] = mean;
  a.rstd.ptr<double>()[row] = rstd;
  for (int64_t i = 0; i < n; ++i)
    out[i * a.out.stride.v[a.out.size.rank - 1]] =
        (x[i * step] - mean) * rstd * weight_at(a.weight, i) + (norm_has(a.bias) ? f64_at(a.bias, i) : 0.0);
}

// ---- gradients: both norms share them, RMSNorm with a mean of 0 and without its term

struct Gradient {
  View grad, grad_sum, x, weight, mean, rstd, dx, dweight, dbias, scratch;
  bool centred, add_weight, add_bias;
};

void dx_row(const Gradient& a, const View& weight, int64_t row) {
  const int64_t n = row_length(a.x);
  const float mean = a.centred ? a.mean.ptr<float>()[row] : 0.0f, rstd = a.rstd.ptr<float>()[row];
  const Row inputs[3] = {row_of(a.grad, row), row_of(a.x, row), row_of(weight, 0)};
  Vec sum[kRowVecs] = {}, dot[kRowVecs] = {};
  over_row<0, 3>(inputs, n, [&](const Vec* in, Vec*, int j, int64_t) {
    const Vec h = in[0] * in[2];
    sum[j] += h;
    dot[j] = fmadd(h, (in[1] - mean) * rstd, dot[j]);
  });
  const float h_mean = a.centred ? sum_partials(sum) / static_cast<float>(n) : 0.0f;
  const Vec slope = broadcast(-(sum_partials(dot) / static_cast<float>(n)));
  const auto dx = [&](const Vec* in) __attribute__((always_inline)) {
    return fmadd((in[1] - mean) * rstd, slope, in[0] * in[2] - h_mean) * rstd;
  };
  if (norm_has(a.grad_sum)) {
    const DType stored = a.dx.dtype;
    const Row rows[5] = {row_of(a.dx, row), inputs[0], inputs[1], inputs[2], row_of(a.grad_sum, row)};
    return over_row<1, 4>(rows, n,
                          [&](const Vec* in, Vec* out, int, int64_t) { out[0] = in[3] + rounded(dx(in), stored); });
  }
  const Row rows[4] = {row_of(a.dx, row), inputs[0], inputs[1], inputs[2]};
  over_row<1, 3>(rows, n, [&](const Vec* in, Vec* out, int, int64_t) { out[0] = dx(in); });
}

// Adds a row's grad * n to its group's sums.
void dweight_row(const Gradient& a, const View& sums, int64_t group, int64_t row) {
  const float mean = a.centred ? a.mean.ptr<float>()[row] : 0.0f, rstd = a.rstd.ptr<float>()[row];
  const Row rows[4] = {row_of(sums, group), row_of(sums, group), row_of(a.grad, row), row_of(a.x, row)};
  over_row<1, 3>(rows, row_length(a.x),
                 [&](const Vec* in, Vec* out, int, int64_t) { out[0] = fmadd(in[1], (in[2] - mean) * rstd, in[0]); });
}

void dbias_row(const Gradient& a, const View& sums, int64_t group, int64_t row) {
  const Row rows[3] = {row_of(sums, group), row_of(sums, group), row_of(a.grad, row)};
  over_row<1, 2>(rows, row_length(a.x), [](const Vec* in, Vec* out, int, int64_t) { out[0] = in[0] + in[1]; });
}

// out = sums over the groups in order, on top of out with `add`.
void join_groups(const View& sums, const View& out, bool add) {
  const int64_t groups = sums.size.v[0], d = sums.size.v[1];
  parallel_for(d, kBlock, [&](int64_t begin, int64_t end) {
    alignas(64) float total[kBlock] = {}, buffer[kBlock];
    const int64_t n = end - begin, step = out.stride.v[0];
    for (int64_t g = 0; g < groups; ++g) {
      const float* p = sums.ptr<float>() + g * d + begin;
      for (int64_t i = 0; i < n; ++i) total[i] += p[i];
    }
    if (add) {
      const float* there = block_in(out, begin * step, step, n, buffer);
      for (int64_t i = 0; i < n; ++i) total[i] += there[i];
    }
    block_out(out, begin * step, step, n, total, total);
  });
}

// Plane i of the scratch: (groups, d).
View scratch_plane(const View& scratch, int64_t i) {
  View v = scratch;
  v.size = Dims(scratch.size.v[1], scratch.size.v[2]);
  v.stride = Dims(scratch.size.v[2], 1);
  v.data = scratch.ptr<float>() + i * v.size.numel();
  return v;
}

void gradient_f64(const Gradient& a) {
  const int64_t n = row_length(a.x), rows = rows_of(a.x);
  const int last = a.x.size.rank - 1;
  for (int64_t i = 0; i < n; ++i) {
    if (norm_has(a.dweight) && !a.add_weight) a.dweight.ptr<double>()[i * a.dweight.stride.v[0]] = 0;
    if (norm_has(a.dbias) && !a.add_bias) a.dbias.ptr<double>()[i * a.dbias.stride.v[0]] = 0;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const double* x = a.x.ptr<double>() + row_offset(a.x, row);
    const double* g = a.grad.ptr<double>() + row_offset(a.grad, row);
    const double mean = a.centred ? a.mean.ptr<double>()[row] : 0.0, rstd = a.rstd.ptr<double>()[row];
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double gi = g[i * a.grad.stride.v[last]], normal = (x[i * a.x.stride.v[last]] - mean) * rstd;
      sum += gi * weight_at(a.weight, i);
      dot += gi * weight_at(a.weight, i) * normal;
      if (norm_has(a.dweight)) a.dweight.ptr<double>()[i * a.dweight.stride.v[0]] += gi * normal;
      if (norm_has(a.dbias)) a.dbias.ptr<double>()[i * a.dbias.stride.v[0]] += gi;
    }
    if (!norm_has(a.dx)) continue;
    double* dx = a.dx.ptr<double>() + row_offset(a.dx, row);
    const double* other_row = norm_has(a.grad_sum) ? a.grad_sum.ptr<double>() + row_offset(a.grad_sum, row) : nullptr;
    const double h_mean = a.centred ? sum / static_cast<double>(n) : 0.0, slope = dot / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      const double normal = (x[i * a.x.stride.v[last]] - mean) * rstd;
      const double other = norm_has(a.grad_sum) ? other_row[i * a.grad_sum.stride.v[last]] : 0.0;
      dx[i * a.dx.stride.v[last]] =
          other + rstd * (g[i * a.grad.stride.v[last]] * weight_at(a.weight, i) - h_mean - normal * slope);
    }
  }
}

void gradient(const Gradient& a) {
  if (a.x.dtype == DType::kF64) return gradient_f64(a);
  const int64_t n = row_length(a.x), rows = rows_of(a.x), size = norm_group_rows(rows);
  if (n == 0) return;
  const bool has_weight = norm_has(a.dweight), has_bias = norm_has(a.dbias);
  const View weight = view_or(a.weight, kOne, n);
  View weight_sums, bias_sums;
  if (has_weight) weight_sums = scratch_plane(a.scratch, 0);
  if (has_bias) bias_sums = scratch_plane(a.scratch, has_weight ? 1 : 0);
  parallel_for(norm_groups(rows), (row_grain(n) + size - 1) / size, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      if (has_weight) __builtin_memset(weight_sums.ptr<float>() + group * n, 0, static_cast<uint64_t>(n) * 4);
      if (has_bias) __builtin_memset(bias_sums.ptr<float>() + group * n, 0, static_cast<uint64_t>(n) * 4);
      const int64_t stop = rows < (group + 1) * size ? rows : (group + 1) * size;
      for (int64_t row = group * size; row < stop; ++row) {
        if (norm_has(a.dx)) dx_row(a, weight, row);
        if (row + 1 < rows) fetch_row(a.grad, row + 1), fetch_row(a.x, row + 1);
        if (has_weight) dweight_row(a, weight_sums, group, row);
        if (has_bias) dbias_row(a, bias_sums, group, row);
      }
    }
  });
  if (has_weight) join_groups(weight_sums, a.dweight, a.add_weight);
  if (has_bias) join_groups(bias_sums, a.dbias, a.add_bias);
}

// ---- RMSNorm

struct RmsNorm {
  static constexpr int kParameters = 1;
  const RmsNormArgs& a;
  View parameters[1];
  struct Numbers {
    float rstd;
    TALLY_INLINE void read(const RmsNormArgs& args, int64_t row, const Row& x) {
      const int64_t n = row_length(args.x);
      Partials squares = {};
      const Row rows[1] = {x};
      over_row<0, 1>(rows, n,
                     [&](const Vec* in, Vec*, int j, int64_t) { squares[j] = fmadd(in[0], in[0], squares[j]); });
      rstd = 1.0f / sqrt_of(sum_partials(squares) / static_cast<float>(n) + static_cast<float>(args.eps));
      args.rstd.ptr<float>()[row] = rstd;
    }
    TALLY_INLINE Vec apply(Vec x, const Vec* p) const { return x * rstd * p[0]; }
  };
};

void rms_norm_row_f64(const RmsNormArgs& a, int64_t row) {
  if (norm_has(a.residual)) add_row_f64(a, row);
  const View& v = normed_of(a);
  const int64_t n = row_length(v), last = v.size.rank - 1, step = v.stride.v[last];
  const double* x = v.ptr<double>() + row_offset(v, row);
  double* out = a.out.ptr<double>() + row_offset(a.out, row);
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += x[i * step] * x[i * step];
  const double rstd = 1.0 / sqrt_of(squares / static_cast<double>(n) + a.eps);
  a.rstd.ptr<double>()[row] = rstd;
  for (int64_t i = 0; i < n; ++i) out[i * a.out.stride.v[last]] = x[i * step] * rstd * weight_at(a.weight, i);
}

}  // namespace

void layer_norm(const LayerNormArgs& a) {
  const int64_t n = row_length(a.x);
  const LayerNorm norm = {a, {view_or(a.weight, kOne, n), view_or(a.bias, kZero, n)}};
  parallel_for(rows_of(a.x), row_grain(n), [&](int64_t begin, int64_t end) {
    if (a.x.dtype != DType::kF64) return norm_rows(norm, begin, end);
    for (int64_t row = begin; row < end; ++row) layer_norm_row_f64(a, row);
  });
}

void layer_norm_backward(const LayerNormBackwardArgs& a) {
  gradient({a.grad, a.grad_sum, a.x, a.weight, a.mean, a.rstd, a.dx, a.dweight, a.dbias, a.scratch, true, a.add_weight,
            a.add_bias});
}

void rms_norm(const RmsNormArgs& a) {
  const int64_t n = row_length(a.x);
  const RmsNorm norm = {a, {view_or(a.weight, kOne, n)}};
  parallel_for(rows_of(a.x), row_grain(n), [&](int64_t begin, int64_t end) {
    if (a.x.dtype != DType::kF64) return norm_rows(norm, begin, end);
    for (int64_t row = begin; row < end; ++row) rms_norm_row_f64(a, row);
  });
}

void rms_norm_backward(const RmsNormBackwardArgs& a) {
  gradient({a.grad, a.grad_sum, a.x, a.weight, {}, a.rstd, a.dx, a.dweight, {}, a.scratch, false, a.add_weight, false});
}

}  // namespace tally::TALLY_ISA
