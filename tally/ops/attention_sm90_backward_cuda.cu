// The backward of attention for Hopper (sm_90a); shapes as in attention_sm90_cuda.cu. Deterministic: every element is
// summed by one thread in a fixed order (integer atomics hand out tiles). Three launches, with P = exp(scale S - lse),
// dP = dO V^T, delta = sum of dO O over a row, dS = P (dP - delta):
//   stats: the lse in base 2 and delta, padded; rows past Tq have lse +inf, so P = 0 there and queries need no mask
//   keys:  a work tile is 128 keys, it walks the query heads of the group and their tiles: S^T = K Q^T, dP^T = V dO^T,
//          dV += P^T dO, dK += dS^T Q
//   rows:  a work tile is 128 queries, it walks the key tiles: S = Q K^T, dP = dO V^T, dQ += dS K
// With S transposed in `keys` its accumulator is the A operand of the next product: neither P nor dS goes through
// shared memory. Two passes are 7 products instead of 5, and need no order between blocks and no f32 sums of dQ.
// One thread issues TMA into a ring of stages, two warpgroups own 64 rows each. Registers: 168 a thread at the launch;
// the producer keeps 40 (24 for keys), consumers take 232 (240: dK, dV, S^T, dP^T and the packed P^T, dS^T fill them).
#include "tally/ops/attention_sm90.cuh"

namespace tally::cuda {

namespace {

struct Backward {
  Heads<const bf16> grad, out;
  Heads<bf16> dq, dk, dv;
  const float* lse;
  float2* stats;  // (B, H, padded): lse in base 2, delta
  Lengths n;
  int padded, section;  // section in key heads
  float scale;
};

[[maybe_unused]] __device__ int key_counter[2], row_counter[2];  // see next_tile

// ---- stats

template <int D>
__global__ void __launch_bounds__(256) stats_kernel(const Backward a) {
  constexpr int kLanes = D / 8, kRows = 256 / kLanes, kUnroll = 4;  // 16 bytes a lane, kUnroll rows in flight
  const int lane = threadIdx.x % kLanes, first = blockIdx.x * kRows * kUnroll + threadIdx.x / kLanes;
  float x[kUnroll][8] = {}, y[kUnroll][8] = {};
  int head[kUnroll], t[kUnroll];  // of all sequences
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int r = first + u * kRows, bt = r / a.n.heads, h = r - bt * a.n.heads, b = bt / a.padded;
    head[u] = b * a.n.heads + h, t[u] = b < a.n.batch ? bt - b * a.padded : a.padded;
    if (t[u] >= a.n.tq) continue;
    load_vector(a.out.at(b, t[u], h) + lane * 8, x[u]);
    load_vector(a.grad.at(b, t[u], h) + lane * 8, y[u]);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(x[u][i], y[u][i], sum);
#pragma unroll
    for (int w = kLanes / 2; w > 0; w /= 2) sum += __shfl_xor_sync(kAll, sum, w);
    if (lane != 0 || t[u] >= a.padded) continue;
    const float lse = t[u] < a.n.tq ? a.lse[int64_t{head[u]} * a.n.tq + t[u]] * kLog2e : INFINITY;
    a.stats[int64_t{head[u]} * a.padded + t[u]] = make_float2(lse, sum);
  }
}

// ---- keys

template <int D_, bool kCausal_>
struct KeyConfig {
  static constexpr int D = D_, kKeys = 128, kRows = D_ == 128 ? 64 : 96, kStages = 4;
  static constexpr bool kCausal = kCausal_;
  static constexpr int kKeyBytes = kKeys * D * 2, kRowBytes = kRows * D * 2, kStatBytes = kRows * 8;
  static constexpr int kShared = 2 * kKeyBytes + kStages * (2 * kRowBytes + kStatBytes) + 1024 + 128;
};

// The first tile of queries that sees keys from `key` on.
template <class C>
__device__ __forceinline__ int first_tile(int key, int past) {
  return C::kCausal ? max(key - past, 0) / C::kRows : 0;
}

template <class C>
__global__ void __launch_bounds__(384, 1)
    keys_kernel(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mgrad, const Backward a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int D = C::D, kRows = C::kRows, kStages = C::kStages;
  extern __shared__ char memory[];
  char* const sk = memory + ((1024 - (address(memory) & 1023)) & 1023);
  char *const sv = sk + C::kKeyBytes, *const sq = sv + C::kKeyBytes, *const sgrad = sq + kStages * C::kRowBytes;
  char* const sstats = sgrad + kStages * C::kRowBytes;
  uint64_t *const keys_full = reinterpret_cast<uint64_t*>(sstats + kStages * C::kStatBytes),
                  *const keys_empty = keys_full + 1, *const full = keys_full + 2, *const empty = full + kStages;
  volatile int* const slot = reinterpret_cast<int*>(empty + kStages);
  if (threadIdx.x == 0) {
    init_barrier(keys_full, 1);
    init_barrier(keys_empty, 256);  // every consumer thread: each has read the number of the work itself
    for (int i = 0; i < kStages; ++i) init_barrier(&full[i], 1), init_barrier(&empty[i], 8);
    fence_barriers();
  }
  __syncthreads();
  const int group = a.n.group, heads = a.n.batch * a.n.kv_heads;
  const int tiles = (a.n.tk + C::kKeys - 1) / C::kKeys, row_tiles = (a.n.tq + kRows - 1) / kRows;
  Ring<kStages> ring;
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      uint32_t keys_parity = 1;
      for (int work = blockIdx.x, next; work < tiles * heads; work = next) {
        next = next_tile(key_counter);
        int rank, head;  // the first keys, rank 0, are seen by the most queries
        tile_of(work, tiles, heads, a.section, rank, head);
        const int key = rank * C::kKeys, b = head / a.n.kv_heads, kv_head = head - b * a.n.kv_heads;
        const int first = first_tile<C>(key, a.n.past);
        wait_for(keys_empty, keys_parity);
        keys_parity ^= 1;
        *slot = work;  // published by the arrival below
        arrive_expecting(keys_full, 2 * C::kKeyBytes);
        load_tile(sk, &mk, keys_full, key, kv_head, b);
        load_tile(sv, &mv, keys_full, key, kv_head, b);
        for (int h = kv_head * group; h < (kv_head + 1) * group; ++h)
          for (int i = first; i < row_tiles; ++i) {
            uint64_t* const barrier = &full[ring.stage];
            wait_for(&empty[ring.stage], ring.parity ^ 1);
            arrive_expecting(barrier, 2 * C::kRowBytes + C::kStatBytes);
            load_tile(sq + ring.stage * C::kRowBytes, &mq, barrier, i * kRows, h, b);
            load_tile(sgrad + ring.stage * C::kRowBytes, &mgrad, barrier, i * kRows, h, b);
            load_bytes(sstats + ring.stage * C::kStatBytes,
                       a.stats + (int64_t{b} * a.n.heads + h) * a.padded + i * kRows, C::kStatBytes, barrier);
            ring.next();
          }
      }
      wait_for(keys_empty, keys_parity);
      *slot = -1;
      arrive(keys_full);
      tiles_done(key_counter);
    }
  } else {
    take_registers<240>();
    const int wg = threadIdx.x / 128 - 1, warp = threadIdx.x / kWarp & 3, lane = threadIdx.x % kWarp;
    const float scale2 = a.scale * kLog2e;
    const uint32_t base = address(sk), k = base + wg * 64 * 128;  // few addresses live: every register counts here
    float dk[D / 2], dv[D / 2], s[kRows / 2], dp[kRows / 2];
    uint32_t p[kRows / 4], ds[kRows / 4];
    for (uint32_t keys_parity = 0;; keys_parity ^= 1) {
      wait_for(keys_full, keys_parity);
      int work = *slot, rank, head;
      if (work < 0) break;
      tile_of(work, tiles, heads, a.section, rank, head);
      const int own = rank * C::kKeys + wg * 64 - a.n.past;  // the warpgroup's first key is the own one of this query
      int i = first_tile<C>(rank * C::kKeys, a.n.past), left = (row_tiles - i) * group;
#pragma unroll
      for (int e = 0; e < D / 2; ++e) dk[e] = dv[e] = 0;
      int previous = -1;  // stage that the step before still reads
      while (--left >= 0) {
        wait_for(&full[ring.stage], ring.parity);
        const uint32_t q = base + 2 * C::kKeyBytes + ring.stage * C::kRowBytes, grad = q + kStages * C::kRowBytes;
        const float4* const stat =  // of two queries
            reinterpret_cast<const float4*>(sstats + ring.stage * C::kStatBytes) + (threadIdx.x & 3);
        wgmma_fence();
        product_nt<kRows, D>(s, k, C::kKeys, q, kRows);
        wgmma_commit();
        product_nt<kRows, D>(dp, k + C::kKeyBytes, C::kKeys, grad, kRows);
        wgmma_commit();
        wgmma_wait<1>();  // S^T is ready; what the step before reads has been read
        if (previous >= 0) arrive_warp(&empty[previous]);
        if (C::kCausal && i * kRows < own + 63) {
          const int limit0 = own + warp * 16 + lane / 4 - i * kRows - 2 * (lane & 3), limit1 = limit0 + 8;
#pragma unroll
          for (int j = 0; j < kRows / 2; j += 4) {
            if (2 * j < limit0) s[j] = -INFINITY;
            if (2 * j + 1 < limit0) s[j + 1] = -INFINITY;
            if (2 * j < limit1) s[j + 2] = -INFINITY;
            if (2 * j + 1 < limit1) s[j + 3] = -INFINITY;
          }
        }
#pragma unroll
        for (int j = 0; j < kRows / 2; j += 4) {
          const float2 l = make_float2(stat[j].x, stat[j].z);
          s[j] = exp2_of(fmaf(s[j], scale2, -l.x)), s[j + 1] = exp2_of(fmaf(s[j + 1], scale2, -l.y));
          s[j + 2] = exp2_of(fmaf(s[j + 2], scale2, -l.x)), s[j + 3] = exp2_of(fmaf(s[j + 3], scale2, -l.y));
        }
        pack_tile<kRows>(p, s);
        wgmma_fence();
        product_nn<kRows, D>(dv, p, grad, 1);
        wgmma_commit();
        wgmma_wait<1>();  // dP^T is ready
        if (left == 0) arrive(keys_empty);
#pragma unroll
        for (int j = 0; j < kRows / 2; j += 4) {
          const float2 delta = make_float2(stat[j].y, stat[j].w);
          const uint32_t p0 = p[j / 2], p1 = p[j / 2 + 1];  // P from its bf16: the f32 would not fit beside dP
          ds[j / 2] = pack(low_of(p0) * (dp[j] - delta.x), high_of(p0) * (dp[j + 1] - delta.y));
          ds[j / 2 + 1] = pack(low_of(p1) * (dp[j + 2] - delta.x), high_of(p1) * (dp[j + 3] - delta.y));
        }
        wgmma_fence();
        product_nn<kRows, D>(dk, ds, q, 1);
        wgmma_commit();
        wgmma_wait<1>();  // dV is done and frees p's registers before the next S^T and dP^T
        previous = ring.stage;
        ring.next();
        if (++i == row_tiles) i = first_tile<C>(rank * C::kKeys, a.n.past);  // the next query head of the group
      }
      wgmma_wait<0>();
      if (previous >= 0) arrive_warp(&empty[previous]);
      asm volatile("" : "+r"(work));  // computed again rather than kept in registers through the loop
      tile_of(work, tiles, heads, a.section, rank, head);
      const int b = head / a.n.kv_heads, kv_head = head - b * a.n.kv_heads;
      const int row = rank * C::kKeys + wg * 64 + warp * 16 + lane / 4;
      store_tile<D>(a.dk, b, kv_head, row, a.n.tk, dk, a.scale, a.scale);
      store_tile<D>(a.dv, b, kv_head, row, a.n.tk, dv, 1.0f, 1.0f);
    }
  }
#else
  __trap();  // suits_sm90 let a card through that this build has no code for
#endif
}

// ---- rows

template <int D_, bool kCausal_>
struct RowConfig {
  static constexpr int D = D_, kRows = 128, kKeys = D_ == 128 ? 96 : 128, kStages = D_ == 128 ? 3 : 4;
  static constexpr bool kCausal = kCausal_;
  static constexpr int kRowBytes = kRows * D * 2, kKeyBytes = kKeys * D * 2;
  static constexpr int kShared = 2 * kRowBytes + kStages * 2 * kKeyBytes + 8 * kRows + 1024 + 128;
};

template <class C>
__global__ void __launch_bounds__(384, 1)
    rows_kernel(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mgrad, const Backward a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int D = C::D, kKeys = C::kKeys, kStages = C::kStages;
  extern __shared__ char memory[];
  char* const sq = memory + ((1024 - (address(memory) & 1023)) & 1023);
  char *const sgrad = sq + C::kRowBytes, *const sk = sgrad + C::kRowBytes, *const sv = sk + kStages * C::kKeyBytes;
  float2* const stats = reinterpret_cast<float2*>(sv + kStages * C::kKeyBytes);
  uint64_t *const rows_full = reinterpret_cast<uint64_t*>(stats + C::kRows), *const rows_empty = rows_full + 1,
                  *const full = rows_full + 2, *const empty = full + kStages;
  volatile int* const slot = reinterpret_cast<int*>(empty + kStages);
  if (threadIdx.x == 0) {
    init_barrier(rows_full, 1), init_barrier(rows_empty, 8);  // one arrival a warp: one a thread was 15% slower
    for (int i = 0; i < kStages; ++i) init_barrier(&full[i], 1), init_barrier(&empty[i], 8);
    fence_barriers();
  }
  __syncthreads();
  const int tiles = (a.n.tq + C::kRows - 1) / C::kRows, heads = a.n.batch * a.n.heads;
  const int section = a.section * a.n.group;
  const auto last_tile = [&](int row) {
    return ((C::kCausal ? min(row + C::kRows + a.n.past, a.n.tk) : a.n.tk) - 1) / kKeys;
  };
  Ring<kStages> ring;
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x == 0) {
      uint32_t rows_parity = 1;
      for (int work = blockIdx.x, next; work < tiles * heads; work = next) {
        next = next_tile(row_counter);
        int rank, head;
        tile_of(work, tiles, heads, section, rank, head);
        const int row = (tiles - 1 - rank) * C::kRows, b = head / a.n.heads, h = head - b * a.n.heads;
        const int kv_head = h / a.n.group;
        wait_for(rows_empty, rows_parity);
        rows_parity ^= 1;
        *slot = work;  // published by the arrival below
        arrive_expecting(rows_full, 2 * C::kRowBytes + 8 * C::kRows);
        load_tile(sq, &mq, rows_full, row, h, b);
        load_tile(sgrad, &mgrad, rows_full, row, h, b);
        load_bytes(stats, a.stats + int64_t{head} * a.padded + row, 8 * C::kRows, rows_full);
        for (int j = last_tile(row); j >= 0; --j) {
          uint64_t* const barrier = &full[ring.stage];
          wait_for(&empty[ring.stage], ring.parity ^ 1);
          arrive_expecting(barrier, 2 * C::kKeyBytes);
          load_tile(sk + ring.stage * C::kKeyBytes, &mk, barrier, j * kKeys, kv_head, b);
          load_tile(sv + ring.stage * C::kKeyBytes, &mv, barrier, j * kKeys, kv_head, b);
          ring.next();
        }
      }
      wait_for(rows_empty, rows_parity);
      *slot = -1;
      arrive(rows_full);
      tiles_done(row_counter);
    }
  } else {
    take_registers<232>();
    const int wg = threadIdx.x / 128 - 1, warp = threadIdx.x / kWarp & 3, lane = threadIdx.x % kWarp;
    const float scale2 = a.scale * kLog2e;
    const uint32_t q = address(sq) + wg * 64 * 128, grad = address(sgrad) + wg * 64 * 128;
    const uint32_t first_k = address(sk), first_v = address(sv);
    float dq[D / 2], s[kKeys / 2], dp[kKeys / 2];
    uint32_t ds[kKeys / 4];
    for (uint32_t rows_parity = 0;; rows_parity ^= 1) {
      wait_for(rows_full, rows_parity);
      const int work = *slot;
      if (work < 0) break;
      int rank, head;
      tile_of(work, tiles, heads, section, rank, head);
      const int first = (tiles - 1 - rank) * C::kRows, in = wg * 64 + warp * 16 + lane / 4, row = first + in;
      const int last = last_tile(first);
      const float lse[2] = {stats[in].x, stats[in + 8].x}, delta[2] = {stats[in].y, stats[in + 8].y};
#pragma unroll
      for (int i = 0; i < D / 2; ++i) dq[i] = 0;
      uint32_t previous = 0;
      const auto step = [&](auto masked, int j) {
        const uint32_t k = first_k + ring.stage * C::kKeyBytes, v = first_v + ring.stage * C::kKeyBytes;
        wait_for(&full[ring.stage], ring.parity);
        wgmma_fence();
        product_nt<kKeys, D>(s, q, C::kRows, k, kKeys);
        wgmma_commit();
        product_nt<kKeys, D>(dp, grad, C::kRows, v, kKeys);
        wgmma_commit();
        wgmma_wait<1>();  // S is ready, the dQ product before is done
        if (j < last) arrive_warp(&empty[previous]);
        if constexpr (decltype(masked)::value) {
          const int column = j * kKeys + 2 * (lane & 3), end = a.n.tk - 1;
          const int limit0 = (C::kCausal ? min(row + a.n.past, end) : end) - column;
          const int limit1 = (C::kCausal ? min(row + 8 + a.n.past, end) : end) - column;
#pragma unroll
          for (int i = 0; i < kKeys / 2; i += 4) {
            if (2 * i > limit0) s[i] = -INFINITY;
            if (2 * i + 1 > limit0) s[i + 1] = -INFINITY;
            if (2 * i > limit1) s[i + 2] = -INFINITY;
            if (2 * i + 1 > limit1) s[i + 3] = -INFINITY;
          }
        }
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) s[i] = exp2_of(fmaf(s[i], scale2, -lse[i >> 1 & 1]));
        wgmma_wait<0>();  // dP is ready
        if (j == 0) arrive_warp(rows_empty);
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i)
          ds[i] = pack(s[2 * i] * (dp[2 * i] - delta[i & 1]), s[2 * i + 1] * (dp[2 * i + 1] - delta[i & 1]));
        wgmma_fence();
        product_nn<kKeys, D>(dq, ds, k, 1);
        wgmma_commit();
        previous = ring.stage;
        ring.next();
      };
      int j = last;
      for (; j >= 0 && (j == last || (C::kCausal && j * kKeys + kKeys > first + wg * 64 + a.n.past)); --j)
        step(Flag<true>{}, j);
      wgmma_wait<0>();  // an accumulator in flight from one loop into another would serialise every product
      for (; j >= 0; --j) step(Flag<false>{}, j);
      wgmma_wait<0>();
      arrive_warp(&empty[previous]);
      const int b = head / a.n.heads;
      store_tile<D>(a.dq, b, head - b * a.n.heads, row, a.n.tq, dq, a.scale, a.scale);
    }
  }
#else
  __trap();
#endif
}

// ---- launches

struct Maps {
  CUtensorMap q, k, v, grad;
  bool make(const AttentionBackwardArgs& a, int rows, int keys) {
    return make_map(q, a.q, rows) && make_map(k, a.k, keys) && make_map(v, a.v, keys) && make_map(grad, a.grad, rows);
  }
};

template <int D, bool kCausal>
bool backward(const AttentionBackwardArgs& a) {
  using K = KeyConfig<D, kCausal>;
  using R = RowConfig<D, kCausal>;
  static_assert(K::kCausal == R::kCausal);
  Maps key_maps, row_maps;
  if (!key_maps.make(a, K::kRows, K::kKeys) || !row_maps.make(a, R::kRows, R::kKeys)) return false;
  const Lengths n = lengths_of(a);
  const int processors = multiprocessors(a.device());
  const int key_tiles = (n.tk + K::kKeys - 1) / K::kKeys, row_tiles = (n.tq + R::kRows - 1) / R::kRows;
  const int padded = row_tiles * 128 + 128;  // covers the last tile of any size up to 128
  const int section = section_of(n.batch * n.kv_heads, int64_t{4} * n.tq * D * n.group, key_tiles, processors);
  const Backward args{Heads<const bf16>(a.grad),
                      Heads<const bf16>(a.out),
                      Heads<bf16>(a.dq),
                      Heads<bf16>(a.dk),
                      Heads<bf16>(a.dv),
                      a.lse.ptr<float>(),
                      a.scratch.ptr<float2>(),
                      n,
                      padded,
                      section,
                      static_cast<float>(a.scale)};
  const auto blocks = [&](int work) { return static_cast<unsigned>(work < processors ? work : processors); };
  constexpr int kStatRows = 4 * 256 / (D / 8);  // of a block
  stats_kernel<D>
      <<<static_cast<unsigned>(parts(int64_t{n.batch} * n.heads * padded, kStatRows)), 256, 0, stream_of(a.device())>>>(
          args);
  check_launch("attention_backward");
  launch_shared("attention_backward", keys_kernel<K>, blocks(key_tiles * n.batch * n.kv_heads), 384, K::kShared,
                a.device(), key_maps.q, key_maps.k, key_maps.v, key_maps.grad, args);
  launch_shared("attention_backward", rows_kernel<R>, blocks(row_tiles * n.batch * n.heads), 384, R::kShared,
                a.device(), row_maps.q, row_maps.k, row_maps.v, row_maps.grad, args);
  return true;
}

}  // namespace

bool attention_backward_sm90(const AttentionBackwardArgs& a) {
  if (!suits_sm90(a, {&a.grad, &a.q, &a.k, &a.v, &a.out, &a.dq, &a.dk, &a.dv}) || !aligned<float>(a.scratch.data, 0))
    return false;
  if (a.q.size[3] == 128) return a.causal ? backward<128, true>(a) : backward<128, false>(a);
  return a.causal ? backward<64, true>(a) : backward<64, false>(a);
}

}  // namespace tally::cuda
