// Optimizer kernels on the CPU.
#include "tally/ops/optim_step_kernels.h"

#include "tally/ops/loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

using VecD8 = double __attribute__((vector_size(64)));
using VecF8 = float __attribute__((vector_size(32)));

TALLY_INLINE void load_wide(const double* x, VecD8& v) { __builtin_memcpy(&v, x, sizeof v); }
TALLY_INLINE void load_wide(const float* x, VecD8& v) {
  VecF8 f;
  __builtin_memcpy(&f, x, sizeof f);
  v = __builtin_convertvector(f, VecD8);
}
TALLY_INLINE void load_wide(const bf16* x, VecD8& v) {
  VecF8 f;
  for (int j = 0; j < 8; ++j) f[j] = load_one(x + j);
  v = __builtin_convertvector(f, VecD8);
}

// 32 interleaved sums, joined in a fixed tree.
template <class T>
double chunk_squares(const T* x, int64_t n) {
  VecD8 sums[4] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    // The processor's own prefetching stops at the end of a page.
    for (int64_t line = 0; line < 32; line += 64 / static_cast<int64_t>(sizeof(T)))
      __builtin_prefetch(x + i + 1024 + line);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      VecD8 v;
      load_wide(x + i + 8 * k, v);
      sums[k] += v * v;
    }
  }
  for (int64_t j = 0; i + j < n; ++j) {
    const double v = load_one(x + i + j);
    sums[j / 8][j % 8] += v * v;
  }
  const VecD8 s = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

template <class N>
struct ScalarOf {
  using type = float;
};
template <>
struct ScalarOf<double> {
  using type = double;
};

// The step of one number or vector.
struct Step {
  const AdamwArgs& k;
  double decay, step, inverse_root, grad_scale;
  template <class N>
  TALLY_INLINE void run(N& param, const N& grad, N& first, N& second) const {
    using S = typename ScalarOf<N>::type;
    const auto constant = [](double x) { return broadcast_as(static_cast<S>(x), N{}); };
    const N g = grad * static_cast<S>(grad_scale);
    const N m = fmadd(first, constant(k.beta1), g * static_cast<S>(1 - k.beta1));
    const N v = fmadd(second, constant(k.beta2), g * g * static_cast<S>(1 - k.beta2));
    const N update = m / (sqrt_of(v) * static_cast<S>(inverse_root) + static_cast<S>(k.eps));
    param = param * static_cast<S>(decay) - update * static_cast<S>(step);
    first = m;
    second = v;
  }
};

}  // namespace

void adamw(const AdamwArgs& a) {
  const double *const rates = a.rates.ptr<double>(), scale = *a.grad_scale.ptr<double>();
  if (scale - scale != 0) return;  // not finite
  for (int i = 0; i < a.count; ++i) {
    const AdamwItem& t = a.items[i];
    const Step step{a, 1 - rates[0] * t.weight_decay, rates[1], rates[2], scale};
    if (t.has_master) {
      const View views[8] = {t.master, t.m, t.v, t.param, t.master, t.m, t.v, t.grad};
      map_elements<4, 4>(views, [&](const auto& in, auto& out) {
        for (int j = 0; j < 3; ++j) out[j] = in[j];
        step.run(out[0], in[3], out[1], out[2]);
        out[3] = out[0];
      });
    } else {
      const View views[7] = {t.param, t.m, t.v, t.param, t.m, t.v, t.grad};
      map_elements<3, 4>(views, [&](const auto& in, auto& out) {
        for (int j = 0; j < 3; ++j) out[j] = in[j];
        step.run(out[0], in[3], out[1], out[2]);
      });
    }
  }
}

void step_totals(const StepTotalsArgs& a) {
  double squares = 0, loss = 0;
  for (int64_t i = 0; i < a.squares.numel(); ++i) squares += a.squares.ptr<double>()[i * a.squares.stride[0]];
  const int64_t n = a.losses.numel(), step = a.losses.stride[0];
  for (int64_t i = 0; i < n; ++i)
    loss += a.losses.dtype == DType::kF64 ? a.losses.ptr<double>()[i * step] : a.losses.ptr<float>()[i * step];
  loss /= static_cast<double>(n);
  const double norm = sqrt_of(squares), clip = a.max_norm / (norm + 1e-6);
  const double factor = a.max_norm > 0 && clip < 1 ? clip : 1.0;
  double* const totals = a.totals.ptr<double>();
  totals[0] = loss, totals[1] = norm, totals[2] = factor + (norm - norm) + (loss - loss);
}

void sum_squares(const SumSquaresArgs& a) {
  int64_t done = 0;
  for (int i = 0; i < a.count; ++i) {
    const int64_t numel = a.x[i].numel(), chunks = sum_squares_chunks(numel);
    double* const partial = a.partial.ptr<double>() + done * a.partial.stride[0];
    with_float(a.x[i].dtype, [&](auto tag) {
      using T = decltype(tag);
      parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          const int64_t first = c * kSumSquaresChunk;
          const int64_t n = numel - first < kSumSquaresChunk ? numel - first : kSumSquaresChunk;
          partial[c * a.partial.stride[0]] = chunk_squares(a.x[i].ptr<T>() + first, n);
        }
      });
    });
    done += chunks;
  }
}

}  // namespace tally::TALLY_ISA
