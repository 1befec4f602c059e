// Instructions and tiles for attention on the tensor cores of any card from 8.0 on: cp.async, ldmatrix, mma.sync in
// bf16. For attention_mma_cuda.cu and attention_decode_cuda.cu only.
#pragma once

#include "tally/ops/attention_cuda.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 128, kTile = 64;  // a block; keys of a tile, and rows of a tile in the backward

template <int D>
constexpr int kRow = D + 8;  // numbers of a row in shared memory

// ---- instructions

// 16 or 8 bytes; zeros when not valid.
__device__ __forceinline__ void copy16(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy8(void* to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address(to)), "l"(from), "r"(valid ? 8 : 0)
               : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
// Four 8 x 8 matrices; lanes 8i to 8i + 7 give the addresses of the rows of matrix i.
__device__ __forceinline__ void load_matrix(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
// c (16 x 8) += a (16 x 16) b (16 x 8). A lane has columns 2 (lane % 4) + {0, 1} of rows lane / 4 (c[0], c[1]) and
// lane / 4 + 8 (c[2], c[3]).
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Two neighbouring accumulators as the A operand of a product over their 16 columns.
__device__ __forceinline__ void pack_operand(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pack(left[0], left[1]), a[1] = pack(left[2], left[3]);
  a[2] = pack(right[0], right[1]), a[3] = pack(right[2], right[3]);
}

// Where a lane's ldmatrix addresses start, in bytes from a tile: the A operand and transposed B take 16 rows and two
// groups of 8 columns in this order, B as it lies takes columns first.
template <int D>
__device__ __forceinline__ uint32_t row_offset() {
  const uint32_t lane = threadIdx.x % kWarp;
  return 2 * (lane % 16 * kRow<D> + lane / 16 * 8);
}
template <int D>
__device__ __forceinline__ uint32_t column_offset() {
  const uint32_t lane = threadIdx.x % kWarp;
  return 2 * ((lane % 8 + lane / 16 * 8) * kRow<D> + lane / 8 % 2 * 8);
}

// Starts copying rows [0, n) of a tile, zeros beyond. row(i): where row i starts; n is at least 1.
template <int D, int kRows, class Row>
__device__ __forceinline__ void copy_tile(bf16* to, int n, const Row& row) {
  constexpr int kLanes = D % 64 == 0 ? 8 : 4, kAtOnce = kThreads / kLanes;  // threads of a row, rows
  const int first = threadIdx.x / kLanes, at = threadIdx.x % kLanes * 8;
  to += first * kRow<D> + at;
#pragma unroll
  for (int i = 0; i < kRows; i += kAtOnce) {
    if (kRows % kAtOnce != 0 && first + i >= kRows) continue;
    const bool valid = first + i < n;
    const bf16* const from = row(valid ? first + i : 0) + at;
#pragma unroll
    for (int c = 0; c < D; c += kLanes * 8) copy16(to + i * kRow<D> + c, from + c, valid);
  }
}

// ---- launches

bool suits_mma(std::initializer_list<const View*> views) {
  const View& x = **views.begin();
  const int64_t d = x.size[3];
  return x.dtype == DType::kBF16 && (d == 32 || d == 64 || d == 96 || d == 128) && rows_aligned<bf16>(views);
}

template <class F>
void with_mma_dim(int64_t d, const F& f) {
  if (d == 32) f(Dim<32>{});
  if (d == 64) f(Dim<64>{});
  if (d == 96) f(Dim<96>{});
  if (d == 128) f(Dim<128>{});
}

}  // namespace

}  // namespace tally::cuda
