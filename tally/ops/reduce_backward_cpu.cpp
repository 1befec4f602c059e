// Gradients of reductions on the CPU: of extremes, which share theirs, and of what has a formula an element.
#include "tally/ops/reduce_kernels.h"
#include "tally/ops/reduce_space.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

// ---- the gradient of max

template <class T>
void spread(const MaxBackwardArgs& a, int64_t k, const Space& kept, const Space& kept_dx, const Space& reduced,
            const Space& reduced_dx, int64_t max_at, int64_t grad_at) {
  const T* x = a.x.ptr<T>() + offset_in(kept, k);
  T* dx = a.dx.ptr<T>() + offset_in(kept_dx, k);
  const Compute<T> most = load_one(a.max.ptr<T>() + max_at);
  const auto hit = [&](Compute<T> v) { return v == most || (a.magnitudes && -v == most); };
  Compute<T> count = 0;
  const int64_t total = reduced.rows * reduced.n;
  for (int64_t r = 0; r < total; ++r) count += hit(load_one(x + offset_in(reduced, r)));
  const Compute<T> share = load_one(a.grad.ptr<T>() + grad_at) / (count > 0 ? count : 1);
  for (int64_t r = 0; r < total; ++r) {
    const Compute<T> v = load_one(x + offset_in(reduced, r));
    Compute<T> g = hit(v) ? share : Compute<T>(0);
    if (a.magnitudes) g = v < 0 ? -g : v == 0 ? Compute<T>(0) : g;
    store_one(dx + offset_in(reduced_dx, r), g);
  }
}

// ---- gradients by a formula

// Where a comparison holds, else 0.
TALLY_INLINE Vec where_not_zero(Vec test, Vec x) { return test != 0.0f ? x : Vec{}; }
TALLY_INLINE double where_not_zero(double test, double x) { return test != 0 ? x : 0.0; }
TALLY_INLINE Vec signed_as(Vec x, Vec sign) { return x * with_sign(broadcast(1.0f), sign); }
TALLY_INLINE double signed_as(double x, double sign) { return x * __builtin_copysign(1.0, sign); }
TALLY_INLINE Vec finite_or_zero(Vec x) { return abs_of(x) == __builtin_inff() ? Vec{} : x; }
TALLY_INLINE double finite_or_zero(double x) { return abs_of(x) == __builtin_inf() ? 0.0 : x; }
TALLY_INLINE Vec scaled(Vec x, double by) { return x * static_cast<float>(by); }
TALLY_INLINE double scaled(double x, double by) { return x * by; }
TALLY_INLINE Vec slope_power(Vec x, double p) {
  Vec y{};
  for (int i = 0; i < kLanes; ++i) y[i] = static_cast<float>(__builtin_pow(static_cast<double>(x[i]), p));
  return y;
}
TALLY_INLINE double slope_power(double x, double p) { return __builtin_pow(x, p); }

}  // namespace

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

void reduce_backward(const ReduceBackwardArgs& a) {
  const View views[4] = {a.dx, a.grad, a.x, a.y};
  switch (a.op) {
    case ReduceOp::kSumDeviations:
      return map_elements<1, 3>(views,
                                [&](const auto& in, auto& out) { out[0] = scaled(in[0] * (in[1] - in[2]), a.scale); });
    case ReduceOp::kSumExp:
      return map_elements<1, 3>(
          views, [&](const auto& in, auto& out) { out[0] = in[0] * exp_of(in[1] - finite_or_zero(in[2])); });
    case ReduceOp::kSumAbs:
      return map_elements<1, 3>(
          views, [&](const auto& in, auto& out) { out[0] = where_not_zero(in[1], signed_as(in[0], in[1])); });
    case ReduceOp::kSumSquares:
      return map_elements<1, 3>(
          views, [&](const auto& in, auto& out) { out[0] = where_not_zero(in[2], in[0] * (in[1] / in[2])); });
    case ReduceOp::kSumPower:
      return map_elements<1, 3>(views, [&](const auto& in, auto& out) {
        const auto slope = slope_power(abs_of(in[1]) / in[2], a.power - 1);
        out[0] = where_not_zero(in[1], signed_as(in[0] * slope, in[1]));
      });
    default:
      return;
  }
}

}  // namespace tally::TALLY_ISA
