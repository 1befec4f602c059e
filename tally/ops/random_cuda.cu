// Draws on CUDA: a thread has four elements one behind the other, which share a Philox call where random_kernels.h says
// so. Offsets of other than contiguous views are divided out of the logical index.
#include "tally/ops/random_kernels.h"

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    random_kernel(const __grid_constant__ RandomArgs a, int64_t n, bool flat, bool words) {
  let_next_start();
  wait_for_previous();
  const int64_t groups = (n + 3) / 4, item = item_size(a.out.dtype);
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < groups;
       group += int64_t{gridDim.x} * kThreads) {
    Random4 r = {};
    if (words) r = philox(a.seed, a.stream, static_cast<uint64_t>(group));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t k = 4 * group + j;
      if (k >= n) break;
      if (!words) r = philox(a.seed, a.stream, static_cast<uint64_t>(k));
      const double p = a.has_p() ? read_number(a.p.data, a.p.dtype, offset_of(a.p.size, a.p.stride, k)) : a.a;
      write_number_bits(a.out.data, item, flat ? k : offset_of(a.out.size, a.out.stride, k),
                        random_bits(a, r, r.v[j], p));
    }
  }
}

}  // namespace

void random(const RandomArgs& a) {
  const int64_t n = a.out.numel();
  if (n == 0) return;
  launch_after(RandomArgs::name, random_kernel, {blocks_for(n, 4 * kThreads), kThreads}, a.device(), a, n,
               a.out.contiguous(), a.words());
}

}  // namespace tally::cuda
