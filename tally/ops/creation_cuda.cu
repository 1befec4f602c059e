#include "tally/ops/creation_kernels.h"

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) sequence_kernel(const __grid_constant__ SequenceArgs a, int64_t n) {
  let_next_start();
  wait_for_previous();
  const int64_t item = item_size(a.out.dtype);
  const bool flat = a.out.contiguous();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads)
    write_number_bits(a.out.data, item, flat ? i : offset_of(a.out.size, a.out.stride, i), sequence_bits(a, i, n));
}

}  // namespace

void sequence(const SequenceArgs& a) {
  const int64_t n = a.out.numel();
  if (n == 0) return;
  launch_after(SequenceArgs::name, sequence_kernel, {blocks_for(n, kThreads), kThreads}, a.device(), a, n);
}

}  // namespace tally::cuda
