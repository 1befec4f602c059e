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

}  // namespace

void adamw(const AdamwArgs& a) {
  const View views[7] = {a.param, a.m, a.v, a.param, a.m, a.v, a.grad};
  const AdamwScalars& k = a.s;
  const double decay = 1 - k.lr * k.weight_decay, step = k.lr / k.correction1;
  const double inverse_root = 1 / __builtin_sqrt(k.correction2);
  map_elements<3, 4>(views, [&](const auto& in, auto& out) {
    using N = std::remove_cvref_t<decltype(out[0])>;
    using S = typename ScalarOf<N>::type;
    const auto constant = [](double x) { return broadcast_as(static_cast<S>(x), N{}); };
    const N g = in[3] * static_cast<S>(k.grad_scale);
    const N m = fmadd(in[1], constant(k.beta1), g * static_cast<S>(1 - k.beta1));
    const N v = fmadd(in[2], constant(k.beta2), g * g * static_cast<S>(1 - k.beta2));
    const N update = m / (sqrt_of(v) * static_cast<S>(inverse_root) + static_cast<S>(k.eps));
    out[0] = in[0] * static_cast<S>(decay) - update * static_cast<S>(step);
    out[1] = m;
    out[2] = v;
  });
}

void sum_squares(const SumSquaresArgs& a) {
  const int64_t numel = a.x.numel();
  with_float(a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    parallel_for(a.partial.numel(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t first = c * kSumSquaresChunk;
        const int64_t n = numel - first < kSumSquaresChunk ? numel - first : kSumSquaresChunk;
        a.partial.ptr<double>()[c * a.partial.stride[0]] = chunk_squares(a.x.ptr<T>() + first, n);
      }
    });
  });
}

}  // namespace tally::TALLY_ISA
