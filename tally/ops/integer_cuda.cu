// Arithmetic of integers on CUDA: one kernel an op, in i64, whatever the dtypes.
#include <utility>

#include "tally/ops/integer_kernels.h"
#include "tally/ops/plain_cuda.cuh"

namespace tally::cuda {

namespace {

struct Task {
  PlainAxes<3> axes;  // out, a, b
  DType a, b, out;
  IntegerArgs::Number number;
  int64_t value, count;
};

template <IntegerOp op>
__global__ void __launch_bounds__(kPlainThreads) integer_kernel(const __grid_constant__ Task t) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kPlainThreads;
  for (int64_t i = int64_t{blockIdx.x} * kPlainThreads + threadIdx.x; i < t.count; i += step) {
    int64_t at[3];
    places(t.axes, i, at);
    const int64_t a = t.number == IntegerArgs::kA ? t.value : read_integer(t.axes.data[1], t.a, at[1]);
    const int64_t b = t.number == IntegerArgs::kB ? t.value : read_integer(t.axes.data[2], t.b, at[2]);
    const int64_t y = integer_value<op>(wrap_integer(t.out, a), wrap_integer(t.out, b));
    write_number_bits(const_cast<void*>(t.axes.data[0]), item_size(t.out), at[0],
                      static_cast<uint64_t>(wrap_integer(t.out, y)));
  }
}

using Kernel = void (*)(Task);

template <int... i>
Kernel kernel_of(IntegerOp op, std::integer_sequence<int, i...>) {
  static constexpr Kernel kKernels[] = {integer_kernel<static_cast<IntegerOp>(i)>...};
  return kKernels[static_cast<int>(op)];
}

}  // namespace

void integer(const IntegerArgs& args) {
  const View& a = args.number == IntegerArgs::kA ? args.b : args.a;
  const View& b = args.number == IntegerArgs::kB ? args.a : args.b;
  const Task t = {
      plain_axes<3>({args.out, a, b}), a.dtype, b.dtype, args.out.dtype, args.number, args.value, args.out.numel()};
  if (t.count == 0) return;
  launch_after(IntegerArgs::name, kernel_of(args.op, std::make_integer_sequence<int, kIntegerOps>()),
               {blocks_for(t.count, kPlainThreads), kPlainThreads}, args.device(), t);
}

}  // namespace tally::cuda
