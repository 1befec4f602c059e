// Cross-entropy on the CPU: two passes over a row of logits forward (maximum, sum of exponentials), one backward that
// may write over the logits. Only (rows, 2) numbers are kept in between. Fused, the three passes of a row follow each
// other, so that the caches have it.
#include "tally/ops/cross_entropy_kernels.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

int64_t target_at(const View& targets, int64_t row) {
  return targets.dtype == DType::kI64 ? targets.ptr<int64_t>()[row] : targets.ptr<int32_t>()[row];
}

// A row's loss; its maximum and sum go to stats.
float loss_of_row(const View& logits, int64_t row, int64_t target, float* stats) {
  const int64_t n = row_length(logits);
  const Row x = row_of(logits, row);
  const float most = largest_of_row(x, n);
  const float shift = most == -__builtin_inff() ? 0.0f : most;
  const float sum = exp_sum_of_row(x, n, shift);
  stats[0] = shift, stats[1] = sum;
  return log_of(sum) - (float_at(logits, x.at + target * x.step) - shift);
}

double loss_of_row(const View& logits, int64_t row, int64_t target, double* stats) {
  const int64_t n = row_length(logits), step = logits.stride.v[logits.size.rank - 1];
  const double* x = logits.ptr<double>() + row_offset(logits, row);
  double most = -__builtin_inf(), sum = 0;
  for (int64_t i = 0; i < n; ++i) most = x[i * step] > most ? x[i * step] : most;
  if (most == -__builtin_inf()) most = 0;
  for (int64_t i = 0; i < n; ++i) sum += exp_of(x[i * step] - most);
  stats[0] = most, stats[1] = sum;
  return log_of(sum) - (x[target * step] - most);
}

// dlogits' row, of g and what loss_of_row() left in stats.
void gradient_row(const View& logits, const View& dlogits, int64_t row, int64_t target, const float* stats, float g) {
  const int64_t n = row_length(logits);
  const Row rows[2] = {row_of(dlogits, row), row_of(logits, row)};
  const float shift = stats[0], factor = g / stats[1];
  // Read before the row is overwritten; rounded once, after the subtraction.
  const float at_target = exp_of(float_at(logits, rows[1].at + target * rows[1].step) - shift) * factor - g;
  const Vec by = broadcast(shift), times = broadcast(factor);
  over_row<1, 1>(rows, n, [&](const Vec* in, Vec* out, int, int64_t) { out[0] = exp_of(in[0] - by) * times; });
  put_float(dlogits, rows[0].at + target * rows[0].step, at_target);
}

void gradient_row(const View& logits, const View& dlogits, int64_t row, int64_t target, const double* stats, double g) {
  const int last = logits.size.rank - 1;
  const double* x = logits.ptr<double>() + row_offset(logits, row);
  double* dx = dlogits.ptr<double>() + row_offset(dlogits, row);
  const double shift = stats[0], factor = g / stats[1];
  for (int64_t i = 0; i < row_length(logits); ++i)
    dx[i * dlogits.stride.v[last]] = exp_of(x[i * logits.stride.v[last]] - shift) * factor;
  dx[target * dlogits.stride.v[last]] -= g;
}

void zero_row(const View& v, int64_t row) {
  const int64_t at = row_offset(v, row), step = v.stride.v[v.size.rank - 1];
  for (int64_t i = 0; i < row_length(v); ++i) {
    if (v.dtype == DType::kF64) {
      v.ptr<double>()[at + i * step] = 0;
    } else {
      put_float(v, at + i * step, 0.0f);
    }
  }
}

// The number of targets not ignored.
template <class T>
T write_count(const View& targets, int64_t ignore_index, const View& count) {
  int64_t valid = 0;
  for (int64_t row = 0; row < targets.numel(); ++row) valid += target_at(targets, row) != ignore_index;
  return count.ptr<T>()[0] = static_cast<T>(valid);
}

template <class T>
T row_gradient(const CrossEntropyBackwardArgs& a, int64_t row) {
  const T* g = a.grad.ptr<T>();
  if (a.reduction == Reduction::kNone) return g[row];
  return a.reduction == Reduction::kSum ? g[0] : g[0] / a.count.ptr<T>()[0];
}

float total_of(const float* losses, int64_t rows) { return row_sum(losses, rows); }
double total_of(const double* losses, int64_t rows) {
  double total = 0;
  for (int64_t row = 0; row < rows; ++row) total += losses[row];
  return total;
}

// f(row, target) for all rows of targets.
template <class F>
void over_targets(const View& targets, const View& logits, const F& f) {
  parallel_for(targets.numel(), row_grain(row_length(logits)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, target_at(targets, row));
  });
}

// f(T{}) for the type that losses are computed in.
template <class F>
void with_compute(const View& logits, const F& f) {
  if (logits.dtype == DType::kF64) return f(double{});
  f(float{});
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& a) {
  with_compute(a.logits, [&](auto tag) {
    using T = decltype(tag);
    T* losses = a.losses.ptr<T>();
    over_targets(a.targets, a.logits, [&](int64_t row, int64_t target) {
      T* stats = a.stats.ptr<T>() + 2 * row;
      stats[0] = 0, stats[1] = 1;
      losses[row] = target == a.ignore_index ? T(0) : loss_of_row(a.logits, row, target, stats);
    });
    const T total = total_of(losses, a.targets.numel()), count = write_count<T>(a.targets, a.ignore_index, a.count);
    if (a.reduction == Reduction::kSum) a.out.ptr<T>()[0] = total;
    if (a.reduction == Reduction::kMean) a.out.ptr<T>()[0] = total / count;
  });
}

void cross_entropy_backward(const CrossEntropyBackwardArgs& a) {
  with_compute(a.logits, [&](auto tag) {
    using T = decltype(tag);
    over_targets(a.targets, a.logits, [&](int64_t row, int64_t target) {
      if (target == a.ignore_index) return zero_row(a.dlogits, row);
      gradient_row(a.logits, a.dlogits, row, target, a.stats.ptr<T>() + 2 * row, row_gradient<T>(a, row));
    });
  });
}

void cross_entropy_fused(const CrossEntropyFusedArgs& a) {
  with_compute(a.logits, [&](auto tag) {
    using T = decltype(tag);
    over_targets(a.targets, a.logits, [&](int64_t row, int64_t target) {
      T stats[2];
      const bool ignored = target == a.ignore_index;
      a.losses.ptr<T>()[row] = ignored ? T(0) : loss_of_row(a.logits, row, target, stats);
      if (ignored) return zero_row(a.dlogits, row);
      gradient_row(a.logits, a.dlogits, row, target, stats, T(1));
    });
    write_count<T>(a.targets, a.ignore_index, a.count);
  });
}

}  // namespace tally::TALLY_ISA
