#include "tally/ops/attention.h"

#include <cmath>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/cache.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/rope.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

void check(const Tensor& q, const Tensor& k, const Tensor& v) {
  require_same("attention", q, k);
  require_same("attention", q, v);
  for (const Tensor* t : {&q, &k, &v})
    if (t->dim() != 4) fail("attention: shape {} is not (B, T, H, D)", str(t->sizes()));
  if (k.sizes() != v.sizes()) fail("attention: shapes {} of k and {} of v differ", str(k.sizes()), str(v.sizes()));
  if (q.size(0) != k.size(0) || q.size(3) != k.size(3))
    fail("attention: batch or head size of q {} and k {} differ", str(q.sizes()), str(k.sizes()));
  const int64_t heads = q.size(2), kv_heads = k.size(2);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    fail("attention: {} heads are not a multiple of {} key heads", heads, kv_heads);
  if (q.size(3) > kMaxHeadDim) fail("attention: head size {} is beyond {}", q.size(3), kMaxHeadDim);
}

double scale_of(const Tensor& q) { return q.size(3) == 0 ? 1.0 : 1 / std::sqrt(static_cast<double>(q.size(3))); }

// For the logarithms of sums: (B, H, Tq).
Tensor row_numbers(const Tensor& q) {
  return Tensor::empty({q.size(0), q.size(2), q.size(1)}, q.dtype() == DType::kF64 ? DType::kF64 : DType::kF32,
                       q.device());
}

void attention_gradients(Backward& b, double scale, bool causal) {
  const Tensor q = b.take_saved(0), k = b.take_saved(1), v = b.take_saved(2), out = b.take_saved(3),
               lse = b.take_saved(4);
  const Tensor scratch =
      Tensor::empty({attention_scratch(q.sizes(), q.dtype())}, lse.dtype(), q.device(), Category::kWorkspace);
  Tensor dq = b.empty(0), dk = b.empty(1), dv = b.empty(2);
  launch(&Kernels::attention_backward,
         AttentionBackwardArgs{dense_rows(b.grad()).raw(), q.raw(), k.raw(), v.raw(), out.raw(), lse.raw(), dq.raw(),
                               dk.raw(), dv.raw(), scratch.raw(), scale, causal});
  b.add(0, dq);
  b.add(1, dk);
  b.add(2, dv);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, std::optional<double> scale) {
  check(q, k, v);
  if (q.dtype() == DType::kF16) {
    const Tensor wide[3] = {to(q, DType::kF32), to(k, DType::kF32), to(v, DType::kF32)};
    return to(attention(wide[0], wide[1], wide[2], causal, scale), q.dtype());
  }
  const double s = scale.value_or(scale_of(q));
  const Tensor dense_q = dense_rows(q), dense_k = dense_rows(k), dense_v = dense_rows(v);
  Tensor out = Tensor::empty(q.sizes(), q.dtype(), q.device());
  const Tensor lse = row_numbers(q);
  launch(&Kernels::attention,
         AttentionArgs{dense_q.raw(), dense_k.raw(), dense_v.raw(), out.raw(), lse.raw(), s, causal});
  record(
      out, {q, k, v}, {dense_q, dense_k, dense_v, out.detach(), lse},
      [](Backward& b, double factor, bool masked) { attention_gradients(b, factor, masked); }, s, causal);
  return out;
}

Tensor attention_cached(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position, int64_t capacity) {
  check(q, k, v);
  refuse_f16("attention_cached", q);
  if (q.size(1) > k.size(1) || k.size(1) > capacity)
    fail("attention_cached: {} queries of {} keys in a cache of {}", q.size(1), k.size(1), capacity);
  // A copy would not grow with the cache.
  for (const Tensor* t : {&k, &v})
    if (t->size(3) > 1 && t->stride(3) != 1) fail("attention_cached: the cache's last axis is not contiguous");
  Tensor out = Tensor::empty(q.sizes(), q.dtype(), q.device());
  const Tensor lse = row_numbers(q);
  launch(&Kernels::attention, AttentionArgs{dense_rows(q).raw(), k.raw(), v.raw(), out.raw(), lse.raw(), scale_of(q),
                                            true, position_view("attention_cached", position, q.device()), capacity});
  return out;
}

}  // namespace tally
