// Attention on the CPU. The query heads of one key head are handled together: a row is a (query, head) pair, and a tile
// of rows passes over the keys in blocks from position 0. K is transposed a block, so that scores are computed for
// whole vectors of keys; every score, every output and every gradient element is one chain of fused multiply-adds in a
// fixed order, and the sum of a row has 16 interleaved parts. So a row's bits depend on its query and its keys only.
// The backward goes over blocks of keys for one key head at a time: dk and dv of the block are summed over its rows in
// order, dq of a row over the blocks in order.
#include "tally/ops/attention_kernels.h"

#include "tally/ops/attention_blocks.h"

namespace tally::TALLY_ISA {

namespace {

// ---- forward

// What a tile of rows knows after the keys so far: the running maximum, the 16 partial sums, the weighted sum.
struct Running {
  alignas(64) float q[kForwardFloats], out[kForwardFloats];
  alignas(64) float sum[kMaxRows * 16];
  float top[kMaxRows];
  int64_t seen[kMaxRows];  // keys that a row sees
};

struct KeyBlock {
  const float* k;  // transposed: [d][keys]
  const float* v;
  int64_t v_row, first, n, keys, d;
};

TALLY_INLINE Vec lane_numbers() {
  Vec x{};
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(i);
  return x;
}
template <int w, int... I>
TALLY_INLINE Vec largest_lane(Vec x, std::integer_sequence<int, I...> lanes) {  // in every lane
  x = max2(__builtin_shufflevector(x, x, (I ^ w)...), x);
  if constexpr (w > 1) x = largest_lane<w / 2>(x, lanes);
  return x;
}

// scores of a row -> exp(score * scale - maximum), zero from `limit` on; returns what earlier sums are multiplied by.
// exp is kept away from -inf: results below the smallest normal number are slow on many processors.
TALLY_INLINE float softmax_row(float* score, int64_t columns, int64_t limit, float scale, bool first, float& top,
                               float* sum) {
  const Vec end = broadcast(static_cast<float>(limit));
  Vec largest = broadcast(-__builtin_inff());
  for (int64_t j = 0; j < columns; j += kLanes) {
    const Vec s = load(score + j) * scale;
    store(score + j, s);
    largest = max2(lane_numbers() + static_cast<float>(j) < end ? s : largest, largest);
  }
  const Vec old = broadcast(top);
  largest = max2(largest_lane<kLanes / 2>(largest, std::make_integer_sequence<int, kLanes>{}), old);
  const Vec factor = first ? Vec{} : exp_of(old - largest);
  Vec partial[kPartials];
#pragma GCC unroll 4
  for (int i = 0; i < kPartials; ++i) partial[i] = load(sum + i * kLanes) * factor;
  for (int64_t j = 0; j < columns; j += 16) {
#pragma GCC unroll 4
    for (int i = 0; i < kPartials; ++i) {
      const int64_t at = j + i * kLanes;
      const Vec e = exp_of(load(score + at) - largest);
      const Vec p = lane_numbers() + static_cast<float>(at) < end ? e : Vec{};
      store(score + at, p);
      partial[i] += p;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kPartials; ++i) store(sum + i * kLanes, partial[i]);
  top = largest[0];
  return factor[0];
}

// One block of keys for the rows [r, r + m) of a tile.
void attend(Running& t, const KeyBlock& key, int64_t r, int64_t m, float scale) {
  const int64_t d = padded(key.d), most = clamp(t.seen[r + m - 1] - key.first, key.n);
  if (most == 0) return;
  alignas(64) float score[kGroup * kMaxKeys];
  float factor[kGroup] = {};
  const int64_t columns = padded(most);
  product(m, {t.q + r * d, d, 1, key.k, key.keys, score, kMaxKeys, nullptr}, columns, key.d);
  for (int64_t i = 0; i < m; ++i)
    factor[i] = softmax_row(score + i * kMaxKeys, columns, clamp(t.seen[r + i] - key.first, key.n), scale,
                            key.first == 0, t.top[r + i], t.sum + (r + i) * 16);
  // The keys that all rows see, then what single rows see beyond: a masked value is never touched.
  const int64_t common = clamp(t.seen[r] - key.first, key.n);
  float* const out = t.out + r * d;
  product(m, {score, kMaxKeys, 1, key.v, key.v_row, out, d, factor}, d, common);
  for (int64_t i = 1; i < m; ++i) {
    const int64_t more = clamp(t.seen[r + i] - key.first, key.n) - common;
    if (more > 0)
      product(1, {score + i * kMaxKeys + common, 0, 1, key.v + common * key.v_row, key.v_row, out + i * d, d, kOnes}, d,
              more);
  }
}

template <class T>
void start_tile(const AttentionArgs& a, const Rows& rows, int64_t first, int64_t n, Running& t) {
  const int64_t d = padded(a.q.size[3]);
  Row row(rows, first);
  for (int64_t i = 0; i < n; ++i, ++row) {
    load_row(row_of<T>(a.q, row), a.q.size[3], t.q + i * d);
    t.seen[i] = visible_keys(row.query, a.q.size[1], a.k.size[1], a.causal);
    t.top[i] = -__builtin_inff();
    for (int64_t j = 0; j < 16; ++j) t.sum[i * 16 + j] = 0;
    for (int64_t j = 0; j < d; ++j) t.out[i * d + j] = 0;
  }
}

template <class T>
void finish_tile(const AttentionArgs& a, const Rows& rows, int64_t first, int64_t n, Running& t) {
  const int64_t d = padded(a.q.size[3]);
  Row row(rows, first);
  for (int64_t i = 0; i < n; ++i, ++row) {
    float* const out = t.out + i * d;
    float lse = -__builtin_inff();
    if (t.seen[i] > 0) {
      Vec partial[kPartials];
      for (int j = 0; j < kPartials; ++j) partial[j] = load(t.sum + i * 16 + j * kLanes);
      const float sum = join_partials(partial, [](float x, float y) { return x + y; });
      const float inverse = 1.0f / sum;
      for (int64_t j = 0; j < d; ++j) out[j] *= inverse;
      lse = t.top[i] + log_of(sum);
    }
    store_row(row_of<T>(a.out, row), out, a.q.size[3]);
    number_of<float>(a.lse, row) = lse;
  }
}

// Rows [first, first + n) of a key head.
template <class T>
void forward_tile(const AttentionArgs& a, const Rows& rows, int64_t first, int64_t n) {
  Running t;
  alignas(64) float k[kKeyFloats], v[kKeyFloats];
  start_tile<T>(a, rows, first, n, t);
  int64_t begin = 0;  // rows before it see no key
  while (begin < n && t.seen[begin] == 0) ++begin;
  KeyBlock key{k, nullptr, 0, 0, 0, block_keys(a.q.size[3]), a.q.size[3]};
  for (; begin < n && key.first < t.seen[n - 1]; key.first += key.keys) {
    key.n = smaller(key.keys, t.seen[n - 1] - key.first);
    load_transposed(key_of<T>(a.k, rows, key.first), a.k.stride[1], key.n, key.d, key.keys, k);
    key.v = load_rows(key_of<T>(a.v, rows, key.first), a.v.stride[1], key.n, key.d, v, key.v_row);
    for (int64_t r = begin; r < n; r += kGroup) attend(t, key, r, smaller(kGroup, n - r), static_cast<float>(a.scale));
  }
  finish_tile<T>(a, rows, first, n, t);
}

// ---- backward

struct Backpass {
  alignas(64) float q[kBackwardFloats], grad[kBackwardFloats], dq[kBackwardFloats];
  alignas(64) float p[kMaxRows * kMaxKeys], ds[kMaxRows * kMaxKeys];
  float lse[kMaxRows], delta[kMaxRows];
  int64_t seen[kMaxRows];
};

struct BackwardBlock {
  alignas(64) float k[kKeyFloats], v[kKeyFloats];  // transposed
  alignas(64) float dk[kKeyFloats], dv[kKeyFloats], buffer[kKeyFloats];
  const float* k_rows;
  int64_t k_row, first, n, keys, d;
};

// What is summed in f32 beside the outputs: delta, a number a row, and dq.
struct Sums {
  View delta, dq;
};

Sums sums_of(const AttentionBackwardArgs& a) {
  Sums s{a.lse, a.dq};
  const Dims& q = a.q.size;
  s.delta.data = a.scratch.data;
  s.delta.stride = Dims(q[2] * q[1], q[1], 1);
  if (a.dq.dtype == DType::kBF16) {
    s.dq.data = a.scratch.ptr<float>() + s.delta.numel();
    s.dq.stride = Dims(q[1] * q[2] * q[3], q[2] * q[3], q[3], 1);
    s.dq.dtype = DType::kF32;
  }
  return s;
}

// p and ds of rows [r, r + m), zero for keys that a row does not see.
void backward_scores(Backpass& t, const BackwardBlock& key, int64_t r, int64_t m, float scale) {
  const int64_t d = padded(key.d), columns = padded(clamp(t.seen[r + m - 1] - key.first, key.n));
  float* const p = t.p + r * kMaxKeys;
  float* const ds = t.ds + r * kMaxKeys;
  product(m, {t.q + r * d, d, 1, key.k, key.keys, p, kMaxKeys, nullptr}, columns, key.d);
  product(m, {t.grad + r * d, d, 1, key.v, key.keys, ds, kMaxKeys, nullptr}, columns, key.d);
  for (int64_t i = 0; i < m; ++i) {
    const Vec limit = broadcast(static_cast<float>(t.seen[r + i] - key.first));
    int64_t j = 0;
    for (; j < columns; j += kLanes) {
      const int64_t at = i * kMaxKeys + j;
      const auto seen = lane_numbers() + static_cast<float>(j) < limit;
      const Vec w = seen ? exp_of(load(p + at) * scale - t.lse[r + i]) : Vec{};
      store(p + at, w);
      store(ds + at, seen ? w * (load(ds + at) - t.delta[r + i]) * scale : Vec{});
    }
    for (; j < key.keys; ++j) p[i * kMaxKeys + j] = ds[i * kMaxKeys + j] = 0;
  }
}

// n rows of a tile against a block of keys: dq of the tile, dk and dv of the block.
void backward_products(Backpass& t, BackwardBlock& key, int64_t n, float scale) {
  const int64_t d = padded(key.d);
  for (int64_t r = 0; r < n; r += kGroup) {
    const int64_t m = smaller(kGroup, n - r);
    backward_scores(t, key, r, m, scale);
    product(m, {t.ds + r * kMaxKeys, kMaxKeys, 1, key.k_rows, key.k_row, t.dq + r * d, d, kOnes}, d,
            clamp(t.seen[r + m - 1] - key.first, key.n));
  }
  int64_t r = 0;  // the first row that sees key j
  for (int64_t j = 0; j < key.n; j += kGroup) {
    while (r < n && t.seen[r] <= key.first + j) ++r;
    const int64_t m = smaller(kGroup, key.n - j), at = r * kMaxKeys + j;
    product(m, {t.p + at, 1, kMaxKeys, t.grad + r * d, d, key.dv + j * d, d, kOnes}, d, n - r);
    product(m, {t.ds + at, 1, kMaxKeys, t.q + r * d, d, key.dk + j * d, d, kOnes}, d, n - r);
  }
}

// Rows [first, first + n) of a key head against one block of keys: adds to dk and dv of the block, and to dq in memory.
template <class T>
void backward_tile(const AttentionBackwardArgs& a, const Sums& sums, const Rows& rows, BackwardBlock& key,
                   int64_t first, int64_t n) {
  Backpass t;
  const int64_t d = padded(key.d);
  Row row(rows, first);
  for (int64_t i = 0; i < n; ++i, ++row) {
    load_row(row_of<T>(a.q, row), key.d, t.q + i * d);
    load_row(row_of<T>(a.grad, row), key.d, t.grad + i * d);
    load_row(row_of<float>(sums.dq, row), key.d, t.dq + i * d);
    t.lse[i] = number_of<float>(a.lse, row);
    t.delta[i] = number_of<float>(sums.delta, row);
    t.seen[i] = visible_keys(row.query, a.q.size[1], a.k.size[1], a.causal);
  }
  backward_products(t, key, n, static_cast<float>(a.scale));
  Row out(rows, first);
  for (int64_t i = 0; i < n; ++i, ++out) store_row(row_of<float>(sums.dq, out), t.dq + i * d, key.d);
}

template <class T>
void backward_block(const AttentionBackwardArgs& a, const Sums& sums, const Rows& rows, BackwardBlock& key) {
  const T* const k = key_of<T>(a.k, rows, key.first);
  load_transposed(k, a.k.stride[1], key.n, key.d, key.keys, key.k);
  load_transposed(key_of<T>(a.v, rows, key.first), a.v.stride[1], key.n, key.d, key.keys, key.v);
  key.k_rows = load_rows(k, a.k.stride[1], key.n, key.d, key.buffer, key.k_row);
  const int64_t d = padded(key.d);
  for (int64_t i = 0; i < key.n * d; ++i) key.dk[i] = key.dv[i] = 0;
  const int64_t tq = a.q.size[1], all = tq * rows.heads, step = tile_rows(kBackwardFloats, key.d);
  // query i sees the block from i = key.first - (Tk - Tq) on
  int64_t first = a.causal ? clamp(key.first - (a.k.size[1] - tq), tq) * rows.heads : 0;
  for (; first < all; first += step) backward_tile<T>(a, sums, rows, key, first, smaller(step, all - first));
  for (int64_t i = 0; i < key.n; ++i) {
    store_row(key_of<T>(a.dk, rows, key.first + i), key.dk + i * d, key.d);
    store_row(key_of<T>(a.dv, rows, key.first + i), key.dv + i * d, key.d);
  }
}

// delta by the same chain as the products of grad and v: a query with a single key then has dS = 0 exactly.
template <class T>
void row_deltas(const AttentionBackwardArgs& a, const Sums& sums, const Rows& rows) {
  alignas(64) float grad[kMaxHeadDim * kLanes], out[kMaxHeadDim * kLanes];
  const int64_t tq = a.q.size[1], d = a.q.size[3];
  for (int64_t head = 0; head < rows.heads; ++head)
    for (int64_t i = 0; i < tq; i += kLanes) {
      Row row(rows, i * rows.heads + head);
      const int64_t n = smaller(kLanes, tq - i);
      load_transposed(row_of<T>(a.grad, row), a.grad.stride[1], n, d, kLanes, grad);
      load_transposed(row_of<T>(a.out, row), a.out.stride[1], n, d, kLanes, out);
      Vec sum{};
      for (int64_t c = 0; c < d; ++c) sum = fmadd(load(grad + c * kLanes), load(out + c * kLanes), sum);
      for (int64_t j = 0; j < n; ++j, ++row.query) number_of<float>(sums.delta, row) = sum[j];
    }
}

template <class T>
void backward_head(const AttentionBackwardArgs& a, const Sums& sums, const Rows& rows) {
  const int64_t all = a.q.size[1] * rows.heads, d = a.q.size[3], tk = a.k.size[1];
  row_deltas<T>(a, sums, rows);
  Row row(rows, 0);
  for (int64_t r = 0; r < all; ++r, ++row) {
    float* const dq = row_of<float>(sums.dq, row);
    for (int64_t i = 0; i < d; ++i) dq[i] = 0;
  }
  BackwardBlock key;
  key.d = d, key.keys = block_keys(d);
  for (key.first = 0; key.first < tk; key.first += key.keys) {
    key.n = smaller(key.keys, tk - key.first);
    backward_block<T>(a, sums, rows, key);
  }
  if (a.dq.dtype == DType::kBF16) {
    Row out(rows, 0);
    for (int64_t r = 0; r < all; ++r, ++out) store_row(row_of<T>(a.dq, out), row_of<float>(sums.dq, out), d);
  }
}

// ---- f64: plain loops, for gradient tests

double dot(const double* x, const double* y, int64_t d) {
  double sum = 0;
  for (int64_t i = 0; i < d; ++i) sum += x[i] * y[i];
  return sum;
}
void add_scaled(double* y, double s, const double* x, int64_t d) {
  for (int64_t i = 0; i < d; ++i) y[i] += s * x[i];
}
void set_zero(double* y, int64_t d) {
  for (int64_t i = 0; i < d; ++i) y[i] = 0;
}

void forward_row_f64(const AttentionArgs& a, const Rows& rows, int64_t r) {
  const Row row(rows, r);
  const int64_t d = a.q.size[3], seen = visible_keys(row.query, a.q.size[1], a.k.size[1], a.causal);
  const double* const q = row_of<double>(a.q, row);
  double* const out = row_of<double>(a.out, row);
  double top = -__builtin_inf(), sum = 0;
  for (int64_t j = 0; j < seen; ++j) {
    const double s = dot(q, key_of<double>(a.k, rows, j), d) * a.scale;
    top = s > top ? s : top;
  }
  set_zero(out, d);
  for (int64_t j = 0; j < seen; ++j) {
    const double p = exp_of(dot(q, key_of<double>(a.k, rows, j), d) * a.scale - top);
    sum += p;
    add_scaled(out, p, key_of<double>(a.v, rows, j), d);
  }
  for (int64_t i = 0; i < d && seen > 0; ++i) out[i] /= sum;
  number_of<double>(a.lse, row) = seen > 0 ? top + log_of(sum) : -__builtin_inf();
}

void backward_head_f64(const AttentionBackwardArgs& a, const Rows& rows) {
  const int64_t all = a.q.size[1] * rows.heads, d = a.q.size[3], tk = a.k.size[1];
  for (int64_t j = 0; j < tk; ++j) {
    set_zero(key_of<double>(a.dk, rows, j), d);
    set_zero(key_of<double>(a.dv, rows, j), d);
  }
  Row row(rows, 0);
  for (int64_t r = 0; r < all; ++r, ++row) {
    const double* const q = row_of<double>(a.q, row);
    const double* const grad = row_of<double>(a.grad, row);
    double* const dq = row_of<double>(a.dq, row);
    const double delta = dot(grad, row_of<double>(a.out, row), d), lse = number_of<double>(a.lse, row);
    set_zero(dq, d);
    const int64_t seen = visible_keys(row.query, a.q.size[1], tk, a.causal);
    for (int64_t j = 0; j < seen; ++j) {
      const double* const k = key_of<double>(a.k, rows, j);
      const double p = exp_of(dot(q, k, d) * a.scale - lse);
      const double ds = p * (dot(grad, key_of<double>(a.v, rows, j), d) - delta) * a.scale;
      add_scaled(key_of<double>(a.dv, rows, j), p, grad, d);
      add_scaled(dq, ds, k, d);
      add_scaled(key_of<double>(a.dk, rows, j), ds, q, d);
    }
  }
}

// Items of work that a thread takes at a time, for items of `flops`.
TALLY_INLINE int64_t grain_of(int64_t flops) { return 1 + 300000 / (flops + 1); }

}  // namespace

void attention(const AttentionArgs& a) {
  const int64_t kv_heads = a.k.size[2], d = a.q.size[3], tk = a.k.size[1];
  if (a.lse.numel() == 0) return;
  const int64_t heads = a.q.size[2] / kv_heads, all = a.q.size[1] * heads;
  const int64_t step = a.q.dtype == DType::kF64 ? 1 : smaller(all, tile_rows(kForwardFloats, d));
  const int64_t tiles = (all + step - 1) / step;
  parallel_for(a.q.size[0] * kv_heads * tiles, grain_of(4 * step * tk * d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Rows rows{i / tiles / kv_heads, i / tiles % kv_heads, heads};
      const int64_t first = i % tiles * step, n = smaller(step, all - first);
      if (a.q.dtype == DType::kF32) forward_tile<float>(a, rows, first, n);
      if (a.q.dtype == DType::kBF16) forward_tile<bf16>(a, rows, first, n);
      if (a.q.dtype == DType::kF64) forward_row_f64(a, rows, first);
    }
  });
}

void attention_backward(const AttentionBackwardArgs& a) {
  const int64_t kv_heads = a.k.size[2];
  if (kv_heads == 0) return;
  const Sums sums = sums_of(a);
  const int64_t heads = a.q.size[2] / kv_heads, flops = 10 * a.q.size[1] * heads * a.k.size[1] * a.q.size[3];
  parallel_for(a.q.size[0] * kv_heads, grain_of(flops), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Rows rows{i / kv_heads, i % kv_heads, heads};
      if (a.q.dtype == DType::kF32) backward_head<float>(a, sums, rows);
      if (a.q.dtype == DType::kBF16) backward_head<bf16>(a, sums, rows);
      if (a.q.dtype == DType::kF64) backward_head_f64(a, rows);
    }
  });
}

}  // namespace tally::TALLY_ISA
