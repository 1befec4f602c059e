// Attention on CUDA: the choice of a path, and the path for every shape. f32, and bf16 that the tensor cores do not
// take (attention_mma_cuda.cu), are computed in f32 from tiles in shared memory. 16 threads share 4 rows: a thread
// holds the scores of its 4 rows with every 16th key, and every 16th group of 4 columns of the 4 sums. A score is one
// chain of fused multiply-adds over D; keys are taken in tiles from position 0; so a row's bits depend on its query and
// its keys only, and a masked value is never touched by the forward. The backward has no sums across blocks: dq is
// computed by tiles of rows that pass over the keys, dk and dv by tiles of keys that pass over the rows, with the same
// code: S = X1 Y1^T, dP = X2 Y2^T and sum1 += dS Y1, where X1, X2 = q, grad stay and Y1, Y2 = k, v pass by, or the
// other way round, then with sum2 += P Y2.
#include <cstdlib>
#include <cstring>

#include "tally/ops/attention_cuda.cuh"

namespace tally::cuda {

namespace {

constexpr int kLanes = 16, kOwn = 4;  // threads of a row, rows of a thread

template <int kDim>
constexpr int kPitch = kDim + 4;  // of a row in shared memory: 16 rows at one column lie in different banks

// Sizes of tiles by padded head size, so that shared memory stays below the 99 KiB that every card from 8.0 on has.
template <int kDim>
constexpr int kForwardTile = kDim <= 128 ? 64 : 32;
template <int kDim>
constexpr int kBackwardTile = kDim <= 64    ? 64
                              : kDim <= 128 ? 32
                                            : 16;

// Rows [0, n) of a tile as f32, zero beyond n and beyond d. row(i): where row i starts.
template <class T, int kTile, int kDim, class Row>
__device__ __forceinline__ void load_rows(float* to, int n, int d, bool vector, const Row& row) {
  constexpr int kThreads = kTile * kLanes / kOwn;
  if (vector) {
    constexpr int kWide = kVector<T>, kInRow = kDim / kWide;
#pragma unroll 4
    for (int c = threadIdx.x; c < kTile * kInRow; c += kThreads) {
      const int r = c / kInRow, at = c % kInRow * kWide;
      float x[kWide] = {};
      if (r < n && at < d) load_vector(row(r) + at, x);
#pragma unroll
      for (int i = 0; i < kWide; i += 4) {
        const float4 four = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
        *reinterpret_cast<float4*>(to + r * kPitch<kDim> + at + i) = four;
      }
    }
  } else {
#pragma unroll 2
    for (int c = threadIdx.x; c < kTile * kDim; c += kThreads) {
      const int r = c / kDim, at = c % kDim;
      to[r * kPitch<kDim> + at] = r < n && at < d ? load_one(row(r) + at) : 0.0f;
    }
  }
}

// s[i][j] = row i of x times row 16 j of y.
template <int kDim, int kCount>
__device__ __forceinline__ void dots(const float* x, const float* y, int d, float (&s)[kOwn][kCount]) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kCount; ++j) s[i][j] = 0;
#pragma unroll 2
  for (int c = 0; c < d; c += 4) {
    float4 b[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) b[j] = *reinterpret_cast<const float4*>(y + j * kLanes * kPitch<kDim> + c);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float4 a = *reinterpret_cast<const float4*>(x + i * kPitch<kDim> + c);
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        s[i][j] = fmaf(a.w, b[j].w, fmaf(a.z, b[j].z, fmaf(a.y, b[j].y, fmaf(a.x, b[j].x, s[i][j]))));
    }
  }
}

// sum[i] += w[i][0] y[0] + ... + w[i][n - 1] y[n - 1] for the thread's columns of y; with kMasked row i has limit[i]
// terms. w has rows of `pitch` floats. n is rounded up to a multiple of 4.
template <int kDim, bool kMasked>
__device__ __forceinline__ void add_weighted(const float* w, int pitch, const float* y, int n, const int (&limit)[kOwn],
                                             float (&sum)[kOwn][kDim / kLanes]) {
#pragma unroll 1
  for (int j = 0; j < n; j += 4) {
    float4 f[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) f[i] = *reinterpret_cast<const float4*>(w + i * pitch + j);
#pragma unroll
    for (int jj = 0; jj < 4; ++jj)
#pragma unroll
      for (int c = 0; c < kDim / kLanes; c += 4) {
        const float4 v = *reinterpret_cast<const float4*>(y + (j + jj) * kPitch<kDim> + c * kLanes);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          if (kMasked && j + jj >= limit[i]) continue;
          const float p = jj == 0 ? f[i].x : jj == 1 ? f[i].y : jj == 2 ? f[i].z : f[i].w;
          sum[i][c] = fmaf(p, v.x, sum[i][c]), sum[i][c + 1] = fmaf(p, v.y, sum[i][c + 1]);
          sum[i][c + 2] = fmaf(p, v.z, sum[i][c + 2]), sum[i][c + 3] = fmaf(p, v.w, sum[i][c + 3]);
        }
      }
  }
}

// The thread's columns of one row.
template <class T, int kDim>
__device__ __forceinline__ void store_row(T* to, int d, const float (&x)[kDim / kLanes], float factor) {
  const int first = threadIdx.x % kLanes * 4;
#pragma unroll
  for (int c = 0; c < kDim / kLanes; ++c) {
    const int at = first + c / 4 * 4 * kLanes + c % 4;
    if (at < d) store_one(to + at, x[c] * factor);
  }
}

__device__ __forceinline__ float row_max(float x) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, w));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) x += __shfl_xor_sync(kAll, x, w);
  return x;
}

// ---- forward

template <class T>
struct Forward {
  Heads<const T> q, k, v;
  Heads<T> out;
  float* lse;
  Dims lse_stride;
  Problem p;
  Order order;
  float scale;
  bool vector;
};

template <class T, int kDim>
__global__ void __launch_bounds__(kForwardTile<kDim>* kLanes / kOwn, kForwardTile<kDim> == 64 ? 2 : 3)
    forward_kernel(const Forward<T> a) {
  constexpr int kTile = kForwardTile<kDim>, kCount = kTile / kLanes, kRow = kPitch<kDim>, kScores = kTile + 4;
  extern __shared__ float4 shared[];
  float* const sq = reinterpret_cast<float*>(shared);
  float* const sk = sq + kTile * kRow;  // keys, then their values
  const int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes * kOwn, of_warp = threadIdx.x / kWarp * 2 * kOwn;
  float* const score = sk + kTile * kRow + own * kScores;
  const Problem p = a.p.now();
  for (int64_t work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int64_t index;
    int rank;
    a.order.at(work, index, rank);
    const KeyHead h = p.key_head(index);
    const int first = (static_cast<int>(a.order.tiles) - 1 - rank) * kTile, row = first + own;
    const int keys = p.seen(first + kTile - 1);
    // Keys that some row of the warp sees: its threads go on or wait together.
    const int busy = first + of_warp < p.rows ? p.seen(first + of_warp + 2 * kOwn - 1) : 0;
    int seen[kOwn];
    float sums[kOwn][kDim / kLanes] = {}, top[kOwn], total[kOwn] = {};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) seen[i] = p.seen(row + i), top[i] = -INFINITY;
    __syncthreads();
    load_rows<T, kTile, kDim>(sq, p.rows - first, p.d, a.vector, [&](int r) { return p.row(a.q, h, first + r); });
#pragma unroll 1
    for (int key = 0; key < keys; key += kTile) {
      __syncthreads();
      load_rows<T, kTile, kDim>(sk, p.tk - key, p.d, a.vector, [&](int r) { return a.k.at(h.batch, key + r, h.head); });
      __syncthreads();
      if (key < busy) {
        float s[kOwn][kCount];
        dots<kDim>(sq + own * kRow, sk + lane * kRow, p.d, s);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          float most = -INFINITY;
#pragma unroll
          for (int j = 0; j < kCount; ++j) {
            s[i][j] = key + lane + j * kLanes < seen[i] ? __fmul_rn(s[i][j], a.scale) : -INFINITY;
            most = fmaxf(most, s[i][j]);
          }
          most = fmaxf(top[i], row_max(most));
          const float base = most == -INFINITY ? 0.0f : most, factor = expf(top[i] - base);
          float more = 0;
#pragma unroll
          for (int j = 0; j < kCount; ++j) {
            s[i][j] = expf(s[i][j] - base);
            more += s[i][j];
            score[i * kScores + lane + j * kLanes] = s[i][j];
          }
          top[i] = most, total[i] = fmaf(total[i], factor, more);
#pragma unroll
          for (int c = 0; c < kDim / kLanes; ++c) sums[i][c] *= factor;
        }
      }
      __syncthreads();
      load_rows<T, kTile, kDim>(sk, p.tk - key, p.d, a.vector, [&](int r) { return a.v.at(h.batch, key + r, h.head); });
      __syncthreads();
      if (key < busy) {
        int limit[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) limit[i] = seen[i] - key;
        if (limit[0] >= kTile)
          add_weighted<kDim, false>(score, kScores, sk + lane * 4, kTile, limit, sums);
        else
          add_weighted<kDim, true>(score, kScores, sk + lane * 4, limit[kOwn - 1] < kTile ? limit[kOwn - 1] : kTile,
                                   limit, sums);
      }
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float sum = row_sum(total[i]);
      if (row + i >= p.rows) continue;
      store_row<T, kDim>(p.row(a.out, h, row + i), p.d, sums[i], seen[i] > 0 ? 1.0f / sum : 0.0f);
      if (lane == 0) a.lse[p.lse_at(a.lse_stride, h, row + i)] = seen[i] > 0 ? top[i] + logf(sum) : -INFINITY;
    }
  }
}

// ---- backward

template <class T>
struct Backward {
  Heads<const T> grad, q, k, v, out;
  Heads<T> dq, dk, dv;
  const float* lse;
  Dims lse_stride;
  float* delta;  // of (key head, row)
  Problem p;
  Order order;
  float scale;
  bool vector;
};

// delta by the same chain as the products of grad and v: a row with a single key then has dS = 0 exactly.
template <class T>
__global__ void delta_kernel(const Backward<T> a) {
  const int64_t all = a.p.heads * a.p.rows, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all; i += step) {
    const int64_t index = i / a.p.rows;
    const KeyHead h = a.p.key_head(index);
    const int r = static_cast<int>(i - index * a.p.rows);
    const T* const grad = a.p.row(a.grad, h, r);
    const T* const out = a.p.row(a.out, h, r);
    float sum = 0;
    if (a.vector) {
      constexpr int kWide = kVector<T>;
#pragma unroll 4
      for (int c = 0; c < a.p.d; c += kWide) {
        float x[kWide], y[kWide];
        load_vector(grad + c, x), load_vector(out + c, y);
#pragma unroll
        for (int j = 0; j < kWide; ++j) sum = fmaf(x[j], y[j], sum);
      }
    } else {
      for (int c = 0; c < a.p.d; ++c) sum = fmaf(load_one(grad + c), load_one(out + c), sum);
    }
    a.delta[i] = sum;
  }
}

// What a row's P and dS need; zero and harmless for a row that is none.
template <class T>
__device__ __forceinline__ float2 row_stat(const Backward<T>& a, const KeyHead& h, int row) {
  if (row >= a.p.rows) return make_float2(0, 0);
  return make_float2(a.lse[a.p.lse_at(a.lse_stride, h, row)], a.delta[h.index * a.p.rows + row]);
}

template <class T, int kDim, bool kKeys>
__global__ void __launch_bounds__(kBackwardTile<kDim>* kLanes / kOwn, kBackwardTile<kDim> == 64 ? 2 : 3)
    backward_kernel(const Backward<T> a) {
  constexpr int kTile = kBackwardTile<kDim>, kCount = kTile / kLanes, kRow = kPitch<kDim>, kScores = kTile + 4;
  extern __shared__ float4 shared[];
  float* const x1 = reinterpret_cast<float*>(shared);
  float *const x2 = x1 + kTile * kRow, *const y1 = x2 + kTile * kRow, *const y2 = y1 + kTile * kRow;
  const int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes * kOwn;
  float* const score = y2 + kTile * kRow + own * kScores;
  float2* const stats = reinterpret_cast<float2*>(y2 + kTile * (kRow + kScores));
  const Problem& p = a.p;
  const int unused[kOwn] = {};
  for (int64_t work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int64_t index;
    int rank;
    a.order.at(work, index, rank);
    const KeyHead h = p.key_head(index);
    // The first keys are seen by the most rows, the last rows see the most keys.
    const int first = (kKeys ? rank : static_cast<int>(a.order.tiles) - 1 - rank) * kTile, mine = first + own;
    const int all = kKeys ? p.tk : p.rows;
    const auto load_queries = [&](float* q, float* grad, int row) {
      load_rows<T, kTile, kDim>(q, p.rows - row, p.d, a.vector, [&](int r) { return p.row(a.q, h, row + r); });
      load_rows<T, kTile, kDim>(grad, p.rows - row, p.d, a.vector, [&](int r) { return p.row(a.grad, h, row + r); });
    };
    const auto load_keys = [&](float* k, float* v, int key) {
      load_rows<T, kTile, kDim>(k, p.tk - key, p.d, a.vector, [&](int r) { return a.k.at(h.batch, key + r, h.head); });
      load_rows<T, kTile, kDim>(v, p.tk - key, p.d, a.vector, [&](int r) { return a.v.at(h.batch, key + r, h.head); });
    };
    __syncthreads();
    if constexpr (kKeys)
      load_keys(x1, x2, first);
    else
      load_queries(x1, x2, first);
    int limit[kOwn];  // keys that the own rows see, or the first rows that see the own keys
    float2 own_stat[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      limit[i] = kKeys ? p.first_row(mine + i) : p.seen(mine + i);
      if (!kKeys) own_stat[i] = row_stat(a, h, mine + i);
    }
    float sum1[kOwn][kDim / kLanes] = {}, sum2[kOwn][kKeys ? kDim / kLanes : 1] = {};
    const int begin = kKeys ? p.first_row(first) / kTile * kTile : 0, end = kKeys ? p.rows : p.seen(first + kTile - 1);
#pragma unroll 1
    for (int other = begin; other < end; other += kTile) {
      __syncthreads();
      if constexpr (kKeys) {
        load_queries(y1, y2, other);
        if (threadIdx.x < kTile) stats[threadIdx.x] = row_stat(a, h, other + static_cast<int>(threadIdx.x));
      } else {
        load_keys(y1, y2, other);
      }
      __syncthreads();
      float s[kOwn][kCount], ds[kOwn][kCount];
      dots<kDim>(x1 + own * kRow, y1 + lane * kRow, p.d, s);
      dots<kDim>(x2 + own * kRow, y2 + lane * kRow, p.d, ds);
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const int at = other + lane + j * kLanes;
          const bool visible = kKeys ? at >= limit[i] && at < p.rows : at < limit[i];
          const float2 stat = kKeys ? stats[lane + j * kLanes] : own_stat[i];
          const float w = visible ? expf(__fmul_rn(s[i][j], a.scale) - stat.x) : 0.0f;
          s[i][j] = w, ds[i][j] = visible ? w * (ds[i][j] - stat.y) * a.scale : 0.0f;
        }
      if constexpr (kKeys) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
#pragma unroll
          for (int j = 0; j < kCount; ++j) score[i * kScores + lane + j * kLanes] = s[i][j];
        __syncwarp();
        add_weighted<kDim, false>(score, kScores, y2 + lane * 4, kTile, unused, sum2);
        __syncwarp();
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kCount; ++j) score[i * kScores + lane + j * kLanes] = ds[i][j];
      __syncwarp();
      add_weighted<kDim, false>(score, kScores, y1 + lane * 4, kTile, unused, sum1);
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (mine + i >= all) continue;
      if constexpr (kKeys) {
        store_row<T, kDim>(a.dk.at(h.batch, mine + i, h.head), p.d, sum1[i], 1.0f);
        store_row<T, kDim>(a.dv.at(h.batch, mine + i, h.head), p.d, sum2[i], 1.0f);
      } else {
        store_row<T, kDim>(p.row(a.dq, h, mine + i), p.d, sum1[i], 1.0f);
      }
    }
  }
}

// ---- launches

// f(Dim of the padded head size). Small bf16 heads that come here are rare: they share the kernels of larger ones.
template <class T, class F>
void with_dim(int64_t d, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (d <= 64) return f(Dim<64>{});
  }
  if (d <= 128) return f(Dim<128>{});
  static_assert(kMaxHeadDim == 256);
  f(Dim<256>{});
}

template <class T>
bool in_vectors(std::initializer_list<const View*> views) {
  return (*views.begin())->size[3] % kVector<T> == 0 && rows_aligned<T>(views);
}

template <class T>
void forward(const AttentionArgs& a) {
  with_dim<T>(a.q.size[3], [&](auto dim) {
    constexpr int kDim = decltype(dim)::value, kTile = kForwardTile<kDim>;
    constexpr int kBytes = 4 * kTile * (2 * kPitch<kDim> + kTile + 4);
    const Problem p(a);
    const Order order(p.heads, parts(p.rows, kTile), 2 * a.k.size[1] * a.k.size[3] * item_size(a.k.dtype));
    const Forward<T> args{Heads<const T>(a.q),
                          Heads<const T>(a.k),
                          Heads<const T>(a.v),
                          Heads<T>(a.out),
                          a.lse.ptr<float>(),
                          a.lse.stride,
                          p,
                          order,
                          static_cast<float>(a.scale),
                          in_vectors<T>({&a.q, &a.k, &a.v})};
    launch_shared("attention", forward_kernel<T, kDim>, order.blocks(), kTile * kLanes / kOwn, kBytes, a.device(),
                  args);
  });
}

template <class T>
void backward(const AttentionBackwardArgs& a) {
  with_dim<T>(a.q.size[3], [&](auto dim) {
    constexpr int kDim = decltype(dim)::value, kTile = kBackwardTile<kDim>, kThreads = kTile * kLanes / kOwn;
    constexpr int kBytes = 4 * kTile * (4 * kPitch<kDim> + kTile + 4 + 2);
    const Problem p(a);
    const int64_t bytes = 2 * a.q.size[3] * item_size(a.q.dtype);
    const Order by_rows(p.heads, parts(p.rows, kTile), bytes * p.tk),
        by_keys(p.heads, parts(p.tk, kTile), bytes * p.rows);
    Backward<T> args{Heads<const T>(a.grad),
                     Heads<const T>(a.q),
                     Heads<const T>(a.k),
                     Heads<const T>(a.v),
                     Heads<const T>(a.out),
                     Heads<T>(a.dq),
                     Heads<T>(a.dk),
                     Heads<T>(a.dv),
                     a.lse.ptr<float>(),
                     a.lse.stride,
                     a.scratch.ptr<float>(),
                     p,
                     by_rows,
                     static_cast<float>(a.scale),
                     in_vectors<T>({&a.grad, &a.q, &a.k, &a.v, &a.out})};
    if (by_rows.count() > 0) {
      delta_kernel<T><<<blocks_for(p.heads * p.rows, 256), 256, 0, stream_of(a.device())>>>(args);
      check_launch("attention_backward");
      launch_shared("attention_backward", backward_kernel<T, kDim, false>, by_rows.blocks(), kThreads, kBytes,
                    a.device(), args);
    }
    args.order = by_keys;
    if (by_keys.count() > 0)
      launch_shared("attention_backward", backward_kernel<T, kDim, true>, by_keys.blocks(), kThreads, kBytes,
                    a.device(), args);
  });
}

// TALLY_CUDA_ATTENTION=mma: no kernel of its own for cards of 9.0, so that the one for every card can be measured
// there.
bool uses_sm90() {
  static const bool answer = [] {
    const char* const path = std::getenv("TALLY_CUDA_ATTENTION");
    if (path == nullptr || *path == 0) return true;
    if (std::strcmp(path, "mma") != 0) check_cuda("TALLY_CUDA_ATTENTION takes mma or nothing", cudaErrorInvalidValue);
    return false;
  }();
  return answer;
}

}  // namespace

void attention(const AttentionArgs& a) {
  const bool cached = a.position.rank() > 0;  // only for paths whose launches do not depend on the number of keys
  if (a.lse.numel() == 0 || (!cached && uses_sm90() && attention_sm90(a)) || attention_decode(a) ||
      (!cached && attention_mma(a)))
    return;
  with_float(a.name, a.q.dtype, [&](auto t) { forward<decltype(t)>(a); });
}

void attention_backward(const AttentionBackwardArgs& a) {
  if (a.dq.numel() + a.dk.numel() == 0 || (uses_sm90() && attention_backward_sm90(a)) || attention_backward_mma(a))
    return;
  with_float(a.name, a.q.dtype, [&](auto t) { backward<decltype(t)>(a); });
}

}  // namespace tally::cuda
