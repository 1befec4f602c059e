// The forward of attention for Hopper (sm_90a): bf16, D 64 or 128, any number of query heads a key head, at least 128
// queries and keys (suits_sm90). FlashAttention-2's running softmax in base 2 with FlashAttention-3's overlap (Shah et
// al. 2024). A work tile is 64 rows a warpgroup of one head; it walks the key tiles from the last, partly masked one
// down to 0. One thread issues TMA; two or three consumer warpgroups own 64 rows each.
//   inside a warpgroup: S(j) = Q K(j)^T and O += P(j + 1) V(j + 1) are both in flight, the softmax of S(j) runs under
//   the second; between warpgroups: a named barrier each lets one issue products while another does its softmax.
// P stays in registers: an f32 accumulator has the lanes of a bf16 A operand. One buffer for Q, which is fetched for
// the next tile once this tile's last Q K^T is done; rings of two stages for K and V. Blocks stay and take tiles from a
// counter. Registers: 168 a thread at the launch; the producer keeps 40, two consumers take 232 (three: 32 and 160).
#include "tally/ops/attention_sm90.cuh"

namespace tally::cuda {

namespace {

template <int D_, int kGroups_, bool kCausal_>
struct Config {
  static constexpr int D = D_, kGroups = kGroups_, kRows = 64 * kGroups, kKeys = 128, kStages = 2;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr bool kCausal = kCausal_;
  static constexpr int kQueryBytes = kRows * D * 2, kKeyBytes = kKeys * D * 2;
  static constexpr int kShared = kQueryBytes + 2 * kStages * kKeyBytes + 1024 + 128;  // alignment, barriers
};

struct Forward {
  Heads<bf16> out;
  float* lse;
  Lengths n;
  int section;
  float scale;
};

[[maybe_unused]] __device__ int counter[2];  // see next_tile

template <class C>
struct Shared {
  char *q, *k, *v;
  uint64_t *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty;
  volatile int* work;
  __device__ __forceinline__ explicit Shared(char* base) {
    base += (1024 - (address(base) & 1023)) & 1023;
    q = base, k = q + C::kQueryBytes, v = k + C::kStages * C::kKeyBytes;
    q_full = reinterpret_cast<uint64_t*>(v + C::kStages * C::kKeyBytes), q_empty = q_full + 1;
    k_full = q_full + 2, k_empty = k_full + C::kStages, v_full = k_empty + C::kStages, v_empty = v_full + C::kStages;
    work = reinterpret_cast<int*>(v_empty + C::kStages);
  }
};

// A tile of rows; the last ones, which see the most keys, have rank 0.
struct Tile {
  int first, batch, head, last_keys;  // first row, last key tile
};
template <class C>
__device__ __forceinline__ Tile tile_at(const Forward& a, int work) {
  const int tiles = (a.n.tq + C::kRows - 1) / C::kRows;
  int rank, head;
  tile_of(work, tiles, a.n.batch * a.n.heads, a.section, rank, head);
  const int first = (tiles - 1 - rank) * C::kRows, batch = head / a.n.heads;
  const int keys = C::kCausal ? min(first + C::kRows + a.n.past, a.n.tk) : a.n.tk;
  return {first, batch, head - batch * a.n.heads, (keys - 1) / C::kKeys};
}

template <class C>
__device__ __forceinline__ void produce(const Shared<C>& s, const CUtensorMap& q, const CUtensorMap& k,
                                        const CUtensorMap& v, const Forward& a) {
  const int all = (a.n.tq + C::kRows - 1) / C::kRows * a.n.batch * a.n.heads;
  Ring<C::kStages> k_ring, v_ring;
  uint32_t q_parity = 1;
  int work = blockIdx.x;
  while (work < all) {
    const int next = next_tile(counter);  // asked early: its latency hides behind this tile's loads
    const Tile t = tile_at<C>(a, work);
    const int kv_head = t.head / a.n.group;
    const auto load_k = [&](int j) {
      wait_for(&s.k_empty[k_ring.stage], k_ring.parity ^ 1);
      arrive_expecting(&s.k_full[k_ring.stage], C::kKeyBytes);
      load_tile(s.k + k_ring.stage * C::kKeyBytes, &k, &s.k_full[k_ring.stage], j * C::kKeys, kv_head, t.batch);
      k_ring.next();
    };
    const auto load_v = [&](int j) {
      wait_for(&s.v_empty[v_ring.stage], v_ring.parity ^ 1);
      arrive_expecting(&s.v_full[v_ring.stage], C::kKeyBytes);
      load_tile(s.v + v_ring.stage * C::kKeyBytes, &v, &s.v_full[v_ring.stage], j * C::kKeys, kv_head, t.batch);
      v_ring.next();
    };
    wait_for(s.q_empty, q_parity);
    q_parity ^= 1;
    *s.work = work;  // published by the arrival below
    arrive_expecting(s.q_full, C::kQueryBytes);
    load_tile(s.q, &q, s.q_full, t.first, t.head, t.batch);
    load_k(t.last_keys);
    for (int j = t.last_keys - 1; j >= 0; --j) load_k(j), load_v(j + 1);
    load_v(0);
    work = next;
  }
  wait_for(s.q_empty, q_parity);
  *s.work = -1;
  arrive(s.q_full);
  tiles_done(counter);
}

// One step of the softmax of the thread's two rows: s becomes p = 2^(scale s - top), correction is what earlier sums
// are multiplied by. scale has log2(e) in it.
template <int N>
__device__ __forceinline__ void softmax_step(float (&s)[N / 2], float (&top)[2], float (&total)[2],
                                             float (&correction)[2], float scale) {
  float most[4] = {s[0], s[1], s[2], s[3]};  // two chains a row
#pragma unroll
  for (int i = 4; i < N / 2; i += 4) {
    most[0] = fmaxf(most[0], s[i]), most[1] = fmaxf(most[1], s[i + 1]);
    most[2] = fmaxf(most[2], s[i + 2]), most[3] = fmaxf(most[3], s[i + 3]);
  }
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float x = fmaxf(most[2 * r], most[2 * r + 1]);
    x = fmaxf(x, __shfl_xor_sync(kAll, x, 1));
    x = fmaxf(x, __shfl_xor_sync(kAll, x, 2));
    x = fmaxf(top[r], x);
    base[r] = x == -INFINITY ? 0.0f : x * scale;  // a row with nothing visible yet
    correction[r] = exp2_of(top[r] * scale - base[r]);
    top[r] = x;
  }
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < N / 2; i += 4)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i + e] = exp2_of(fmaf(s[i + e], scale, -base[e / 2]));
      sum[e] += s[i + e];
    }
  total[0] = fmaf(total[0], correction[0], sum[0] + sum[1]);
  total[1] = fmaf(total[1], correction[1], sum[2] + sum[3]);
}

template <class C>
__device__ __forceinline__ void mask_tile(float (&s)[C::kKeys / 2], int key, int row, const Lengths& n) {
  const int column = key + 2 * (threadIdx.x & 3), last = n.tk - 1;
  const int limit0 = (C::kCausal ? min(row + n.past, last) : last) - column;
  const int limit1 = (C::kCausal ? min(row + 8 + n.past, last) : last) - column;
#pragma unroll
  for (int i = 0; i < C::kKeys / 2; i += 4) {
    if (2 * i > limit0) s[i] = -INFINITY;
    if (2 * i + 1 > limit0) s[i + 1] = -INFINITY;
    if (2 * i > limit1) s[i + 2] = -INFINITY;
    if (2 * i + 1 > limit1) s[i + 3] = -INFINITY;
  }
}

template <class C>
__device__ __forceinline__ void consume(const Shared<C>& sm, const Forward& a) {
  constexpr int D = C::D, kKeys = C::kKeys;
  const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / kWarp & 3, lane = threadIdx.x % kWarp;
  const float scale2 = a.scale * kLog2e;
  const uint32_t q = address(sm.q) + group * 64 * 128, k = address(sm.k), v = address(sm.v);
  // Barrier 1 + w is warpgroup w's turn; the last one opens the first one's.
  const int my_turn = 1 + group, next_turn = 1 + (group + 1) % C::kGroups;
  if (group == C::kGroups - 1) turn_give(1);
  // Read by wgmma only, which the warp has waited for.
  const auto release = [&](uint64_t* barrier) {
    if (lane == 0) arrive(barrier);
  };
  Ring<C::kStages> k_ring, v_ring;
  float o[D / 2], s[kKeys / 2];
  uint32_t p[kKeys / 4];
  for (uint32_t q_parity = 0;; q_parity ^= 1) {
    wait_for(sm.q_full, q_parity);
    const int work = *sm.work;
    if (work < 0) break;
    const Tile t = tile_at<C>(a, work);
    const int own = t.first + group * 64, row = own + warp * 16 + lane / 4, last = t.last_keys;
    float top[2] = {-INFINITY, -INFINITY}, total[2] = {}, correction[2];
    wait_for(&sm.k_full[k_ring.stage], k_ring.parity);
    wgmma_fence();
    product_nt<kKeys, D>(s, q, C::kRows, k + k_ring.stage * C::kKeyBytes, kKeys);
    wgmma_commit();
    wgmma_wait<0>();
    release(&sm.k_empty[k_ring.stage]);
    k_ring.next();
    if (last == 0) arrive(sm.q_empty);
    mask_tile<C>(s, last * kKeys, row, a.n);
    softmax_step<kKeys>(s, top, total, correction, scale2);
    pack_tile<kKeys>(p, s);
    const auto step = [&](auto masked, int j) {
      wait_for(&sm.k_full[k_ring.stage], k_ring.parity);
      turn_wait(my_turn);
      wgmma_fence();
      product_nt<kKeys, D>(s, q, C::kRows, k + k_ring.stage * C::kKeyBytes, kKeys);
      wgmma_commit();
      wait_for(&sm.v_full[v_ring.stage], v_ring.parity);
      wgmma_fence();
      product_nn<kKeys, D>(o, p, v + v_ring.stage * C::kKeyBytes, j < last - 1);
      wgmma_commit();
      turn_give(next_turn);
      wgmma_wait<1>();  // S is ready, O still runs
      release(&sm.k_empty[k_ring.stage]);
      k_ring.next();
      if (j == 0) arrive(sm.q_empty);
      if constexpr (decltype(masked)::value) mask_tile<C>(s, j * kKeys, row, a.n);
      softmax_step<kKeys>(s, top, total, correction, scale2);
      wgmma_wait<0>();
      release(&sm.v_empty[v_ring.stage]);
      v_ring.next();
      pack_tile<kKeys>(p, s);
#pragma unroll
      for (int i = 0; i < D / 2; ++i) o[i] *= correction[i >> 1 & 1];
    };
    int j = last - 1;  // two loops, so that the long one has no branch between its products
    if (C::kCausal)
      for (; j >= 0 && j * kKeys + kKeys > own + a.n.past; --j) step(Flag<true>{}, j);
    for (; j >= 0; --j) step(Flag<false>{}, j);
    wait_for(&sm.v_full[v_ring.stage], v_ring.parity);
    wgmma_fence();
    product_nn<kKeys, D>(o, p, v + v_ring.stage * C::kKeyBytes, last > 0);
    wgmma_commit();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] += __shfl_xor_sync(kAll, total[r], 1);
      total[r] += __shfl_xor_sync(kAll, total[r], 2);
    }
    wgmma_wait<0>();
    release(&sm.v_empty[v_ring.stage]);
    v_ring.next();
    store_tile<D>(a.out, t.batch, t.head, row, a.n.tq, o, 1.0f / total[0], 1.0f / total[1]);
    if (lane % 4 == 0) {
      float* const lse = a.lse + (static_cast<int64_t>(t.batch) * a.n.heads + t.head) * a.n.tq;
      if (row < a.n.tq) lse[row] = top[0] * a.scale + logf(total[0]);
      if (row + 8 < a.n.tq) lse[row + 8] = top[1] * a.scale + logf(total[1]);
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                   const __grid_constant__ CUtensorMap v, const Forward a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ char memory[];
  const Shared<C> s(memory);
  if (threadIdx.x == 0) {
    init_barrier(s.q_full, 1);
    init_barrier(s.q_empty, 128 * C::kGroups);  // every consumer thread: each has read the number of the work itself
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(&s.k_full[i], 1), init_barrier(&s.v_full[i], 1);
      init_barrier(&s.k_empty[i], 4 * C::kGroups), init_barrier(&s.v_empty[i], 4 * C::kGroups);  // every consumer warp
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<C::kGroups == 3 ? 32 : 40>();
    if (threadIdx.x == 0) produce<C>(s, q, k, v, a);
  } else {
    take_registers<C::kGroups == 3 ? 160 : 232>();
    consume<C>(s, a);
  }
#else
  __trap();  // suits_sm90 let a card through that this build has no code for
#endif
}

template <class C>
bool forward(const AttentionArgs& a) {
  CUtensorMap q, k, v;
  if (a.causal != C::kCausal || !make_map(q, a.q, C::kRows) || !make_map(k, a.k, C::kKeys) ||
      !make_map(v, a.v, C::kKeys))
    return false;
  const Lengths n = lengths_of(a);
  const int processors = multiprocessors(a.device()), tiles = (n.tq + C::kRows - 1) / C::kRows;
  const int section = n.group * section_of(n.batch * n.kv_heads, int64_t{4} * n.tk * C::D, tiles * n.group, processors);
  const Forward args{Heads<bf16>(a.out), a.lse.ptr<float>(), n, section, static_cast<float>(a.scale)};
  const int all = tiles * n.batch * n.heads;
  launch_shared("attention", forward_kernel<C>, static_cast<unsigned>(all < processors ? all : processors), C::kThreads,
                C::kShared, a.device(), q, k, v, args);
  return true;
}
template <int D, int kGroups>
bool forward(const AttentionArgs& a) {
  return forward<Config<D, kGroups, true>>(a) || forward<Config<D, kGroups, false>>(a);
}

}  // namespace

bool attention_sm90(const AttentionArgs& a) {
  if (!suits_sm90(a, {&a.q, &a.k, &a.v, &a.out})) return false;
  if (a.q.size[3] == 128) return forward<128, 2>(a);
  // Three warpgroups read a key less often, but leave more of the last tile empty.
  return a.q.size[1] < 2048 ? forward<64, 2>(a) : forward<64, 3>(a);
}

}  // namespace tally::cuda
