// Softmax on the CPU, a row at a time: the maximum, the sum of exp(x - maximum), then every exp times 1 / sum. exp
// waits in the output where that is f32; else it is computed again, so that nothing is rounded to bf16 in between.
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"
#include "tally/ops/softmax_kernels.h"

namespace tally::TALLY_ISA {

namespace {

void softmax_row(const SoftmaxArgs& a, int64_t row) {
  const int64_t n = row_length(a.x);
  const Row rows[2] = {row_of(a.out, row), row_of(a.x, row)};
  const float most = largest_of_row(rows[1], n);
  const float shift = most == -__builtin_inff() ? 0.0f : most;  // -inf throughout: exp(-inf) = 0 everywhere
  const Vec by = broadcast(shift);
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
  for (int64_t i = 0; i < n; ++i) out[i * a.out.stride.v[last]] = exp_of(x[i * step] - most) / (sum == 0 ? 1.0 : sum);
}

void gradient_row(const SoftmaxBackwardArgs& a, int64_t row) {
  const int64_t n = row_length(a.y);
  const Row rows[3] = {row_of(a.dx, row), row_of(a.grad, row), row_of(a.y, row)};
  const Row inputs[2] = {rows[1], rows[2]};
  Vec dot[kRowVecs] = {};
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
  for (int64_t i = 0; i < n; ++i) dot += g[i * grad_step] * y[i * step];
  for (int64_t i = 0; i < n; ++i) dx[i * a.dx.stride.v[last]] = y[i * step] * (g[i * grad_step] - dot);
}

}  // namespace

void softmax(const SoftmaxArgs& a) {
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
