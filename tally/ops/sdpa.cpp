#include "tally/ops/sdpa.h"

#include <cmath>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/attention.h"
#include "tally/ops/attention_kernels.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/matmul.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

constexpr const char* kName = "scaled_dot_product_attention";

Dims leading(const Dims& d) {
  Dims out = d;
  for (int i = d.rank - 2; i < d.rank; ++i) out[i] = 0;
  out.rank = d.rank - 2;
  return out;
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal) {
  require_same(kName, q, k);
  require_same(kName, q, v);
  for (const Tensor* t : {&q, &k, &v})
    if (t->dim() < 2) fail("{}: shape {} is not (.., T, E)", kName, str(t->sizes()));
  if (q.size(-1) != k.size(-1) || k.size(-2) != v.size(-2))
    fail("{}: q {}, k {} and v {} do not fit: (.., L, E), (.., S, E), (.., S, Ev)", kName, str(q.sizes()),
         str(k.sizes()), str(v.sizes()));
  if (!mask.defined()) return;
  if (is_causal) fail("{}: a mask is given and is_causal set; give one of them", kName);
  if (mask.device() != q.device())
    fail("{}: devices {} and {} differ", kName, name_of(q.device()), name_of(mask.device()));
  if (mask.dtype() != DType::kBool && mask.dtype() != q.dtype())
    fail("{}: the mask is bool or of q's dtype {}, not {}", kName, name_of(q.dtype()), name_of(mask.dtype()));
}

// (.., T, E) as (B, T, H, E), the layout of attention().
Tensor as_heads(const Tensor& x) {
  if (x.dim() == 4) return transpose(x, 1, 2);
  const Tensor one = unsqueeze(x, x.dim() - 1);  // (.., T, 1, E)
  return one.dim() == 4 ? one : unsqueeze(one, 0);
}
Tensor from_heads(const Tensor& y, const Dims& size) { return size.rank == 4 ? transpose(y, 1, 2) : reshape(y, size); }

bool fits_fused(const Tensor& q, const Tensor& k, const Tensor& v, bool enable_gqa) {
  if (q.dim() > 4 || q.dim() != k.dim() || k.sizes() != v.sizes() || q.size(-1) > kMaxHeadDim) return false;
  if (leading(q.sizes()) == leading(k.sizes())) return true;
  return enable_gqa && q.dim() == 4 && q.size(0) == k.size(0) && k.size(1) > 0 && q.size(1) % k.size(1) == 0;
}

// Causal from the first query and key on, where attention()'s begins at the last ones.
Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
  const int64_t tq = q.size(1), tk = k.size(1);
  if (!causal || tq == tk) return attention(q, k, v, causal, scale);
  if (tq < tk) return attention(q, slice(k, 1, 0, tq), slice(v, 1, 0, tq), true, scale);
  return cat({attention(slice(q, 1, 0, tk), k, v, true, scale), attention(slice(q, 1, tk, tq), k, v, false, scale)}, 1);
}

// 0 where a bool mask is true and -inf where it is false; not recorded.
Tensor added_mask(const Tensor& mask, DType dtype) {
  NoGrad quiet;
  return log(to(mask.detach(), dtype));
}

// The lower triangle of (L, S) as numbers to add, made on the host.
Tensor causal_mask(int64_t rows, int64_t columns, const Tensor& like) {
  NoGrad quiet;
  const Tensor host = Tensor::empty(Dims(rows, columns), DType::kF32, kCpu, Category::kWorkspace);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) host.data<float>()[i * columns + j] = j <= i ? 0.0f : -INFINITY;
  if (like.device().kind == DeviceKind::kMeta)
    return Tensor::empty(host.sizes(), like.dtype(), like.device(), Category::kWorkspace);
  return to(to(host, like.device()), like.dtype());
}

// (.., H, T, E) as (.., G, H / G, T, E) for q, (.., G, 1, T, E) for k and v of G heads.
Tensor grouped(const Tensor& x, int64_t groups) {
  Dims size;
  for (int i = 0; i + 3 < x.dim(); ++i) size[size.rank++] = x.sizes()[i];
  if (size.rank + 4 > kMaxRank) fail("{}: {} has too many axes for grouped heads", kName, str(x.sizes()));
  size[size.rank++] = groups;
  size[size.rank++] = x.size(-3) / groups;
  size[size.rank++] = x.size(-2);
  size[size.rank++] = x.size(-1);
  return reshape(x, size);
}

Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal, double scale) {
  Tensor scores = matmul(affine(q, static_cast<float>(scale), 0), transpose(k, -1, -2));  // (.., L, S)
  if (mask.defined()) {
    if (broadcast_shape(kName, scores.sizes(), mask.sizes()) != scores.sizes())
      fail("{}: a mask of shape {} does not broadcast to the scores {}", kName, str(mask.sizes()), str(scores.sizes()));
    scores = add(scores, mask.dtype() == DType::kBool ? added_mask(mask, q.dtype()) : mask);
  } else if (causal) {
    scores = add(scores, causal_mask(q.size(-2), k.size(-2), q));
  }
  return matmul(softmax(scores, -1), v);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attn_mask,
                                    bool is_causal, std::optional<double> scale, bool enable_gqa) {
  check(q, k, v, attn_mask, is_causal);
  const double s = scale.value_or(q.size(-1) == 0 ? 1.0 : 1 / std::sqrt(static_cast<double>(q.size(-1))));
  if (!attn_mask.defined() && fits_fused(q, k, v, enable_gqa))
    return from_heads(fused(as_heads(q), as_heads(k), as_heads(v), is_causal, s), q.sizes());
  if (!enable_gqa || q.dim() < 3 || k.dim() < 3 || q.size(-3) == k.size(-3))
    return composed(q, k, v, attn_mask, is_causal, s);
  const int64_t heads = q.size(-3), groups = k.size(-3);
  if (groups == 0 || heads % groups != 0 || v.size(-3) != groups)
    fail("{}: {} heads of q are not a multiple of {} of k and {} of v", kName, heads, groups, v.size(-3));
  Tensor mask = attn_mask;
  if (mask.defined() && mask.dim() >= 3) mask = mask.size(-3) == heads ? grouped(mask, groups) : unsqueeze(mask, -4);
  const Tensor y = composed(grouped(q, groups), grouped(k, groups), grouped(v, groups), mask, is_causal, s);
  Dims size = q.sizes();
  size[size.rank - 1] = v.size(-1);
  return reshape(y, size);
}

}  // namespace tally
