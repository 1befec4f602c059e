// Attention kernels: softmax(q k^T scale) v a head, with a causal mask and grouped key heads, in one pass over blocks
// of keys with a running softmax, so that memory is linear in T (Milakov and Gimelshein 2018; Dao et al. 2022).
#pragma once

#include "tally/core/cost.h"

namespace tally {

constexpr int64_t kMaxHeadDim = 256;

// Keys that query i of Tq sees among Tk: with a causal mask the queries are the last positions of the keys.
TALLY_INLINE constexpr int64_t visible_keys(int64_t i, int64_t tq, int64_t tk, bool causal) {
  if (!causal) return tk;
  const int64_t n = i + tk - tq + 1;
  return n < 0 ? 0 : (n < tk ? n : tk);
}
// Pairs of a query and a key it sees, and queries that see a key, for one head of one sequence.
TALLY_INLINE constexpr int64_t attention_pairs(int64_t tq, int64_t tk, bool causal) {
  if (!causal) return tq * tk;
  return tq < tk ? tq * (tk - tq) + tq * (tq + 1) / 2 : tk * (tk + 1) / 2;
}
TALLY_INLINE constexpr int64_t attention_rows(int64_t tq, int64_t tk, bool causal) {
  if (tk == 0) return 0;
  return causal && tk < tq ? tk : tq;
}

// q and out (B, Tq, H, D), k and v (B, Tk, Hkv, D), D contiguous; lse (B, H, Tq) f32 (f64 for f64): log of the sum of
// exponents of a row. Query head h uses key head h / (H / Hkv). A row without keys gives zeros and lse -inf. Where
// there is a position (cache_kernels.h), k and v are the first Tk rows of a cache of `capacity`, and Tk = *position +
// Tq. matmul: 2 D a pair for q k^T and as much for the weighted sum. Other: scale, maximum, difference, exponent and
// sum a pair; 1 / sum, D products, logarithm and sum a row.
struct AttentionArgs {
  static constexpr const char* name = "attention";
  View q, k, v, out, lse;
  double scale;
  bool causal;
  View position = {};
  int64_t capacity = 0;
  Device device() const { return out.device; }
  Cost cost() const {
    const int64_t heads = q.size[0] * q.size[2], d = q.size[3];
    const int64_t pairs = heads * attention_pairs(q.size[1], k.size[1], causal);
    const int64_t rows = heads * attention_rows(q.size[1], k.size[1], causal);
    return {4 * d * pairs, 5 * pairs + (d + 3) * rows, q.bytes() + k.bytes() + v.bytes(), out.bytes() + lse.bytes(), 0};
  }
};

// The f32 workspace of a backward: a number a row of (B, H, Tq), and for bf16 the sums of dq.
TALLY_INLINE constexpr int64_t attention_scratch(const Dims& q, DType dtype) {
  const int64_t rows = q[0] * q[1] * q[2];
  return dtype == DType::kBF16 ? rows + rows * q[3] : rows;
}

// grad, dq (B, Tq, H, D); dk, dv (B, Tk, Hkv, D); scratch (attention_scratch), f64 for f64.
// P = exp(q k^T scale - lse); dv = P^T grad; dS = P (grad v^T - delta) scale, delta = sum of grad * out over a row;
// dq = dS k; dk = dS^T q. matmul: 10 D a pair for the five products. Other: scale, difference, exponent, difference and
// two products a pair; 2 D a row for delta.
struct AttentionBackwardArgs {
  static constexpr const char* name = "attention_backward";
  View grad, q, k, v, out, lse, dq, dk, dv, scratch;
  double scale;
  bool causal;
  Device device() const { return dq.device; }
  Cost cost() const {
    const int64_t heads = q.size[0] * q.size[2], d = q.size[3];
    const int64_t pairs = heads * attention_pairs(q.size[1], k.size[1], causal);
    const int64_t rows = heads * attention_rows(q.size[1], k.size[1], causal);
    return {10 * d * pairs, 6 * pairs + 2 * d * rows,
            grad.bytes() + q.bytes() + k.bytes() + v.bytes() + out.bytes() + lse.bytes(),
            dq.bytes() + dk.bytes() + dv.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void attention(const AttentionArgs&);
void attention_backward(const AttentionBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
