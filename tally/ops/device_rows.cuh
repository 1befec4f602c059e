// Views as rows, for CUDA kernels that work row by row (reductions, softmax, norms): some axes counted as one index,
// and a row's numbers in registers, spread over the threads in an order that does not depend on the view's strides.
#pragma once

#include "tally/ops/device.cuh"

namespace tally::cuda {

// Axes without those of size 1, neighbours merged where memory allows.
struct Space {
  Dims size, stride;
};
// Of the axes whose bits are set.
inline Space space_of(const View& v, unsigned axes) {
  Space s;
  int rank = 0;
  for (int axis = 0; axis < v.size.rank; ++axis) {
    const int64_t size = v.size.v[axis], stride = v.stride.v[axis];
    if (size == 1 || (axes >> axis & 1u) == 0) continue;
    if (rank > 0 && s.stride.v[rank - 1] == size * stride) {
      s.size.v[rank - 1] *= size, s.stride.v[rank - 1] = stride;
    } else {
      s.size.v[rank] = size, s.stride.v[rank++] = stride;
    }
  }
  s.size.rank = s.stride.rank = rank;
  return s;
}
__device__ __forceinline__ int64_t offset_in(const Space& s, int64_t k) {
  return s.size.rank == 1 ? k * s.stride.v[0] : offset_of(s.size, s.stride, k);
}
// True when every step of `s` keeps 16-byte accesses aligned.
template <class T>
inline bool aligned(const void* p, const Space& s) {
  bool all = aligned<T>(p, 0);
  for (int axis = 0; axis < s.size.rank; ++axis) all = all && aligned<T>(p, s.stride.v[axis]);
  return all;
}

// A view as rows along its last axis: the numbers of a row are `step` apart.
struct Rows {
  void* data;
  Space outer;
  int64_t step;
};
inline Rows rows_of(const View& v) {
  const int last = v.size.rank - 1;
  return {v.data, space_of(v, (1u << last) - 1), v.stride.v[last]};
}
inline int64_t row_length(const View& v) { return v.size.v[v.size.rank - 1]; }
inline int64_t row_count(const View& v) {
  int64_t rows = 1;
  for (int axis = 0; axis < v.size.rank - 1; ++axis) rows *= v.size.v[axis];
  return rows;
}
template <class T>
__device__ __forceinline__ T* row_at(const Rows& r, int64_t row) {
  return static_cast<T*>(r.data) + offset_in(r.outer, row);
}
// True when rows of n numbers can be read in whole vectors.
template <class T>
inline bool vector_rows(const Rows& r, int64_t n) {
  return r.step == 1 && n % kVector<T> == 0 && aligned<T>(r.data, 0) && aligned<T>(r.data, r.outer);
}

__device__ __forceinline__ void unpack(uint4 v, float (&x)[4]) {
  x[0] = __uint_as_float(v.x), x[1] = __uint_as_float(v.y), x[2] = __uint_as_float(v.z), x[3] = __uint_as_float(v.w);
}
__device__ __forceinline__ void unpack(uint4 v, float (&x)[8]) {
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[2 * i] = __uint_as_float(w[i] << 16), x[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
}

// 16 bytes of a row that is read once: they should not push what is read often out of the first-level cache.
__device__ __forceinline__ uint4 load_passing(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t raw_bits(const float* p) { return __float_as_uint(*p); }
__device__ __forceinline__ uint32_t raw_bits(const bf16* p) { return p->bits; }
// A word of memory full of x, a number that bf16 has exactly.
template <class T>
__device__ __forceinline__ uint32_t word_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return sizeof(T) == 4 ? bits : bits | bits >> 16;
}

// Chunks of a row that thread t of kThreads has: chunk c is the vector number c * kThreads + t, as it lies in memory.
// `fast` as vector_rows() says it; either way the same numbers come to the same places. What lies beyond the row is
// `pad`, a number that bf16 has exactly.
template <int kThreads, class T, int kChunks>
__device__ __forceinline__ void load_raw(const T* p, int64_t step, int n, bool fast, int t, float pad,
                                         uint4 (&raw)[kChunks]) {
  constexpr int kV = kVector<T>;
  const uint32_t word = word_of<T>(pad);
  if (fast) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = (c * kThreads + t) * kV;
      raw[c] = make_uint4(word, word, word, word);
      if (i < n) raw[c] = load_passing(p + i);
    }
  } else {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint32_t w[4] = {word, word, word, word};
      const int first = (c * kThreads + t) * kV;
      if (first < n) {
#pragma unroll
        for (int j = 0; j < kV; ++j) {
          if (first + j >= n) continue;
          const uint32_t bits = raw_bits(p + (first + j) * step);
          if constexpr (sizeof(T) == 4) {
            w[j] = bits;
          } else {
            w[j / 2] = j % 2 == 0 ? (w[j / 2] & 0xFFFF0000u) | bits : (w[j / 2] & 0xFFFFu) | bits << 16;
          }
        }
      }
      raw[c] = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}
// The same as numbers.
template <int kThreads, class T, int kChunks>
__device__ __forceinline__ void load_row(const T* p, int64_t step, int n, bool fast, int t, float pad,
                                         float (&x)[kChunks][kVector<T>]) {
  uint4 raw[kChunks];
  load_raw<kThreads>(p, step, n, fast, t, pad, raw);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) unpack(raw[c], x[c]);
}
// One chunk, whose first number is `first`.
template <class T>
__device__ __forceinline__ void store_chunk(T* p, int64_t step, int n, bool fast, int first,
                                            const float (&x)[kVector<T>]) {
  if (fast) {
    if (first < n) store_vector(p + first, x);
  } else {
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j)
      if (first + j < n) store_one(p + (first + j) * step, x[j]);
  }
}
template <int kThreads, class T, int kChunks>
__device__ __forceinline__ void store_row(T* p, int64_t step, int n, bool fast, int t,
                                          const float (&x)[kChunks][kVector<T>]) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) store_chunk(p, step, n, fast, (c * kThreads + t) * kVector<T>, x[c]);
}

// join(a, b) over the kThreads threads of a row, for kRows rows at once: a warp by shuffles, a block's warps through
// `shared` (room for 2 * kRows numbers a warp) in order. One barrier is enough, as calls take turns with the halves:
// who is ahead writes to the half that all have read before the last barrier.
template <int kThreads, int kRows, class N, class Join>
__device__ __forceinline__ void row_join(N (&x)[kRows], double* shared, int& turn, Join join) {
#pragma unroll
  for (int w = kWarp / 2; w > 0; w /= 2) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = join(x[r], __shfl_xor_sync(kAll, x[r], w));
  }
  if constexpr (kThreads > kWarp) {
    constexpr int kWarps = kThreads / kWarp;
    N* half = reinterpret_cast<N*>(shared + turn * (kRows * kWarps));
    turn ^= 1;
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) half[r * kWarps + threadIdx.x / kWarp] = x[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      x[r] = half[r * kWarps];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) x[r] = join(x[r], half[r * kWarps + w]);
    }
  }
}
template <int kThreads, int kRows, class N>
__device__ __forceinline__ void row_sum(N (&x)[kRows], double* shared, int& turn) {
  row_join<kThreads>(x, shared, turn, [](N a, N b) { return a + b; });
}
template <int kThreads, int kRows>
__device__ __forceinline__ void row_max(float (&x)[kRows], double* shared, int& turn) {
  row_join<kThreads>(x, shared, turn, [](float a, float b) { return fmaxf(a, b); });
}

// ---- clusters: blocks that read each other's shared memory (sm_90); elsewhere a block is alone

// Blocks a cluster may have, of `wanted`.
inline int cluster_blocks(Device device, int wanted) {
  int major = 0;
  check_cuda("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  return major >= 9 ? wanted : 1;
}
// A launch of `clusters` times `blocks` blocks with `shared` bytes each; the blocks of a cluster are neighbours in
// blockIdx.x.
template <class... P, class... A>
void launch_clusters_shared(const char* name, void (*kernel)(P...), unsigned clusters, int blocks, int threads,
                            int shared, Device device, const A&... args) {
  if (shared > 48 * 1024)
    check_cuda(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  cudaLaunchAttribute size = {};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim.x = static_cast<unsigned>(blocks);
  size.val.clusterDim.y = size.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(clusters * static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream_of(device);
  config.attrs = &size, config.numAttrs = blocks > 1;
  check_cuda(name, cudaLaunchKernelEx(&config, kernel, P(args)...));
}
template <class... P, class... A>
void launch_clusters(const char* name, void (*kernel)(P...), unsigned clusters, int blocks, int threads, Device device,
                     const A&... args) {
  launch_clusters_shared(name, kernel, clusters, blocks, threads, 0, device, args...);
}
// All threads of all blocks of a cluster; what was written to shared memory before is seen after.
__device__ __forceinline__ void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}
// The number that `p` of this block's shared memory stands for in another block's.
__device__ __forceinline__ float read_block(const float* p, int block) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  float x;
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
  return x;
#else
  return block == 0 ? *p : 0.0f;
#endif
}

}  // namespace tally::cuda
