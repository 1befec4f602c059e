// Indices on CUDA: joined a thread an element; nonzero gives a piece to a block, which counts by votes of its warps.
#include "tally/core/number.h"
#include "tally/ops/device.cuh"
#include "tally/ops/indexing_kernels.h"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

__global__ void __launch_bounds__(kThreads)
    linear_index_kernel(const __grid_constant__ LinearIndexArgs a, int64_t numel) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < numel; k += step) {
    int64_t sum = 0;
    bool good = true;
    for (int i = 0; i < a.count; ++i) {
      const View& v = a.ids[i];
      const int64_t at = offset_of(a.out.size, v.stride, k), n = a.size.v[i];
      const int64_t id =
          v.dtype == DType::kI64 ? static_cast<const int64_t*>(v.data)[at] : static_cast<const int32_t*>(v.data)[at];
      good = good && id >= -n && id < n;
      sum += (id < 0 ? id + n : id) * a.step.v[i];
    }
    static_cast<int64_t*>(a.out.data)[k] = good ? sum : -1;
    if (!good) atomicMin(static_cast<long long*>(a.bad.data), static_cast<long long>(k));
  }
}

__device__ __forceinline__ bool is_set(const View& x, int64_t k) {
  return x.dtype == DType::kBool || x.dtype == DType::kU8 || x.dtype == DType::kI8
             ? static_cast<const uint8_t*>(x.data)[k] != 0
             : read_number(x.data, x.dtype, k) != 0;
}

// Writes the coordinates of the block's piece, or its count where there is no `out`.
__global__ void __launch_bounds__(kThreads) nonzero_kernel(const __grid_constant__ View x, int64_t numel,
                                                           const int64_t* begins, int64_t* counts, int64_t* out) {
  __shared__ int warp_counts[kWarps];
  let_next_start();
  wait_for_previous();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, rank = x.size.rank;
  const int64_t pieces = (numel + Nonzero::kPiece - 1) / Nonzero::kPiece;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t first = piece * Nonzero::kPiece;
    const int64_t last = first + Nonzero::kPiece < numel ? first + Nonzero::kPiece : numel;
    int64_t before = out != nullptr ? begins[piece] : 0;
    for (int64_t start = first; start < last; start += kThreads) {
      const int64_t k = start + threadIdx.x;
      const bool set = k < last && is_set(x, k);
      const unsigned votes = __ballot_sync(kAll, set);
      if (lane == 0) warp_counts[warp] = __popc(votes);
      __syncthreads();
      int mine = 0, all = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        mine += w < warp ? warp_counts[w] : 0;
        all += warp_counts[w];
      }
      if (set && out != nullptr) {
        int64_t* const to = out + (before + mine + __popc(votes & ((1u << lane) - 1))) * rank;
        int64_t rest = k;
        for (int axis = rank - 1; axis > 0; --axis) {
          const int64_t above = rest / x.size.v[axis];
          to[axis] = rest - above * x.size.v[axis];
          rest = above;
        }
        if (rank > 0) to[0] = rest;
      }
      before += all;
      __syncthreads();  // before the counts are used again
    }
    if (out == nullptr && threadIdx.x == 0) counts[piece] = before;
  }
}

void over_pieces(const char* name, Device device, const View& x, const int64_t* begins, int64_t* counts, int64_t* out) {
  const int64_t numel = x.numel();
  if (numel == 0) return;
  launch_after(name, nonzero_kernel, {blocks_for(numel, Nonzero::kPiece), kThreads}, device, x, numel, begins, counts,
               out);
}

}  // namespace

void linear_index(const LinearIndexArgs& a) {
  const int64_t numel = a.out.numel();
  if (numel == 0) return;
  launch_after(LinearIndexArgs::name, linear_index_kernel, {blocks_for(numel, kThreads), kThreads}, a.device(), a,
               numel);
}

void nonzero_count(const NonzeroCountArgs& a) {
  over_pieces(NonzeroCountArgs::name, a.device(), a.x, nullptr, a.counts.ptr<int64_t>(), nullptr);
}

void nonzero(const NonzeroArgs& a) {
  if (a.out.numel() == 0) return;
  over_pieces(NonzeroArgs::name, a.device(), a.x, a.begins.ptr<int64_t>(), nullptr, a.out.ptr<int64_t>());
}

}  // namespace tally::cuda
