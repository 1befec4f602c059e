// Cross-entropy on the CPU: two passes over a row of logits forward (maximum, sum of exponentials), one backward that
// may write over the logits. Only (rows, 2) numbers are kept in between.
#include "tally/ops/cross_entropy_kernels.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

int64_t target_at(const View& targets, int64_t row) {
  return targets.dtype == DType::kI64 ? targets.ptr<int64_t>()[row] : targets.ptr<int32_t>()[row];
}

float logit_at(const View& v, int64_t at) {
  return v.dtype == DType::kF32 ? v.ptr<float>()[at] : to_float(v.ptr<bf16>()[at]);
}

void write_logit(const View& v, int64_t at, float x) {
  if (v.dtype == DType::kF32) {
    v.ptr<float>()[at] = x;
  } else {
    v.ptr<bf16>()[at] = to_bf16(x);
  }
}

// A row's loss; its maximum and sum go to stats.
float loss_of_row(const CrossEntropyArgs& a, int64_t row, int64_t target) {
  const int64_t n = row_length(a.logits);
  const Row x = row_of(a.logits, row);
  const float most = largest_of_row(x, n);
  const float shift = most == -__builtin_inff() ? 0.0f : most;
  const float sum = exp_sum_of_row(x, n, shift);
  a.stats.ptr<float>()[2 * row] = shift;
  a.stats.ptr<float>()[2 * row + 1] = sum;
  return log_of(sum) - (logit_at(a.logits, x.at + target * x.step) - shift);
}

double loss_of_row_f64(const CrossEntropyArgs& a, int64_t row, int64_t target) {
  const int64_t n = row_length(a.logits), step = a.logits.stride.v[a.logits.size.rank - 1];
  const double* x = a.logits.ptr<double>() + row_offset(a.logits, row);
  double most = -__builtin_inf(), sum = 0;
  for (int64_t i = 0; i < n; ++i) most = x[i * step] > most ? x[i * step] : most;
  if (most == -__builtin_inf()) most = 0;
  for (int64_t i = 0; i < n; ++i) sum += exp_of(x[i * step] - most);
  a.stats.ptr<double>()[2 * row] = most;
  a.stats.ptr<double>()[2 * row + 1] = sum;
  return log_of(sum) - (x[target * step] - most);
}

void gradient_row(const CrossEntropyBackwardArgs& a, int64_t row, int64_t target, float g) {
  const int64_t n = row_length(a.logits);
  const Row rows[2] = {row_of(a.dlogits, row), row_of(a.logits, row)};
  const float shift = a.stats.ptr<float>()[2 * row], factor = g / a.stats.ptr<float>()[2 * row + 1];
  // Read before the row is overwritten; rounded once, after the subtraction.
  const float at_target = exp_of(logit_at(a.logits, rows[1].at + target * rows[1].step) - shift) * factor - g;
  const Vec by = broadcast(shift), times = broadcast(factor);
  over_row<1, 1>(rows, n, [&](const Vec* in, Vec* out, int, int64_t) { out[0] = exp_of(in[0] - by) * times; });
  write_logit(a.dlogits, rows[0].at + target * rows[0].step, at_target);
}

void gradient_row_f64(const CrossEntropyBackwardArgs& a, int64_t row, int64_t target, double g) {
  const int last = a.logits.size.rank - 1;
  const double* x = a.logits.ptr<double>() + row_offset(a.logits, row);
  double* dx = a.dlogits.ptr<double>() + row_offset(a.dlogits, row);
  const double shift = a.stats.ptr<double>()[2 * row], factor = g / a.stats.ptr<double>()[2 * row + 1];
  for (int64_t i = 0; i < row_length(a.logits); ++i)
    dx[i * a.dlogits.stride.v[last]] = exp_of(x[i * a.logits.stride.v[last]] - shift) * factor;
  dx[target * a.dlogits.stride.v[last]] -= g;
}

void zero_row(const View& v, int64_t row) {
  const int64_t at = row_offset(v, row), step = v.stride.v[v.size.rank - 1];
  for (int64_t i = 0; i < row_length(v); ++i) {
    if (v.dtype == DType::kF64) {
      v.ptr<double>()[at + i * step] = 0;
    } else {
      write_logit(v, at + i * step, 0.0f);
    }
  }
}

template <class T>
void finish(const CrossEntropyArgs& a, T total) {
  const int64_t rows = a.targets.numel();
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) count += target_at(a.targets, row) != a.ignore_index;
  a.count.ptr<T>()[0] = static_cast<T>(count);
  if (a.reduction == Reduction::kSum) a.out.ptr<T>()[0] = total;
  if (a.reduction == Reduction::kMean) a.out.ptr<T>()[0] = total / static_cast<T>(count);
}

template <class T>
T row_gradient(const CrossEntropyBackwardArgs& a, int64_t row) {
  const T* g = a.grad.ptr<T>();
  if (a.reduction == Reduction::kNone) return g[row];
  return a.reduction == Reduction::kSum ? g[0] : g[0] / a.count.ptr<T>()[0];
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& a) {
  const bool f64 = a.logits.dtype == DType::kF64;
  const int64_t rows = a.targets.numel();
  parallel_for(rows, row_grain(row_length(a.logits)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t target = target_at(a.targets, row);
      const bool ignored = target == a.ignore_index;
      if (f64) {
        if (ignored) a.stats.ptr<double>()[2 * row] = 0, a.stats.ptr<double>()[2 * row + 1] = 1;
        a.losses.ptr<double>()[row] = ignored ? 0.0 : loss_of_row_f64(a, row, target);
      } else {
        if (ignored) a.stats.ptr<float>()[2 * row] = 0, a.stats.ptr<float>()[2 * row + 1] = 1;
        a.losses.ptr<float>()[row] = ignored ? 0.0f : loss_of_row(a, row, target);
      }
    }
  });
  if (f64) {
    double total = 0;
    for (int64_t row = 0; row < rows; ++row) total += a.losses.ptr<double>()[row];
    finish<double>(a, total);
  } else {
    finish<float>(a, row_sum(a.losses.ptr<float>(), rows));
  }
}

void cross_entropy_backward(const CrossEntropyBackwardArgs& a) {
  parallel_for(a.targets.numel(), row_grain(row_length(a.logits)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t target = target_at(a.targets, row);
      if (target == a.ignore_index) {
        zero_row(a.dlogits, row);
      } else if (a.logits.dtype == DType::kF64) {
        gradient_row_f64(a, row, target, row_gradient<double>(a, row));
      } else {
        gradient_row(a, row, target, row_gradient<float>(a, row));
      }
    }
  });
}

}  // namespace tally::TALLY_ISA
