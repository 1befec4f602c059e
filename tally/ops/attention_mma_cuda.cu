// Attention in bf16 on the tensor cores of any card from 8.0 on (mma.sync m16n8k16, f32 sums), for head sizes 32, 64,
// 96 and 128 and rows aligned to 16 bytes; after FlashAttention-2 (Dao 2023). A warp owns 16 rows (or 2 x 16) of a
// product. An f32 accumulator has the lanes of a bf16 A operand, so P and dS go from one product into the next in
// registers. Rows in shared memory are 16 bytes longer than D: ldmatrix then meets every bank once. The next tile is
// copied (cp.async) while one is computed.
// Forward: keys in tiles of 64 from position 0, exponents in base 2. A tile that a row does not see leaves it as it is,
// so a row's bits depend on its query and its keys only. A hidden value in a tile that the row sees in part is
// multiplied by zero.
// Backward: as in attention_cuda.cu, one kernel for both passes. X1, X2 (q, grad, or k, v) stay in registers, Y1, Y2
// pass by: S = X1 Y1^T, dP = X2 Y2^T, sum1 += dS Y1 and, for keys, sum2 += P Y2. For keys S is the transposed one.
#include "tally/ops/attention_mma.cuh"

namespace tally::cuda {

namespace {

// ---- forward

struct Forward {
  Heads<const bf16> q, k, v;
  Heads<bf16> out;
  float* lse;
  Dims lse_stride;
  Problem p;
  Order order;
  float scale;  // times log2(e)
};

// The 16 kCount rows of a warp.
template <int D, int kCount>
struct Rows {
  float sum[kCount][D / 8][4] = {};
  float top[kCount][2], total[kCount][2] = {};
};

// Scores of a tile of keys from `key` on -> exponents; rescales what was summed before.
template <int D, int kCount>
__device__ __forceinline__ void softmax_tile(Rows<D, kCount>& t, float (&s)[kCount][kTile / 8][4], const Forward& a,
                                             int key, int row, bool masked) {
#pragma unroll
  for (int m = 0; m < kCount; ++m) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[m][n][e] *= a.scale;
    if (masked) {
      const int column = key + threadIdx.x % 4 * 2;
      const int limit[2] = {a.p.seen(row + 16 * m) - column, a.p.seen(row + 16 * m + 8) - column};
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (n * 8 + e % 2 >= limit[e / 2]) s[m][n][e] = -INFINITY;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most[2] = {-INFINITY, -INFINITY};  // two chains
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) most[e] = fmaxf(most[e], s[m][n][2 * half + e]);
      float top = fmaxf(most[0], most[1]);
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
      top = fmaxf(top, t.top[m][half]);
      const float base = top == -INFINITY ? 0.0f : top;  // nothing seen yet
      const float factor = exp2_of(t.top[m][half] - base);
      float more[2] = {};
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[m][n][2 * half + e];
          x = exp2_of(x - base);
          more[e] += x;
        }
      t.top[m][half] = top;
      t.total[m][half] = fmaf(t.total[m][half], factor, more[0] + more[1]);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) t.sum[m][n][2 * half] *= factor, t.sum[m][n][2 * half + 1] *= factor;
    }
  }
}

// q, k, v: the lane's addresses of the warp's rows and of the tile.
template <int D, int kCount>
__device__ __forceinline__ void attend(Rows<D, kCount>& t, uint32_t q, uint32_t k, uint32_t v, const Forward& a,
                                       int key, int row, bool masked) {
  float s[kCount][kTile / 8][4] = {};
#pragma unroll
  for (int c = 0; c < D; c += 16) {
    uint32_t x[kCount][4];
#pragma unroll
    for (int m = 0; m < kCount; ++m) load_matrix(x[m], q + 2 * (m * 16 * kRow<D> + c));
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      uint32_t y[4];
      load_matrix(y, k + 2 * (n * 16 * kRow<D> + c));
#pragma unroll
      for (int m = 0; m < kCount; ++m) mma(s[m][2 * n], x[m], y[0], y[1]), mma(s[m][2 * n + 1], x[m], y[2], y[3]);
    }
  }
  softmax_tile<D, kCount>(t, s, a, key, row, masked);
#pragma unroll
  for (int n = 0; n < kTile / 16; ++n) {
    uint32_t p[kCount][4];
#pragma unroll
    for (int m = 0; m < kCount; ++m) pack_operand(p[m], s[m][2 * n], s[m][2 * n + 1]);
#pragma unroll
    for (int c = 0; c < D / 16; ++c) {
      uint32_t y[4];
      load_transposed(y, v + 2 * (n * 16 * kRow<D> + c * 16));
#pragma unroll
      for (int m = 0; m < kCount; ++m)
        mma(t.sum[m][2 * c], p[m], y[0], y[1]), mma(t.sum[m][2 * c + 1], p[m], y[2], y[3]);
    }
  }
}

template <int D, int kCount>
__device__ __forceinline__ void finish_rows(const Forward& a, const KeyHead& h, const Rows<D, kCount>& t, int row) {
  const Problem& p = a.p;
#pragma unroll
  for (int m = 0; m < kCount; ++m) {
    bf16* to[2];
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + m * 16 + half * 8;
      const bool any = p.seen(r) > 0;
      float sum = t.total[m][half];
      sum += __shfl_xor_sync(kAll, sum, 1);
      sum += __shfl_xor_sync(kAll, sum, 2);
      factor[half] = any ? 1.0f / sum : 0.0f;
      to[half] = r < p.rows ? p.row(a.out, h, r) : nullptr;
      if (to[half] && threadIdx.x % 4 == 0)
        a.lse[p.lse_at(a.lse_stride, h, r)] = any ? (t.top[m][half] + log2f(sum)) * kLn2 : -INFINITY;
    }
    store_rows<D>(
        to, [&](int n, int e) { return t.sum[m][n][e]; }, factor);
  }
}

template <int kCount>
constexpr int kForwardRows = kThreads / kWarp * 16 * kCount;
template <int D, int kCount>
constexpr int kForwardBytes = 2 * (kForwardRows<kCount> + 4 * kTile) * kRow<D>;

template <int D, int kCount>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(const Forward a) {
  constexpr int kRows = kForwardRows<kCount>;
  extern __shared__ uint4 shared[];
  bf16* const sq = reinterpret_cast<bf16*>(shared);
  bf16* const sk = sq + kRows * kRow<D>;  // two stages of keys and values
  const int in_block = threadIdx.x / kWarp * 16 * kCount;
  const Problem& p = a.p;
  for (int64_t work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int64_t index;
    int rank;
    a.order.at(work, index, rank);
    const KeyHead h = p.key_head(index);
    const int first = (static_cast<int>(a.order.tiles) - 1 - rank) * kRows, mine = first + in_block;
    const int keys = p.seen(first + kRows - 1);
    // Keys that all rows of the warp see, and that some row sees.
    const int common = p.seen(mine);
    const int busy = mine < p.rows ? p.seen(mine + 16 * kCount - 1) : 0;
    const int row = mine + threadIdx.x % kWarp / 4;
    Rows<D, kCount> t;
#pragma unroll
    for (int i = 0; i < 2 * kCount; ++i) t.top[i / 2][i % 2] = -INFINITY;
    const auto copy_keys = [&](int j) {
      bf16* const to = sk + j % 2 * 2 * kTile * kRow<D>;
      const int key = j * kTile;
      copy_tile<D, kTile>(to, p.tk - key, [&](int r) { return a.k.at(h.batch, key + r, h.head); });
      copy_tile<D, kTile>(to + kTile * kRow<D>, p.tk - key, [&](int r) { return a.v.at(h.batch, key + r, h.head); });
    };
    __syncthreads();  // the previous work's tiles have been read
    if (keys > 0) {
      copy_tile<D, kRows>(sq, p.rows - first, [&](int r) { return p.row(a.q, h, first + r); });
      copy_keys(0);
    }
    commit();
    const uint32_t q_at = address(sq + in_block * kRow<D>) + row_offset<D>(), k_at = address(sk);
#pragma unroll 1
    for (int j = 0; j * kTile < keys; ++j) {
      wait<0>();
      __syncthreads();  // the tile is here, and the one before has been read
      if ((j + 1) * kTile < keys) copy_keys(j + 1);
      commit();
      const uint32_t k = k_at + j % 2 * 4 * kTile * kRow<D>, v = k + 2 * kTile * kRow<D>;
      if (j * kTile < busy)
        attend<D, kCount>(t, q_at, k + column_offset<D>(), v + row_offset<D>(), a, j * kTile, row,
                          (j + 1) * kTile > common);
    }
    if (mine < p.rows) finish_rows<D, kCount>(a, h, t, row);
  }
}

// ---- backward

struct Backward {
  Heads<const bf16> grad, q, k, v, out;
  Heads<bf16> dq, dk, dv;
  const float* lse;
  Dims lse_stride;
  float2* stats;  // of (key head, row): lse in base 2, delta
  Problem p;
  Order order;
  float scale;
};

// Four lanes a row.
template <int D>
__global__ void __launch_bounds__(256) stats_kernel(const Backward a) {
  const int64_t all = a.p.heads * a.p.rows, step = int64_t{gridDim.x} * blockDim.x / 4;
  const int lane = threadIdx.x % 4;
  // Whole warps go round together, because they shuffle.
  for (int64_t base = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp * 8; base < all; base += step) {
    const int64_t i = base + threadIdx.x % kWarp / 4, index = (i < all ? i : all - 1) / a.p.rows;
    const int r = static_cast<int>((i < all ? i : all - 1) - index * a.p.rows);
    const KeyHead h = a.p.key_head(index);
    const bf16* const grad = a.p.row(a.grad, h, r) + lane * 8;
    const bf16* const out = a.p.row(a.out, h, r) + lane * 8;
    float x[D / 32][8], y[D / 32][8], sum = 0;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) load_vector(grad + c * 32, x[c]), load_vector(out + c * 32, y[c]);
#pragma unroll
    for (int c = 0; c < D / 32; ++c)
#pragma unroll
      for (int e = 0; e < 8; ++e) sum = fmaf(x[c][e], y[c][e], sum);
    sum += __shfl_xor_sync(kAll, sum, 1);
    sum += __shfl_xor_sync(kAll, sum, 2);
    if (lane == 0 && i < all) a.stats[i] = make_float2(a.lse[a.p.lse_at(a.lse_stride, h, r)] * kLog2e, sum);
  }
}

// X2 of keys stays in shared memory where registers would not do.
template <int D, bool kKeys>
constexpr bool kReload = D > 64 && kKeys;

// A tile of 64 query rows (dq) or of 64 keys (dk, dv) in a block, 16 of them a warp.
template <int D, bool kKeys>
struct Tile {
  uint32_t x1[D / 16][4], x2[kReload<D, kKeys> ? 1 : D / 16][4];
  float sum1[D / 8][4] = {}, sum2[kKeys ? D / 8 : 1][4] = {};
  int limit[2];    // keys that a row sees; the first row that sees a key
  float2 stat[2];  // of the rows, unless they are keys
};

// The 64 rows or keys that pass by, from `other` on. y1, y2: addresses of their tiles.
template <int D, bool kKeys>
__device__ __forceinline__ void backward_step(Tile<D, kKeys>& t, uint32_t x2, uint32_t y1, uint32_t y2,
                                              const float2* stats, float scale, int other, int rows, bool masked) {
  const int column = threadIdx.x % 4 * 2;
  const uint32_t straight = column_offset<D>(), across = row_offset<D>();
#pragma unroll(D <= 64 ? 2 : 1)
  for (int n = 0; n < kTile; n += 16) {
    float s[2][4] = {}, ds[2][4] = {};
#pragma unroll
    for (int c = 0; c < D / 16; ++c) {
      uint32_t b1[4], b2[4];
      load_matrix(b1, y1 + straight + 2 * (n * kRow<D> + c * 16));
      if constexpr (kReload<D, kKeys>) load_matrix(t.x2[0], x2 + 32 * c);
      load_matrix(b2, y2 + straight + 2 * (n * kRow<D> + c * 16));
      mma(s[0], t.x1[c], b1[0], b1[1]), mma(s[1], t.x1[c], b1[2], b1[3]);
      const auto& a2 = t.x2[kReload<D, kKeys> ? 0 : c];
      mma(ds[0], a2, b2[0], b2[1]), mma(ds[1], a2, b2[2], b2[3]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float4 pair;  // the statistics of two rows that are columns here
      if constexpr (kKeys) pair = *reinterpret_cast<const float4*>(stats + n + i * 8 + column);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = other + n + i * 8 + column + e % 2;
        const float lse = kKeys ? (e % 2 ? pair.z : pair.x) : t.stat[e / 2].x;
        const float delta = kKeys ? (e % 2 ? pair.w : pair.y) : t.stat[e / 2].y;
        const bool visible = !masked || (kKeys ? at >= t.limit[e / 2] && at < rows : at < t.limit[e / 2]);
        const float w = exp2_of(fmaf(s[i][e], scale, -lse));
        s[i][e] = visible ? w : 0.0f;
        ds[i][e] = visible ? w * (ds[i][e] - delta) : 0.0f;
      }
    }
    uint32_t w[4], dw[4];
    if constexpr (kKeys) pack_operand(w, s[0], s[1]);
    pack_operand(dw, ds[0], ds[1]);
#pragma unroll
    for (int c = 0; c < D / 16; ++c) {
      uint32_t b[4];
      if constexpr (kKeys) {
        load_transposed(b, y2 + across + 2 * (n * kRow<D> + c * 16));
        mma(t.sum2[2 * c], w, b[0], b[1]), mma(t.sum2[2 * c + 1], w, b[2], b[3]);
      }
      load_transposed(b, y1 + across + 2 * (n * kRow<D> + c * 16));
      mma(t.sum1[2 * c], dw, b[0], b[1]), mma(t.sum1[2 * c + 1], dw, b[2], b[3]);
    }
  }
}

template <int D, bool kKeys>
__global__ void __launch_bounds__(kThreads, 2) backward_kernel(const Backward a) {
  constexpr int kStage = 2 * kTile * kRow<D>;  // numbers: Y1 and Y2
  extern __shared__ uint4 shared[];
  bf16* const sy = reinterpret_cast<bf16*>(shared);
  bf16* const sx2 = sy + (kReload<D, kKeys> ? 2 * kStage : kTile * kRow<D>);
  float2* const stats = reinterpret_cast<float2*>(sy + 2 * kStage + (kReload<D, kKeys> ? kTile * kRow<D> : 0));
  const int in_block = threadIdx.x / kWarp * 16;
  const Problem& p = a.p;
  for (int64_t work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int64_t index;
    int rank;
    a.order.at(work, index, rank);
    const KeyHead h = p.key_head(index);
    const int first = (kKeys ? rank : static_cast<int>(a.order.tiles) - 1 - rank) * kTile, mine = first + in_block;
    const int last = (kKeys ? p.tk : p.rows) - 1;
    const auto copy_queries = [&](bf16* q, bf16* grad, int row) {
      copy_tile<D, kTile>(q, p.rows - row, [&](int r) { return p.row(a.q, h, row + r); });
      copy_tile<D, kTile>(grad, p.rows - row, [&](int r) { return p.row(a.grad, h, row + r); });
    };
    const auto copy_keys = [&](bf16* k, bf16* v, int key) {
      copy_tile<D, kTile>(k, p.tk - key, [&](int r) { return a.k.at(h.batch, key + r, h.head); });
      copy_tile<D, kTile>(v, p.tk - key, [&](int r) { return a.v.at(h.batch, key + r, h.head); });
    };
    // What passes by: [begin, end) in tiles that start at multiples of kTile. Tile begin + i lies in stage (i + 1) % 2,
    // so that the own rows are read from stage 0 while the first arrives.
    const int others = kKeys ? p.rows : p.seen(first + kTile - 1);
    const int begin = kKeys ? p.first_row(first) / kTile : 0, end = (others + kTile - 1) / kTile;
    const auto copy_other = [&](int j) {
      const int stage = (j - begin + 1) % 2;
      bf16 *const y1 = sy + stage * kStage, *const y2 = y1 + kTile * kRow<D>;
      if constexpr (kKeys) {
        copy_queries(y1, y2, j * kTile);
        const int row = j * kTile + static_cast<int>(threadIdx.x);
        if (threadIdx.x < kTile)
          copy8(stats + stage * kTile + threadIdx.x, a.stats + index * p.rows + (row < p.rows ? row : 0), row < p.rows);
      } else {
        copy_keys(y1, y2, j * kTile);
      }
    };
    __syncthreads();  // the previous work's tiles have been read
    if constexpr (kKeys)
      copy_keys(sy, sx2, first);
    else
      copy_queries(sy, sx2, first);
    commit();
    if (begin < end) copy_other(begin);
    commit();
    wait<1>();
    __syncthreads();
    Tile<D, kKeys> t;
    const uint32_t y_at = address(sy), in_tile = 2 * in_block * kRow<D> + row_offset<D>(),
                   x2_at = address(sx2) + in_tile;
#pragma unroll
    for (int c = 0; c < D / 16; ++c) {
      load_matrix(t.x1[c], y_at + in_tile + 32 * c);
      if constexpr (!kReload<D, kKeys>) load_matrix(t.x2[c], x2_at + 32 * c);
    }
    const int row = mine + threadIdx.x % kWarp / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      t.limit[half] = kKeys ? p.first_row(r) : p.seen(r);
      if constexpr (!kKeys) t.stat[half] = r <= last ? a.stats[index * p.rows + r] : make_float2(0, 0);
    }
    // Where all of the warp sees, or is seen by, what passes by, and where nothing of it.
    const int whole = kKeys ? p.first_row(mine + 15) : p.seen(mine),
              some = kKeys ? p.first_row(mine) : p.seen(mine + 15);
#pragma unroll 1
    for (int j = begin; j < end; ++j) {
      wait<0>();
      __syncthreads();  // the tile is here, and the one before has been read
      if (j + 1 < end) copy_other(j + 1);
      commit();
      const int stage = (j - begin + 1) % 2, other = j * kTile;
      const bool idle = mine > last || (kKeys ? other + kTile <= some : other >= some);
      const bool masked = kKeys ? other < whole || other + kTile > p.rows : other + kTile > whole;
      const uint32_t y1 = y_at + 2 * stage * kStage;
      if (!idle)
        backward_step<D, kKeys>(t, x2_at, y1, y1 + 2 * kTile * kRow<D>, stats + stage * kTile, a.scale * kLog2e, other,
                                p.rows, masked);
    }
    if (mine > last) continue;
    bf16 *to1[2] = {}, *to2[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      if (r > last) continue;
      to1[half] = kKeys ? a.dk.at(h.batch, r, h.head) : p.row(a.dq, h, r);
      if constexpr (kKeys) to2[half] = a.dv.at(h.batch, r, h.head);
    }
    store_rows<D>(to1, [&](int n, int e) { return t.sum1[n][e]; }, {a.scale, a.scale});
    if constexpr (kKeys) store_rows<D>(to2, [&](int n, int e) { return t.sum2[n][e]; }, {1.0f, 1.0f});
  }
}

// ---- launches

template <int D, int kCount>
void forward(const AttentionArgs& a, const Problem& p) {
  constexpr int kRows = kForwardRows<kCount>;
  const Order order(p.heads, parts(p.rows, kRows), 4 * D * int64_t{p.tk});
  const Forward args{Heads<const bf16>(a.q),
                     Heads<const bf16>(a.k),
                     Heads<const bf16>(a.v),
                     Heads<bf16>(a.out),
                     a.lse.ptr<float>(),
                     a.lse.stride,
                     p,
                     order,
                     static_cast<float>(a.scale) * kLog2e};
  launch_shared("attention", forward_kernel<D, kCount>, order.blocks(), kThreads, kForwardBytes<D, kCount>, a.device(),
                args);
}

template <int D>
void backward(const AttentionBackwardArgs& a) {
  constexpr int kBytes = 8 * kTile * kRow<D>, kKeyBytes = kBytes + (kReload<D, true> ? 2 * kTile * kRow<D> : 0) +
                                                          2 * kTile * static_cast<int>(sizeof(float2));
  const Problem p(a);
  const Order by_rows(p.heads, parts(p.rows, kTile), 4 * D * int64_t{p.tk});
  const Order by_keys(p.heads, parts(p.tk, kTile), 4 * D * int64_t{p.rows});
  Backward args{Heads<const bf16>(a.grad),
                Heads<const bf16>(a.q),
                Heads<const bf16>(a.k),
                Heads<const bf16>(a.v),
                Heads<const bf16>(a.out),
                Heads<bf16>(a.dq),
                Heads<bf16>(a.dk),
                Heads<bf16>(a.dv),
                a.lse.ptr<float>(),
                a.lse.stride,
                a.scratch.ptr<float2>(),
                p,
                by_rows,
                static_cast<float>(a.scale)};
  if (by_rows.count() > 0) {
    stats_kernel<D><<<blocks_for(p.heads * p.rows, 64), 256, 0, stream_of(a.device())>>>(args);
    check_launch("attention_backward");
    launch_shared("attention_backward", backward_kernel<D, false>, by_rows.blocks(), kThreads, kBytes, a.device(),
                  args);
  }
  args.order = by_keys;
  if (by_keys.count() > 0)
    launch_shared("attention_backward", backward_kernel<D, true>, by_keys.blocks(), kThreads, kKeyBytes, a.device(),
                  args);
}

}  // namespace

bool attention_mma(const AttentionArgs& a) {
  if (!suits_mma({&a.q, &a.k, &a.v, &a.out})) return false;
  const Problem p(a);
  int most_bytes = 0;
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, a.device().index));
  with_mma_dim(a.q.size[3], [&](auto dim) {
    constexpr int D = decltype(dim)::value;
    // The larger tile reads a key half as often when there is work for every block; a row's bits are the same.
    if (p.heads * parts(p.rows, kForwardRows<2>) >= 2 * 132 && kForwardBytes<D, 2> <= most_bytes)
      forward<D, 2>(a, p);
    else
      forward<D, 1>(a, p);
  });
  return true;
}

bool attention_backward_mma(const AttentionBackwardArgs& a) {
  if (!suits_mma({&a.grad, &a.q, &a.k, &a.v, &a.out, &a.dq, &a.dk, &a.dv})) return false;
  with_mma_dim(a.q.size[3], [&](auto d) { backward<decltype(d)::value>(a); });
  return true;
}

}  // namespace tally::cuda
