// The rotation of a pair on CUDA, for rope_cuda.cu and cache_cuda.cu.
#pragma once

#include "tally/ops/device.cuh"

namespace tally::cuda {

// Products and sums are rounded one by one, so bits are the CPU's.
__device__ __forceinline__ void turn(float& first, float& second, float c, float s) {
  const float x = first, y = second;
  first = __fsub_rn(__fmul_rn(x, c), __fmul_rn(y, s));
  second = __fadd_rn(__fmul_rn(y, c), __fmul_rn(x, s));
}

}  // namespace tally::cuda
