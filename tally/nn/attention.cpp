#include "tally/nn/attention.h"

#include <tuple>

#include "tally/ops/attention.h"
#include "tally/ops/view.h"

namespace tally {

Attention::Attention(Init& init, int64_t d, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim, bool bias,
                     double std, double out_std)
    : n_heads(n_heads), n_kv_heads(n_kv_heads), head_dim(head_dim) {
  q = Linear(init, d, n_heads * head_dim, bias, std);
  k = Linear(init, d, n_kv_heads * head_dim, bias, std);
  v = Linear(init, d, n_kv_heads * head_dim, bias, std);
  o = Linear(init, n_heads * head_dim, d, bias, out_std);
}

Tensor Attention::operator()(const Tensor& x, const Rope& rope_config, KvCache* cache, int64_t layer) const {
  const int64_t batch = x.size(0), t = x.size(1), first = cache ? cache->length() : 0;
  const bool decoding = cache && t == 1;  // what may be captured once and replayed
  const Tensor position = decoding ? cache->position() : Tensor();
  const auto heads = [&](const Tensor& y, int64_t n) { return view(y, Dims(batch, t, n, head_dim)); };
  std::vector<Tensor> all = project(x, {&q, &k, &v});
  Tensor queries = heads(all[0], n_heads), keys = heads(all[1], n_kv_heads), values = heads(all[2], n_kv_heads);
  all.clear();  // what rope() replaces is not needed any longer
  if (decoding && rope_config.table.defined()) {
    std::tie(queries, keys, values) =
        cache->append_turned(layer, queries, keys, values, rope_config.table, rope_config.style);
  } else {
    if (rope_config.table.defined()) {
      queries = rope(queries, rope_config.table, first, rope_config.style);
      keys = rope(keys, rope_config.table, first, rope_config.style);
    }
    if (cache) std::tie(keys, values) = cache->append(layer, keys, values);
  }
  const Tensor mixed = decoding ? attention_cached(queries, keys, values, position, cache->capacity())
                                : attention(queries, keys, values, /*causal=*/true);
  return o(view(mixed, Dims(batch, t, n_heads * head_dim)));
}

}  // namespace tally
