// Building blocks of attention for Hopper (sm_90a): mbarriers, TMA, descriptors and tile products of wgmma, registers
// given from one warpgroup to another, the order of tiles, tensor maps. For attention_sm90_cuda.cu and
// attention_sm90_backward_cuda.cu only.
// A [rows][D] bf16 tile in shared memory is D / 64 panels of [rows][64], 128 bytes a row, written by TMA with the
// 128-byte swizzle; tiles start at multiples of 1024 bytes.
#pragma once

#include <cuda.h>

#include "tally/ops/attention_cuda.cuh"
#include "tally/ops/attention_wgmma.cuh"

namespace tally::cuda {

template <bool kValue>
struct Flag {
  static constexpr bool value = kValue;
};

// ---- mbarriers

__device__ __forceinline__ void init_barrier(uint64_t* b, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(b)) : "memory");
}
// One arrival for a warp after ordinary reads of all its lanes.
__device__ __forceinline__ void arrive_warp(uint64_t* b) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) arrive(b);
}
__device__ __forceinline__ void arrive_expecting(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(b)), "r"(bytes) : "memory");
}
// Returns once the phase of this parity is complete.
__device__ __forceinline__ void wait_for(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{ .reg .pred p;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra AGAIN; }" ::"r"(address(b)),
      "r"(parity)
      : "memory");
}

// A ring of stages. Consumers wait for a stage to be full with `parity`, the producer for it to be empty with
// parity ^ 1: a fresh barrier counts as a completed phase before.
template <int kStages>
struct Ring {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// ---- TMA

// All panels of a tile: the box's rows of head h of sequence b from position t on (make_map).
__device__ __forceinline__ void load_tile(char* to, const CUtensorMap* map, uint64_t* barrier, int t, int h, int b) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, %5, %6}], "
      "[%2];" ::"r"(address(to)),
      "l"(map), "r"(address(barrier)), "r"(0), "r"(t), "r"(h), "r"(b)
      : "memory");
}
__device__ __forceinline__ void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
      "l"(from), "r"(bytes), "r"(address(barrier))
      : "memory");
}

// ---- warpgroups

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ __forceinline__ void turn_wait(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void turn_give(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// ---- products of tiles

// A matrix descriptor: address / 16 in bits 0-13, leading offset / 16 in 16-29, stride offset / 16 in 32-45, 128-byte
// swizzle in 62-63. 8 rows are one 1024-byte atom of the swizzle, so the stride offset is 1024 in both uses below.
__device__ __forceinline__ uint64_t descriptor(uint32_t at, uint32_t leading) {
  return uint64_t((at & 0x3FFFF) >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// sum (64 x N) = a (64 x D) b (N x D)^T, tiles of a_rows and b_rows rows. 16 columns are 32 bytes inside a panel.
template <int N, int D>
__device__ __forceinline__ void product_nt(float (&sum)[N / 2], uint32_t a, int a_rows, uint32_t b, int b_rows) {
  const uint64_t da = descriptor(a, 16), db = descriptor(b, 16);
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    Wgmma<N>::template shared<0>(sum, da + ((k / 4 * a_rows * 128 + k % 4 * 32) >> 4),
                                 db + ((k / 4 * b_rows * 128 + k % 4 * 32) >> 4), k > 0);
}
// sum (64 x D) = a (64 x K, packed in registers) b (K x D), plus sum if `add`. The leading offset is the distance
// between panels; 16 rows are 2048 bytes.
template <int K, int D>
__device__ __forceinline__ void product_nn(float (&sum)[D / 2], const uint32_t (&a)[K / 4], uint32_t b, int add) {
  const uint64_t db = descriptor(b, K * 128);
#pragma unroll
  for (int k = 0; k < K / 16; ++k)
    Wgmma<D>::template registers<1>(sum, a + 4 * k, db + ((k * 2048) >> 4), k > 0 ? 1 : add);
}
// An accumulator as A operands: the lanes agree.
template <int N>
__device__ __forceinline__ void pack_tile(uint32_t (&p)[N / 4], const float (&s)[N / 2]) {
#pragma unroll
  for (int i = 0; i < N / 4; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
}
__device__ __forceinline__ float low_of(uint32_t x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high_of(uint32_t x) { return __uint_as_float(x & 0xFFFF0000u); }

// The thread's rows `row` and `row + 8` of rows of x (b, ., h).
template <int D>
__device__ __forceinline__ void store_tile(const Heads<bf16>& x, int b, int h, int row, int rows,
                                           const float (&sum)[D / 2], float factor0, float factor1) {
  bf16* const first = x.at(b, row, h);
  bf16* const to[2] = {row < rows ? first : nullptr, row + 8 < rows ? first + 8 * x.time : nullptr};
  store_rows<D>(to, [&](int n, int e) { return sum[4 * n + e]; }, {factor0, factor1});
}

// ---- work

struct Lengths {
  int batch, tq, tk, heads, kv_heads, group, past;  // past: keys before the first query's own
};

// As Order in attention_cuda.cuh, in 32 bits.
__device__ __forceinline__ void tile_of(int work, int tiles, int heads, int section, int& rank, int& head) {
  const int s = work / (section * tiles), in = work - s * section * tiles;
  const int width = min(section, heads - s * section);
  rank = in / width;
  head = s * section + in - rank * width;
}

// Blocks stay and take tiles from a counter: which block computes a tile varies, the tile's arithmetic does not.
// counter[0]: tiles handed out beyond the first gridDim.x; counter[1]: blocks that are done. The last one leaves zeros
// for the next launch; launches follow one another on the device's one stream.
__device__ __forceinline__ int next_tile(int* counter) { return atomicAdd(counter, 1) + static_cast<int>(gridDim.x); }
__device__ __forceinline__ void tiles_done(int* counter) {
  __threadfence();
  if (atomicAdd(counter + 1, 1) == static_cast<int>(gridDim.x) - 1) counter[0] = 0, counter[1] = 0;
}

// ---- host

// Head sizes, layouts and lengths that the kernels take. Short ones stay on attention_mma_cuda.cu, where a row's bits
// do not depend on the number of rows. Masked scores are -inf before they are scaled, so scale must be positive in f32.
template <class A>
bool suits_sm90(const A& a, std::initializer_list<const View*> views) {
  const int64_t d = a.q.size[3], tq = a.q.size[1], tk = a.k.size[1];
  const int64_t most = int64_t{1} << 30, rows = a.q.size[0] * a.q.size[2] * (tq + 256),
                keys = a.k.size[0] * a.k.size[2] * (tk + 256);
  if (a.q.dtype != DType::kBF16 || (d != 64 && d != 128) || tq < 128 || tk < 128 || (a.causal && tk < tq) ||
      rows > most || keys > most || !(a.scale > 1e-30 && a.scale < 1e30) || !a.lse.contiguous() ||
      !rows_aligned<bf16>(views))
    return false;
  int major = 0, minor = 0;
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, a.device().index));
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, a.device().index));
  return major == 9 && minor == 0;
}

template <class A>
Lengths lengths_of(const A& a) {
  const auto n = [](int64_t x) { return static_cast<int>(x); };
  return {n(a.q.size[0]),
          n(a.q.size[1]),
          n(a.k.size[1]),
          n(a.q.size[2]),
          n(a.k.size[2]),
          n(a.q.size[2] / a.k.size[2]),
          n(a.k.size[1] - a.q.size[1])};
}

inline int multiprocessors(Device d) {
  int n = 0;
  check_cuda("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, d.index));
  return n;
}

// Tiles of `rows` positions of x (B, T, H, D): a map with dimensions 64 columns, T, D / 64 panels, H, B, whose box is
// written panel after panel. Rows past T read as zero. False where TMA does not take the strides.
inline bool make_map(CUtensorMap& map, const View& x, int rows) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  // From the driver itself: nothing links against libcuda.
  static const Encode encode = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found;
    check_cuda("cudaGetDriverEntryPointByVersion",
               cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found));
    return reinterpret_cast<Encode>(f);
  }();
  if (encode == nullptr) return false;
  const auto size = [&](int axis) { return static_cast<cuuint64_t>(x.size[axis]); };
  const auto bytes = [&](int axis) {
    return static_cast<cuuint64_t>(x.size[axis] > 1 ? 2 * x.stride[axis] : 2 * x.size[3]);
  };
  for (int axis = 0; axis < 3; ++axis)
    if (x.size[axis] > 1 && x.stride[axis] <= 0) return false;
  const cuuint64_t sizes[5] = {64, size(1), size(3) / 64, size(2), size(0)};
  const cuuint64_t strides[4] = {bytes(1), 128, bytes(2), bytes(0)};  // of dimensions 1 to 4
  const cuuint32_t box[5] = {64, static_cast<cuuint32_t>(rows), static_cast<cuuint32_t>(x.size[3] / 64), 1, 1};
  const cuuint32_t step[5] = {1, 1, 1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, x.data, sizes, strides, box, step,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Heads of a section, see Order: as many as keep `bytes` each within 32 MiB of L2, but at least four tiles a
// multiprocessor; all sections alike.
inline int section_of(int heads, int64_t bytes, int tiles, int multiprocessors) {
  int64_t most = (int64_t{32} << 20) / bytes;
  const int64_t least = parts(4 * multiprocessors, tiles);
  most = most < least ? least : most;
  return static_cast<int>(parts(heads, parts(heads, most)));
}

}  // namespace tally::cuda
