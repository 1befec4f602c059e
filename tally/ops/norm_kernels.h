// LayerNorm (Ba et al. 2016, arXiv:1607.06450) and RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467) over the last
// axis. A view of rank 0 stands for a tensor that is not there (no weight, no bias, a gradient nobody asked for). With
// a residual, x is the sum of two tensors that the kernel adds up on its way: sum = x + residual, rounded to their
// dtype, and the norm is that of the rounded sum, as if another op had added them.
#pragma once

#include "tally/core/cost.h"

namespace tally {

TALLY_INLINE bool norm_has(const View& v) { return v.size.rank > 0; }
TALLY_INLINE int64_t norm_bytes(const View& v) { return norm_has(v) ? v.bytes() : 0; }

// Gradients of weight and bias are sums over rows: first over fixed groups of rows into a scratch of (groups, d)
// numbers each, then over the groups. Both functions depend on the number of rows only.
TALLY_INLINE int64_t norm_group_rows(int64_t rows) {
  const int64_t few = (rows + 63) / 64;
  return few < 16 ? 16 : few;
}
TALLY_INLINE int64_t norm_groups(int64_t rows) {
  const int64_t size = norm_group_rows(rows);
  return (rows + size - 1) / size;
}

// out = (x - mean) * rstd * weight + bias; rstd = 1 / sqrt(variance + eps). x, out (..., d); weight, bias (d);
// mean, rstd (rows) in f32 (f64 for f64).
// residual, sum: both or none, of x's shape and dtype.
// Counted a row: mean d + 1, variance 3d + 1, rstd 3, out 2d, and d each for weight, bias and residual.
struct LayerNormArgs {
  static constexpr const char* name = "layer_norm";
  View x, weight, bias, out, mean, rstd;
  double eps;
  View residual = {}, sum = {};
  Device device() const { return out.device; }
  Cost cost() const {
    const int64_t factors = 6 + norm_has(weight) + norm_has(bias) + norm_has(residual);
    return {0, x.numel() * factors + rstd.numel() * 5,
            x.bytes() + norm_bytes(residual) + norm_bytes(weight) + norm_bytes(bias),
            out.bytes() + norm_bytes(sum) + mean.bytes() + rstd.bytes(), 0};
  }
};

// n = (x - mean) * rstd, h = grad * weight: dx = rstd * (h - mean(h) - n * mean(h * n)); dweight = sum of grad * n and
// dbias = sum of grad over rows, added to what is there with the flags. scratch (2 if both are wanted, groups, d).
// grad_sum: the gradient that the normed tensor has from elsewhere; dx is rounded to its dtype, grad_sum added and the
// sum rounded, as if another op had added them. dx may be grad_sum's memory. Not there without dx.
// Counted an element: n 2, h 1 with a weight; dx 3 for the sums (one product, two additions) and 4, and 1 for grad_sum;
// dweight 2, dbias 1; a row: 2 divisions for dx; a column: 1 for each accumulation.
struct LayerNormBackwardArgs {
  static constexpr const char* name = "layer_norm_backward";
  View grad, x, weight, mean, rstd, dx, dweight, dbias, scratch;
  bool add_weight, add_bias;
  View grad_sum = {};
  Device device() const { return grad.device; }
  Cost cost() const {
    int64_t factors = 2 * norm_has(dweight) + norm_has(dbias);
    if (norm_has(dx) || norm_has(dweight)) factors += 2;
    if (norm_has(dx)) factors += 7 + norm_has(weight) + norm_has(grad_sum);
    const int64_t once =
        (norm_has(dx) ? 2 * rstd.numel() : 0) + (add_weight ? dweight.numel() : 0) + (add_bias ? dbias.numel() : 0);
    return {0, grad.numel() * factors + once,
            grad.bytes() + norm_bytes(grad_sum) + x.bytes() + norm_bytes(weight) + mean.bytes() + rstd.bytes() +
                (add_weight ? dweight.bytes() : 0) + (add_bias ? dbias.bytes() : 0),
            norm_bytes(dx) + norm_bytes(dweight) + norm_bytes(dbias), 0};
  }
};

// out = x * rstd * weight; rstd = 1 / sqrt(mean(x^2) + eps).
// Counted a row: 2d + 1 for the mean, rstd 3, out d, weight d, residual d.
struct RmsNormArgs {
  static constexpr const char* name = "rms_norm";
  View x, weight, out, rstd;
  double eps;
  View residual = {}, sum = {};
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, x.numel() * (3 + norm_has(weight) + norm_has(residual)) + rstd.numel() * 4,
            x.bytes() + norm_bytes(residual) + norm_bytes(weight), out.bytes() + norm_bytes(sum) + rstd.bytes(), 0};
  }
};

// n = x * rstd, h = grad * weight: dx = rstd * (h - n * mean(h * n)); dweight = sum of grad * n over rows.
// grad_sum as for LayerNorm.
// Counted an element: n 1, h 1 with a weight; dx 2 for the sum and 3, and 1 for grad_sum; dweight 2; a row: 1 division
// for dx; a column: 1 for the accumulation.
struct RmsNormBackwardArgs {
  static constexpr const char* name = "rms_norm_backward";
  View grad, x, weight, rstd, dx, dweight, scratch;
  bool add_weight;
  View grad_sum = {};
  Device device() const { return grad.device; }
  Cost cost() const {
    int64_t factors = 1 + 2 * norm_has(dweight);
    if (norm_has(dx)) factors += 5 + norm_has(weight) + norm_has(grad_sum);
    return {0, grad.numel() * factors + (norm_has(dx) ? rstd.numel() : 0) + (add_weight ? dweight.numel() : 0),
            grad.bytes() + norm_bytes(grad_sum) + x.bytes() + norm_bytes(weight) + rstd.bytes() +
                (add_weight ? dweight.bytes() : 0),
            norm_bytes(dx) + norm_bytes(dweight), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void layer_norm(const LayerNormArgs&);
void layer_norm_backward(const LayerNormBackwardArgs&);
void rms_norm(const RmsNormArgs&);
void rms_norm_backward(const RmsNormBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
