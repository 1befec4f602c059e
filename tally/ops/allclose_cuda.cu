// Integers are added atomically: their sum does not depend on the order.
#include "tally/ops/allclose_kernels.h"

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ CountUnequalArgs c, int64_t n) {
  let_next_start();
  wait_for_previous();
  const bool flat = c.a.contiguous() && c.b.contiguous();
  unsigned long long count = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads)
    count += !is_close(c, flat ? i : offset_of(c.a.size, c.a.stride, i), flat ? i : offset_of(c.b.size, c.b.stride, i));
#pragma unroll
  for (int w = kWarp / 2; w > 0; w /= 2) count += __shfl_xor_sync(kAll, count, w);
  if (threadIdx.x % kWarp == 0 && count != 0) atomicAdd(static_cast<unsigned long long*>(c.out.data), count);
}

}  // namespace

void count_unequal(const CountUnequalArgs& c) {
  const int64_t n = c.a.numel();
  if (n == 0) return;
  launch_after(CountUnequalArgs::name, count_kernel, {blocks_for(n, kThreads), kThreads}, c.device(), c, n);
}

}  // namespace tally::cuda
