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

// Chunks of a row that thread t of kThreads has: chunk c is the vector number c * kThreads + t. `fast` as vector_rows()
// says it; either way the same numbers come to the same places. What lies beyond the row is `pad`.
template <int kThreads, class T, int kChunks>
__device__ __forceinline__ void load_row(const T* p, int64_t step, int n, bool fast, int t, float pad,
                                         float (&x)[kChunks][kVector<T>]) {
  constexpr int kV = kVector<T>;
  if (fast) {
    uint4 raw[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {  // all loads first: converting them at once would wait for each
      const int i = (c * kThreads + t) * kV;
      raw[c] = i < n ? *reinterpret_cast<const uint4*>(p + i) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      unpack(raw[c], x[c]);
      if ((c * kThreads + t) * kV >= n) {
#pragma unroll
        for (int j = 0; j < kV; ++j) x[c][j] = pad;
      }
    }
  } else {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        const int i = (c * kThreads + t) * kV + j;
        x[c][j] = i < n ? load_one(p + i * step) : pad;
      }
    }
  }
}
template <int kThreads, class T, int kChunks>
__device__ __forceinline__ void store_row(T* p, int64_t step, int n, bool fast, int t,
                                          const float (&x)[kChunks][kVector<T>]) {
  constexpr int kV = kVector<T>;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int first = (c * kThreads + t) * kV;
    if (fast) {
      if (first < n) store_vector(p + first, x[c]);
    } else {
#pragma unroll
      for (int j = 0; j < kV; ++j)
        if (first + j < n) store_one(p + (first + j) * step, x[c][j]);
    }
  }
}

// ---- clusters: blocks that read each other's shared memory (sm_90); elsewhere a block is alone

// Blocks a cluster may have, of `wanted`.
inline int cluster_blocks(Device device, int wanted) {
  int major = 0;
  check_cuda("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  return major >= 9 ? wanted : 1;
}
// A launch of `clusters` times `blocks` blocks; the blocks of a cluster are neighbours in blockIdx.x.
template <class... P, class... A>
void launch_clusters(const char* name, void (*kernel)(P...), unsigned clusters, int blocks, int threads, Device device,
                     const A&... args) {
  cudaLaunchAttribute size = {};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim.x = static_cast<unsigned>(blocks);
  size.val.clusterDim.y = size.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(clusters * static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream_of(device);
  config.attrs = &size, config.numAttrs = blocks > 1;
  check_cuda(name, cudaLaunchKernelEx(&config, kernel, P(args)...));
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
