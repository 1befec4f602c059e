// What kernel files for CUDA share: numbers of f32 and bf16 read and written as f32, launches, sums over warps and
// blocks in a fixed order. *_cuda.cu files see this (and device_rows.cuh: rows in registers, clusters), their
// *_kernels.h, core/view.h and core/cost.h, and nothing else of Tally; they are compiled with -DTALLY_ISA=cuda, so the
// functions that *_kernels.h declares stand in tally::cuda. Every kernel is given to the device's one stream and
// returns at once. The same inputs give the same bits: no floating atomics, sums in an order that depends on shapes
// only.
#pragma once

#include <cuda_runtime.h>

#include "tally/core/cost.h"
#include "tally/core/fault.h"
#include "tally/core/view.h"
#include "tally/ops/elementwise_math.h"

namespace tally {

namespace detail {  // core/device.h
void* device_stream(int index);
void check_cuda(const char* what, int code);
[[noreturn]] void wrong_dtype(const char* op, int dtype);  // core/dtype.cpp
}  // namespace detail

namespace cuda {

using detail::check_cuda;

inline cudaStream_t stream_of(Device d) { return static_cast<cudaStream_t>(detail::device_stream(d.index)); }

// Under every launch: check_launch("softmax").
inline void check_launch(const char* what) { check_cuda(what, cudaGetLastError()); }

constexpr int kWarp = 32;
constexpr unsigned kAll = 0xFFFFFFFFu;

inline int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

// Blocks for n pieces of work in a grid-stride loop: never more than fill a large card a few times.
inline unsigned blocks_for(int64_t n, int64_t per_block, int64_t most = 132 * 16) {
  const int64_t blocks = parts(n, per_block);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

// ---- launches that begin while the one before still runs (programmatic dependent launch; below sm_90 ordinary ones)

// Says that the next kernel may be started, which happens once every block of this one has said so or has left. It may
// come first of all: the next one waits for the end of this one in its own wait_for_previous().
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Returns when all kernels before have ended and what they wrote is seen.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- indices

// What a kernel needs to say that an index lies outside its range (core/fault.h).
struct FaultReport {
  IndexFault* to;
  const char* op;
};
inline FaultReport fault_report(const char* op, Device d) { return {detail::index_fault(d.index), op}; }

// Whether 0 <= index < size; what is not is reported, the first of them.
__device__ __forceinline__ bool inside(int64_t index, int64_t size, const FaultReport& report) {
  if (static_cast<uint64_t>(index) < static_cast<uint64_t>(size)) return true;
  if (atomicExch(report.to->taken, 1u) != 0) return false;
  IndexFault volatile* const to = report.to;
  to->op = report.op, to->index = index, to->size = size;
  __threadfence_system();
  to->there = 1;
  return false;
}

struct Launch {
  dim3 grid;
  int threads, shared = 0;  // bytes
  int cluster = 1;          // blocks of a cluster, along x
};
// Launches a kernel that may start while the one before it runs. It must call wait_for_previous() on every path: each
// thread before it first reads what another kernel may have written (weights too) and before it first writes to global
// memory. That includes blocks with nothing to do, because "all kernels before have ended" holds only as every one of
// them waited itself. Before the wait it may compute from its arguments and prefetch into L2, where all see the same
// bytes. Ordinary launches may stand before and behind: they wait for the end of a kernel and do not let the next one
// start early.
template <class... P, class... A>
void launch_after(const char* name, void (*kernel)(P...), const Launch& l, Device device, const A&... args) {
  if (l.shared > 48 * 1024)
    check_cuda(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, l.shared));
  int major = 0;
  check_cuda("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(l.cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = l.grid;
  config.blockDim = dim3(static_cast<unsigned>(l.threads));
  config.dynamicSmemBytes = static_cast<size_t>(l.shared);
  config.stream = stream_of(device);
  config.attrs = attributes, config.numAttrs = major < 9 ? 0 : l.cluster > 1 ? 2 : 1;
  check_cuda(name, cudaLaunchKernelEx(&config, kernel, P(args)...));
}

// ---- numbers

__device__ __forceinline__ float load_one(const float* p) { return *p; }
__device__ __forceinline__ float load_one(const bf16* p) { return to_float(*p); }
__device__ __forceinline__ void store_one(float* p, float x) { *p = x; }
__device__ __forceinline__ void store_one(bf16* p, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p->bits) : "f"(x)); }

// kVector<T> numbers at a time: 16 bytes, aligned to 16.
template <class T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

__device__ __forceinline__ void load_vector(const float* p, float (&x)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}
__device__ __forceinline__ void load_vector(const bf16* p, float (&x)[8]) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[2 * i] = __uint_as_float(w[i] << 16), x[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
}
// To global memory. In assembly, because nvcc 13.0 splits some stores of float4 and uint4 into four.
__device__ __forceinline__ void store_vector(float* p, const float (&x)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
__device__ __forceinline__ void store_vector(bf16* p, const float (&x)[8]) {
  uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}

// True when 16-byte accesses are allowed from `p` on in steps of `stride` elements of T.
template <class T>
inline bool aligned(const void* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride * static_cast<int64_t>(sizeof(T)) % 16 == 0;
}

// f(T{}) on the host for T = float or bf16.
template <class F>
void with_float(const char* op, DType t, const F& f) {
  if (t == DType::kF32) return f(float{});
  if (t == DType::kBF16) return f(bf16{});
  detail::wrong_dtype(op, static_cast<int>(t));
}
// f(T{}) for T = int32_t or int64_t.
template <class F>
void with_index(const char* op, DType t, const F& f) {
  if (t == DType::kI32) return f(int32_t{});
  if (t == DType::kI64) return f(int64_t{});
  detail::wrong_dtype(op, static_cast<int>(t));
}

// Offset of logical element k of a view of any strides.
__device__ __forceinline__ int64_t offset_of(const Dims& size, const Dims& stride, int64_t k) {
  int64_t at = 0;
  for (int axis = size.rank - 1; axis >= 0; --axis) {
    const int64_t n = size.v[axis], rest = k / n;
    at += (k - rest * n) * stride.v[axis];
    k = rest;
  }
  return at;
}

// The functions of ops/elementwise_math.h on the device.
struct CudaMath {
  static __device__ __forceinline__ float exp(float x) { return expf(x); }
  static __device__ __forceinline__ float erf(float x) { return erff(x); }
  static __device__ __forceinline__ float log(float x) { return logf(x); }
  static __device__ __forceinline__ float sqrt(float x) { return sqrtf(x); }
  static __device__ __forceinline__ float tanh(float x) { return tanhf(x); }
  static __device__ __forceinline__ float abs(float x) { return fabsf(x); }
  static __device__ __forceinline__ float sin(float x) { return sinf(x); }
  static __device__ __forceinline__ float cos(float x) { return cosf(x); }
  static __device__ __forceinline__ float log1p(float x) { return log1pf(x); }
  static __device__ __forceinline__ float expm1(float x) { return expm1f(x); }
  static __device__ __forceinline__ float pow(float x, float y) { return powf(x, y); }
  static __device__ __forceinline__ float floor(float x) { return floorf(x); }
  static __device__ __forceinline__ float ceil(float x) { return ceilf(x); }
  static __device__ __forceinline__ float round(float x) { return rintf(x); }
  static __device__ __forceinline__ float trunc(float x) { return truncf(x); }
  static __device__ __forceinline__ float fmod(float x, float y) { return fmodf(x, y); }
  static __device__ __forceinline__ float with_sign(float magnitude, float x) { return copysignf(magnitude, x); }
  static __device__ __forceinline__ float floor_divide(float x, float y) {
    return floor_divide_numbers<CudaMath>(x, y);
  }
  static __device__ __forceinline__ float remainder(float x, float y) { return remainder_of_numbers<CudaMath>(x, y); }
};

// Errors of about 1e-6, relative for exp in |x| <= 10 and absolute for erf.
struct FastMath {
  static __device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ __forceinline__ float exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
  }
  // Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26.
  static __device__ __forceinline__ float erf(float x) {
    const float t = reciprocal(fmaf(0.3275911f, fabsf(x), 1.0f));
    float y = fmaf(t, 1.061405429f, -1.453152027f);
    y = fmaf(y, t, 1.421413741f), y = fmaf(y, t, -0.284496736f), y = fmaf(y, t, 0.254829592f);
    return copysignf(fmaf(-(y * t), exp(-x * x), 1.0f), x);
  }
};
// silu(gate) * up
__device__ __forceinline__ float swiglu_value(float gate, float up) {
  return gate * FastMath::reciprocal(1.0f + FastMath::exp(-gate)) * up;
}

// ---- sums and maxima: every thread gets the result; the tree is fixed

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int w = kWarp / 2; w > 0; w /= 2) x += __shfl_xor_sync(kAll, x, w);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int w = kWarp / 2; w > 0; w /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, w));
  return x;
}
// Over a block of kThreads threads; `shared` has room for kThreads / 32 floats and may be used again at once.
template <int kThreads, class Join>
__device__ __forceinline__ float block_join(float x, float* shared, float neutral, Join join) {
  constexpr int kWarps = kThreads / kWarp;
  x = join(x);
  if constexpr (kWarps == 1) return x;
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = join(threadIdx.x % kWarp < kWarps ? shared[threadIdx.x % kWarp] : neutral);
  __syncthreads();
  return x;
}
template <int kThreads>
__device__ __forceinline__ float block_sum(float x, float* shared) {
  return block_join<kThreads>(x, shared, 0.0f, [](float v) { return warp_sum(v); });
}
template <int kThreads>
__device__ __forceinline__ float block_max(float x, float* shared) {
  return block_join<kThreads>(x, shared, -INFINITY, [](float v) { return warp_max(v); });
}

}  // namespace cuda
}  // namespace tally
