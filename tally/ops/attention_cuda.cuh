// What the CUDA kernels of attention share: addresses, which keys a row sees, the order of tiles. For
// attention_cuda.cu (any shape) and, for bf16 on tensor cores, attention_decode_cuda.cu, attention_mma_cuda.cu,
// attention_sm90_cuda.cu and attention_sm90_backward_cuda.cu only.
// As on the CPU the query heads of one key head are handled together: its row r is query r / group, head r % group of
// the group. A tile of rows then reads a key once for all heads that share it, also when there is one query only.
#pragma once

#include <initializer_list>

#include "tally/ops/attention_kernels.h"
#include "tally/ops/device.cuh"

namespace tally::cuda {

// True when they took the call: bf16 of head sizes and layouts that suit the tensor cores.
bool attention_sm90(const AttentionArgs&);
bool attention_decode(const AttentionArgs&);
bool attention_mma(const AttentionArgs&);
bool attention_backward_sm90(const AttentionBackwardArgs&);
bool attention_backward_mma(const AttentionBackwardArgs&);

// A (B, T, H, D) view with D contiguous.
template <class T>
struct Heads {
  T* data;
  int64_t batch, time, head;
  explicit Heads(const View& v) : data(v.ptr<T>()), batch(v.stride[0]), time(v.stride[1]), head(v.stride[2]) {}
  __device__ __forceinline__ T* at(int64_t b, int64_t t, int64_t h) const {
    return data + b * batch + t * time + h * head;
  }
};

// What a block works for: a key head of a sequence.
struct KeyHead {
  int64_t index;  // batch * kv_heads + head
  int batch, head;
};

struct Problem {
  int tq, tk, kv_heads, group, rows, d;  // rows of a key head
  int64_t heads;                         // key heads of all sequences
  const int32_t* position = nullptr;     // with it tk is the host's, and now().tk the true one
  bool causal;

  template <class A>
  explicit Problem(const A& a)
      : tq(static_cast<int>(a.q.size[1])),
        tk(static_cast<int>(a.k.size[1])),
        kv_heads(static_cast<int>(a.k.size[2])),
        group(static_cast<int>(a.k.size[2] == 0 ? 0 : a.q.size[2] / a.k.size[2])),
        rows(tq * group),
        d(static_cast<int>(a.q.size[3])),
        heads(a.q.size[0] * a.k.size[2]),
        causal(a.causal) {
    if constexpr (requires { a.position; }) position = a.position.template ptr<int32_t>();
    constexpr int64_t kMost = (int64_t{1} << 31) - 1024;  // rows and keys are counted in 32 bits, tile ends included
    if (a.q.size[0] > kMost || a.q.size[1] * group > kMost || a.k.size[1] > kMost || a.k.size[2] > kMost)
      check_cuda("attention: 2^31 sequences, or queries or keys of a head", cudaErrorInvalidValue);
  }
  __device__ __forceinline__ Problem now() const {
    Problem p = *this;
    if (position) p.tk = *position + tq;
    return p;
  }
  __device__ __forceinline__ KeyHead key_head(int64_t index) const {
    const int b = static_cast<int>(index / kv_heads);
    return {index, b, static_cast<int>(index - int64_t{b} * kv_heads)};
  }
  __device__ __forceinline__ int query(int row) const { return group == 1 ? row : row / group; }
  // Keys that a row sees; grows with the row. A row beyond the last counts as the last.
  __device__ __forceinline__ int seen(int row) const {
    return static_cast<int>(visible_keys(query(row < rows ? row : rows - 1), tq, tk, causal));
  }
  // The first row that sees a key; grows with the key.
  __device__ __forceinline__ int first_row(int key) const {
    if (!causal) return 0;
    const int64_t r = (int64_t{key} + tq - tk) * group;
    return static_cast<int>(r < 0 ? 0 : r < rows ? r : rows);
  }
  template <class T>
  __device__ __forceinline__ T* row(const Heads<T>& x, const KeyHead& h, int r) const {
    const int q = query(r);
    return x.at(h.batch, q, h.head * group + r - q * group);
  }
  // A number a row of a (B, H, Tq) view.
  __device__ __forceinline__ int64_t lse_at(const Dims& stride, const KeyHead& h, int r) const {
    const int q = query(r);
    return int64_t{h.batch} * stride.v[0] + (h.head * group + r - q * group) * stride.v[1] + q * stride.v[2];
  }
};

// Tiles of heads as work for blocks. Heads come in sections whose other operand (keys and values of a tile of rows)
// fits in L2 together; inside a section the longest tiles (rank 0) come first and heads vary fastest.
struct Order {
  int64_t heads, tiles, section;

  Order(int64_t all_heads, int64_t tiles_of_head, int64_t bytes_of_head) : heads(all_heads), tiles(tiles_of_head) {
    constexpr int64_t kL2 = 32 << 20, kBlocks = 4 * 132;
    int64_t most = kL2 / (bytes_of_head + 1);
    const int64_t least = parts(kBlocks, tiles + 1) + 1;  // longest first needs some tiles to balance
    most = most < least ? least : most;
    // Even sections: the long tiles of a short last one would start last.
    section = heads == 0 ? 1 : parts(heads, parts(heads, most));
  }
  __host__ __device__ int64_t count() const { return heads * tiles; }
  unsigned blocks() const { return static_cast<unsigned>(count() < INT32_MAX ? count() : INT32_MAX); }
  __device__ __forceinline__ void at(int64_t work, int64_t& head, int& rank) const {
    const int64_t s = work / (section * tiles), in = work - s * section * tiles;
    const int64_t left = heads - s * section, width = left < section ? left : section;
    rank = static_cast<int>(in / width);
    head = s * section + in - rank * width;
  }
};

// ---- for the tensor cores

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ __forceinline__ uint32_t address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

// The 16 rows of a warp times a factor each, as bf16. A lane has rows lane / 4 and lane / 4 + 8; to: where they start,
// null for none; x(n, 2 half + {0, 1}): their columns 8 n + 2 (lane % 4) + {0, 1}. A 4 x 4 transposition among the four
// lanes of a row gives each of them 16 bytes that lie together.
template <int D, class X>
__device__ __forceinline__ void store_rows(bf16* const (&to)[2], const X& x, const float (&factor)[2]) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int g = 0; g < D / 32; ++g) {
      uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        w[j] = pack(x(4 * g + j, 2 * half) * factor[half], x(4 * g + j, 2 * half + 1) * factor[half]);
#pragma unroll
      for (int step = 1; step <= 2; step *= 2)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (j & step) continue;
          const bool up = quad & step;
          const uint32_t got = __shfl_xor_sync(kAll, up ? w[j] : w[j | step], step);
          w[j] = up ? got : w[j], w[j | step] = up ? w[j | step] : got;
        }
      if (to[half]) *reinterpret_cast<uint4*>(to[half] + 32 * g + 8 * quad) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

// ---- launches

template <int kValue>
struct Dim {
  static constexpr int value = kValue;
};

// True when every row of the views allows 16-byte accesses. The axis of time counts also when it has one element: a
// cache grows.
template <class T>
bool rows_aligned(std::initializer_list<const View*> views) {
  for (const View* v : views)
    for (int axis = 0; axis < 3; ++axis)
      if (!aligned<T>(v->data, axis == 1 || v->size[axis] > 1 ? v->stride[axis] : 0)) return false;
  return true;
}

// Kernels with more than 48 KiB of shared memory must ask for it; the driver remembers it a device.
template <class... P, class... A>
void launch_shared(const char* name, void (*kernel)(P...), unsigned blocks, int threads, int bytes, Device d,
                   const A&... args) {
  const cudaStream_t stream = stream_of(d);
  check_cuda(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<blocks, threads, bytes, stream>>>(args...);
  check_launch(name);
}

// In clusters of `size` blocks, which only cards from 9.0 on have.
template <class... P, class... A>
void launch_clusters(const char* name, void (*kernel)(P...), unsigned blocks, int threads, int bytes, int size,
                     Device d, const A&... args) {
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(size), cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks), config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes), config.stream = stream_of(d);
  config.attrs = &cluster, config.numAttrs = size > 1 ? 1 : 0;
  check_cuda(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  check_cuda(name, cudaLaunchKernelEx(&config, kernel, args...));
}

}  // namespace tally::cuda
