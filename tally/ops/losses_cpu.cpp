// Losses on the CPU: formulas on vectors of elements, and rows of log-probabilities.
#include "tally/ops/losses_kernels.h"
#include "tally/ops/row_loops.h"
#include "tally/ops/simd_math.h"

namespace tally::TALLY_ISA {

namespace {

TALLY_INLINE double magnitude(double x) { return __builtin_fabs(x); }
TALLY_INLINE Vec magnitude(Vec x) { return abs_of(x); }

// log(1 + e) for e in [0, 1] with a small relative error: the logarithm of the rounded 1 + e, corrected by what the
// rounding did (Kahan).
template <class N>
TALLY_INLINE N log_one_plus(N e) {
  const N u = 1.0f + e, rounded = u - 1.0f;
  return rounded == 0.0f ? e : log_of(u) * (e / rounded);
}
// log(1 + exp(-x))
template <class N>
TALLY_INLINE N softplus_of_minus(N x) {
  const N minus = -x, zero = x - x;
  return (minus > 0.0f ? minus : zero) + log_one_plus(exp_of(-magnitude(x)));
}
template <class N>
TALLY_INLINE N log_or_zero(N t) {
  return t == 0.0f ? t : log_of(t);
}

template <LossOp op, class N>
TALLY_INLINE N value(N x, N t, N w) {
  if constexpr (op == LossOp::kMse) return (x - t) * (x - t);
  if constexpr (op == LossOp::kBce) return (1.0f - t) * x + (1.0f + (w - 1.0f) * t) * softplus_of_minus(x);
  if constexpr (op == LossOp::kKl) return t * log_or_zero(t) - t * x;
  return exp_of(t) * (t - x);
}
template <LossOp op, class N>
TALLY_INLINE N by_input(N x, N t, N w, N g) {
  if constexpr (op == LossOp::kMse) return 2.0f * (x - t) * g;
  if constexpr (op == LossOp::kBce) return g * ((1.0f - t) - (1.0f + (w - 1.0f) * t) * (1.0f / (1.0f + exp_of(x))));
  if constexpr (op == LossOp::kKl) return -(g * t);
  return -(g * exp_of(t));
}
template <LossOp op, class N>
TALLY_INLINE N by_target(N x, N t, N w, N g) {
  if constexpr (op == LossOp::kMse) return 2.0f * (t - x) * g;
  if constexpr (op == LossOp::kBce) return g * ((w - 1.0f) * softplus_of_minus(x) - x);
  if constexpr (op == LossOp::kKl) return g * (log_or_zero(t) + 1.0f - x);
  return g * exp_of(t) * (t - x + 1.0f);
}

template <LossOp kOp>
struct LossTag {
  static constexpr LossOp op = kOp;
};
template <class F>
TALLY_INLINE void with_loss(LossOp op, const F& f) {
  switch (op) {
    case LossOp::kMse:
      return f(LossTag<LossOp::kMse>{});
    case LossOp::kBce:
      return f(LossTag<LossOp::kBce>{});
    case LossOp::kKl:
      return f(LossTag<LossOp::kKl>{});
    case LossOp::kKlLog:
      return f(LossTag<LossOp::kKlLog>{});
  }
}

// ---- rows of log-probabilities

int64_t target_at(const View& targets, int64_t row) {
  return targets.dtype == DType::kI64 ? targets.ptr<int64_t>()[row] : targets.ptr<int32_t>()[row];
}

float number_at(const View& v, int64_t at, float) {
  float buffer[kLanes];
  return *block_in(v, at, 1, 1, buffer);
}
double number_at(const View& v, int64_t at, double) { return v.ptr<double>()[at]; }

float total_of_row(const Row& row, int64_t n, float) {
  Vec part[kRowVecs] = {};
  const Row rows[1] = {row};
  over_row<0, 1>(rows, n, [&](const Vec* in, Vec*, int j, int64_t) { part[j] += in[0]; });
  return sum_partials(part);
}
double total_of_row(const Row& row, int64_t n, double) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += row.view->ptr<double>()[row.at + i * row.step];
  return total;
}

template <class N>
void likelihood_rows(const NllArgs& a) {
  const int64_t rows = a.targets.numel(), n = row_length(a.logp);
  const N share = static_cast<N>(a.smoothing);
  N* losses = a.losses.ptr<N>();
  parallel_for(rows, row_grain(a.smoothing > 0 ? n : 8), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t target = target_at(a.targets, r);
      losses[r] = 0;
      if (target == a.ignore_index) continue;
      const Row row = row_of(a.logp, r);
      losses[r] = -number_at(a.logp, row.at + target * row.step, N{});
      if (a.smoothing > 0) losses[r] = (1 - share) * losses[r] - share / static_cast<N>(n) * total_of_row(row, n, N{});
    }
  });
  int64_t valid = 0;
  for (int64_t r = 0; r < rows; ++r) valid += target_at(a.targets, r) != a.ignore_index;
  *a.count.ptr<N>() = static_cast<N>(valid);
}

void fill_row(const View& v, const Row& row, int64_t n, double x) {
  if (v.dtype == DType::kF64) {
    for (int64_t i = 0; i < n; ++i) v.ptr<double>()[row.at + i * row.step] = x;
    return;
  }
  alignas(64) float buffer[kBlock];
  for (float& b : buffer) b = static_cast<float>(x);
  for (int64_t i = 0; i < n; i += kBlock)
    block_out(v, row.at + i * row.step, row.step, n - i < kBlock ? n - i : kBlock, buffer, buffer);
}

template <class N>
void likelihood_gradient(const NllBackwardArgs& a) {
  const int64_t n = row_length(a.dlogp);
  const N even = static_cast<N>(a.smoothing) / static_cast<N>(n), rest = 1 - static_cast<N>(a.smoothing);
  parallel_for(a.targets.numel(), row_grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t target = target_at(a.targets, r);
      const Row row = row_of(a.dlogp, r);
      const bool ignored = target == a.ignore_index;
      const N g = a.grad.ptr<N>()[r], all = ignored ? N(0) : -(g * even);
      fill_row(a.dlogp, row, n, all);
      if (ignored) continue;
      const Row one{row.view, row.at + target * row.step, 1};
      fill_row(a.dlogp, one, 1, all - g * rest);
    }
  });
}

}  // namespace

void loss(const LossArgs& a) {
  const View views[4] = {a.out, a.x, a.target, a.weight};
  with_loss(a.op, [&](auto tag) {
    map_elements<1, 3>(views,
                       [](const auto& in, auto& out) { out[0] = value<decltype(tag)::op>(in[0], in[1], in[2]); });
  });
}

void loss_backward(const LossBackwardArgs& a) {
  const View views[5] = {a.d, a.x, a.target, a.weight, a.grad};
  with_loss(a.op, [&](auto tag) {
    using Tag = decltype(tag);
    if (a.by_target) {
      map_elements<1, 4>(views,
                         [](const auto& in, auto& out) { out[0] = by_target<Tag::op>(in[0], in[1], in[2], in[3]); });
    } else {
      map_elements<1, 4>(views,
                         [](const auto& in, auto& out) { out[0] = by_input<Tag::op>(in[0], in[1], in[2], in[3]); });
    }
  });
}

void nll(const NllArgs& a) {
  if (a.logp.dtype == DType::kF64) {
    likelihood_rows<double>(a);
  } else {
    likelihood_rows<float>(a);
  }
}

void nll_backward(const NllBackwardArgs& a) {
  if (a.dlogp.dtype == DType::kF64) {
    likelihood_gradient<double>(a);
  } else {
    likelihood_gradient<float>(a);
  }
}

void find_outside(const FindOutsideArgs& a) {
  int64_t found = -1;
  for (int64_t i = 0; i < a.index.numel() && found < 0; ++i) {
    const int64_t x = target_at(a.index, i);
    if ((x < 0 || x >= a.limit) && x != a.allowed) found = i;
  }
  *a.out.ptr<int64_t>() = found;
}

}  // namespace tally::TALLY_ISA
