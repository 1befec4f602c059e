// Attention of few rows over many keys in bf16: at most 16 queries times heads of a key head, as when one token after
// another is generated; over a cache whose position is on the device any number of either. A cluster of blocks works
// for 16 rows of a key head. Keys are split, because one block could not read them fast enough: tile j of 64 keys is
// for block j % split of the cluster, and 16 of its keys for each warp. Every warp has a running softmax of its own; at
// the end the parts are joined in order, those of the warps first, then those of the blocks through distributed shared
// memory (Hopper; elsewhere split is 1). split depends on the number of keys only, so a row's bits do not depend on the
// other rows, heads and sequences, nor on the cache: its capacity gives the size of the clusters, and blocks from split
// on leave at once.
#include "tally/ops/attention_mma.cuh"

namespace tally::cuda {

namespace {

constexpr int kRows = 16, kWarps = kThreads / kWarp, kStages = 3, kMaxSplit = 8;

struct Decode {
  Heads<const bf16> q, k, v;
  Heads<bf16> out;
  float* lse;
  Dims lse_stride;
  Problem p;
  int cluster, row_tiles;
  float scale;  // times log2(e)
};

// Blocks that share the keys: one tile each and more. With one sequence there are few key heads, and time is that of
// the latencies one after another, not of the keys' bytes.
__host__ __device__ __forceinline__ int split_of(int64_t keys) {
  return keys >= 512 ? kMaxSplit : keys >= 256 ? 4 : keys >= 128 ? 2 : 1;
}

// What a warp or a block knows of the rows: running maximum, sum of exponents, weighted sum.
template <int D>
struct Part {
  float top[kRows], total[kRows], sum[kRows][D];
};
template <int D>
constexpr int kBytes = 2 * (kRows + kStages * 2 * kTile) * kRow<D>;

// ---- clusters

__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// *p of the cluster's block `rank`.
__device__ __forceinline__ float load_remote(const float* p, int rank) {
#if __CUDA_ARCH__ >= 900
  uint32_t at;
  float x;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address(p)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
  return x;
#else
  return *p;
#endif
}

// ---- the kernel

// The warp's 16 keys of a tile, from `key` on. k, v: the lane's addresses of them.
template <int D>
__device__ __forceinline__ void attend(const Decode& a, const uint32_t (&q)[D / 16][4], uint32_t k, uint32_t v, int key,
                                       const int (&seen)[2], float (&top)[2], float (&total)[2],
                                       float (&sum)[D / 8][4]) {
  float s[2][4] = {};
#pragma unroll
  for (int c = 0; c < D / 16; ++c) {
    uint32_t y[4];
    load_matrix(y, k + 32 * c);
    mma(s[0], q[c], y[0], y[1]), mma(s[1], q[c], y[2], y[3]);
  }
  const int column = key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = -INFINITY, more = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s[i / 2][2 * half + i % 2];
      x = column + i / 2 * 8 + i % 2 < seen[half] ? x * a.scale : -INFINITY;
      most = fmaxf(most, x);
    }
    most = fmaxf(most, __shfl_xor_sync(kAll, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAll, most, 2));
    most = fmaxf(most, top[half]);
    const float base = most == -INFINITY ? 0.0f : most, factor = exp2_of(top[half] - base);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s[i / 2][2 * half + i % 2];
      x = exp2_of(x - base);
      more += x;
    }
    top[half] = most, total[half] = fmaf(total[half], factor, more);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) sum[n][2 * half] *= factor, sum[n][2 * half + 1] *= factor;
  }
  uint32_t p[4];
  pack_operand(p, s[0], s[1]);
#pragma unroll
  for (int c = 0; c < D / 16; ++c) {
    uint32_t y[4];
    load_transposed(y, v + 32 * c);
    mma(sum[2 * c], p, y[0], y[1]), mma(sum[2 * c + 1], p, y[2], y[3]);
  }
}

// What the parts of a row are multiplied by when they are joined: weight[i] for part i. get(i): its maximum.
template <class Get>
__device__ __forceinline__ float join_weights(int parts, const Get& get, float* weight) {
  float top = -INFINITY;
  for (int i = 0; i < parts; ++i) top = fmaxf(top, get(i));
  for (int i = 0; i < parts; ++i) weight[i] = exp2_of(get(i) - (top == -INFINITY ? 0.0f : top));
  return top;
}

template <int D>
__global__ void __launch_bounds__(kThreads) decode_kernel(const Decode a) {
  extern __shared__ uint4 shared[];
  bf16* const sq = reinterpret_cast<bf16*>(shared);
  bf16* const sk = sq + kRows * kRow<D>;
  let_next_start();
  wait_for_previous();
  const Problem p = a.p.now();
  const int split = min(split_of(p.tk), a.cluster), rank = static_cast<int>(blockIdx.x % a.cluster);
  if (rank >= split) return;  // barriers of a cluster do not wait for blocks that have left
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, work = static_cast<int>(blockIdx.x / a.cluster);
  const KeyHead h = p.key_head(work / a.row_tiles);
  const int first = work % a.row_tiles * kRows, rows = min(kRows, p.rows - first);
  const int tiles = (p.seen(first + rows - 1) + kTile - 1) / kTile;
  const auto copy = [&](int i) {  // the block's i-th tile
    const int key = (rank + i * split) * kTile;
    if (key < tiles * kTile) {
      bf16* const to = sk + i % kStages * 2 * kTile * kRow<D>;
      copy_tile<D, kTile>(to, p.tk - key, [&](int r) { return a.k.at(h.batch, key + r, h.head); });
      copy_tile<D, kTile>(to + kTile * kRow<D>, p.tk - key, [&](int r) { return a.v.at(h.batch, key + r, h.head); });
    }
    commit();
  };
  copy_tile<D, kRows>(sq, rows, [&](int r) { return p.row(a.q, h, first + r); });
#pragma unroll
  for (int i = 0; i + 1 < kStages; ++i) copy(i);
  wait<kStages - 2>();
  __syncthreads();
  uint32_t q[D / 16][4];
#pragma unroll
  for (int c = 0; c < D / 16; ++c) load_matrix(q[c], address(sq) + row_offset<D>() + 32 * c);
  const int seen[2] = {p.seen(first + lane / 4), p.seen(first + lane / 4 + 8)};
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {}, sum[D / 8][4] = {};
#pragma unroll 1
  for (int i = 0; rank + i * split < tiles; ++i) {
    wait<kStages - 2>();
    __syncthreads();  // the tile is here, and the one before has been read
    copy(i + kStages - 1);
    const uint32_t k = address(sk + (i % kStages * 2 * kTile + warp * 16) * kRow<D>), v = k + 2 * kTile * kRow<D>;
    attend<D>(a, q, k + column_offset<D>(), v + row_offset<D>(), (rank + i * split) * kTile + warp * 16, seen, top,
              total, sum);
  }
  wait<0>();
  __syncthreads();                                       // tiles have been read, their place is free for the parts
  Part<D>* const part = reinterpret_cast<Part<D>*>(sk);  // of the warps, then the block's
  Part<D>& block = part[kWarps];
  float(*const weight)[kMaxSplit] = reinterpret_cast<float(*)[kMaxSplit]>(part + kWarps + 1);  // [row][part]
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = lane / 4 + 8 * half;
    total[half] += __shfl_xor_sync(kAll, total[half], 1);
    total[half] += __shfl_xor_sync(kAll, total[half], 2);
    if (lane % 4 == 0) part[warp].top[r] = top[half], part[warp].total[r] = total[half];
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<float2*>(&part[warp].sum[r][8 * n + lane % 4 * 2]) =
          make_float2(sum[n][2 * half], sum[n][2 * half + 1]);
  }
  __syncthreads();
  const int r = threadIdx.x;
  if (r < kRows) {
    block.top[r] = join_weights(
        kWarps, [&](int i) { return part[i].top[r]; }, weight[r]);
    float all = 0;
    for (int i = 0; i < kWarps; ++i) all = fmaf(part[i].total[r], weight[r][i], all);
    block.total[r] = all;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < rows * D; e += kThreads) {
    float x = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) x = fmaf(part[i].sum[e / D][e % D], weight[e / D][i], x);
    block.sum[e / D][e % D] = x;
  }
  __syncthreads();
  cluster_sync();                        // the blocks' parts are there
  float* const inverse = weight[kRows];  // one a row
  if (r < rows) {
    const float most = join_weights(
        split, [&](int i) { return load_remote(&block.top[r], i); }, weight[r]);
    float all = 0;
    for (int i = 0; i < split; ++i) all = fmaf(load_remote(&block.total[r], i), weight[r][i], all);
    const bool any = p.seen(first + r) > 0;
    inverse[r] = any ? 1.0f / all : 0.0f;
    if (rank == 0) a.lse[p.lse_at(a.lse_stride, h, first + r)] = any ? (most + log2f(all)) * kLn2 : -INFINITY;
  }
  __syncthreads();
  for (int e = rank * kThreads + r; e < rows * D; e += split * kThreads) {
    float x = 0;
    for (int i = 0; i < split; ++i) x = fmaf(load_remote(&block.sum[e / D][e % D], i), weight[e / D][i], x);
    store_one(p.row(a.out, h, first + e / D) + e % D, x * inverse[e / D]);
  }
  cluster_sync();  // nobody leaves before its part has been read
}

template <int D>
bool decode(const AttentionArgs& a, const Problem& p) {
  int major = 0, most_bytes = 0;
  const int device = a.device().index;
  check_cuda("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (most_bytes < kBytes<D>) return false;
  const int cluster = major < 9 ? 1 : split_of(a.position.rank() > 0 ? a.capacity : p.tk);
  const auto row_tiles = static_cast<int>(parts(p.rows, kRows));
  const Decode args{Heads<const bf16>(a.q),
                    Heads<const bf16>(a.k),
                    Heads<const bf16>(a.v),
                    Heads<bf16>(a.out),
                    a.lse.ptr<float>(),
                    a.lse.stride,
                    p,
                    cluster,
                    row_tiles,
                    static_cast<float>(a.scale) * kLog2e};
  launch_after("attention", decode_kernel<D>,
               {static_cast<unsigned>(p.heads * row_tiles * cluster), kThreads, kBytes<D>, cluster}, a.device(), args);
  return true;
}

}  // namespace

bool attention_decode(const AttentionArgs& a) {
  if (!suits_mma({&a.q, &a.k, &a.v, &a.out})) return false;
  const Problem p(a);
  if (p.heads * parts(p.rows, kRows) > (1 << 24)) return false;
  if (a.position.rank() == 0 && (p.rows > kRows || p.tk < 256)) return false;
  bool done = false;
  with_mma_dim(p.d, [&](auto dim) { done = decode<decltype(dim)::value>(a, p); });
  return done;
}

}  // namespace tally::cuda
