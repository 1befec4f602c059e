// Integer products on CUDA: a thread a number of c.
#include "tally/ops/device.cuh"
#include "tally/ops/matmul_int_kernels.h"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) matmul_int_kernel(const __grid_constant__ MatmulIntArgs p, int64_t numel) {
  let_next_start();
  wait_for_previous();
  const int64_t depth = p.a.size.v[2], step = int64_t{gridDim.x} * kThreads;
  const int64_t rows = p.c.size.v[1], columns = p.c.size.v[2];
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < numel; i += step) {
    const int64_t line = i / columns, column = i - line * columns, batch = line / rows, row = line - batch * rows;
    const T* a = static_cast<const T*>(p.a.data) + batch * p.a.stride.v[0] + row * p.a.stride.v[1];
    const T* b = static_cast<const T*>(p.b.data) + batch * p.b.stride.v[0] + column * p.b.stride.v[2];
    uint64_t sum = 0;
    for (int64_t k = 0; k < depth; ++k)
      sum += static_cast<uint64_t>(a[k * p.a.stride.v[2]]) * static_cast<uint64_t>(b[k * p.b.stride.v[1]]);
    static_cast<T*>(p.c.data)[batch * p.c.stride.v[0] + row * p.c.stride.v[1] + column * p.c.stride.v[2]] =
        static_cast<T>(sum);
  }
}

template <class T>
void multiply(const MatmulIntArgs& p) {
  const int64_t numel = p.c.numel();
  launch_after(MatmulIntArgs::name, matmul_int_kernel<T>, {blocks_for(numel, kThreads), kThreads}, p.device(), p,
               numel);
}

}  // namespace

void matmul_int(const MatmulIntArgs& p) {
  if (p.c.numel() == 0) return;
  with_unsigned(p.c.dtype, [&](auto number) { multiply<decltype(number)>(p); });
}

}  // namespace tally::cuda
