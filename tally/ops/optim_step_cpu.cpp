// Optimizer kernels on the CPU.
#include "tally/ops/optim_step_kernels.h"

#include "tally/ops/loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

using VecD8 = double __attribute__((vector_size(64)));

// Eight interleaved sums, joined in a fixed tree.
template <class T>
double chunk_squares(const T* x, int64_t n) {
  VecD8 sums = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    VecD8 v;
    for (int j = 0; j < 8; ++j) v[j] = load_one(x + i + j);
    sums += v * v;
  }
  for (int64_t j = 0; i + j < n; ++j) {
    const double v = load_one(x + i + j);
    sums[j] += v * v;
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
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
