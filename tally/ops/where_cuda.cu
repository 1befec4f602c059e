// Choices and triangles on CUDA: bits are moved, one kernel an element's width.
#include "tally/ops/where_kernels.h"

#include "tally/ops/plain_cuda.cuh"

namespace tally::cuda {

namespace {

struct WhereTask {
  PlainAxes<4> axes;  // out, condition, a, b
  bool a_number, b_number;
  uint64_t a_bits, b_bits;
  int64_t count;
};

template <class T>
__global__ void __launch_bounds__(kPlainThreads) where_kernel(const __grid_constant__ WhereTask t) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kPlainThreads;
  for (int64_t i = int64_t{blockIdx.x} * kPlainThreads + threadIdx.x; i < t.count; i += step) {
    int64_t at[4];
    places(t.axes, i, at);
    const bool first = static_cast<const uint8_t*>(t.axes.data[1])[at[1]] != 0;
    const bool number = first ? t.a_number : t.b_number;
    const T* p = static_cast<const T*>(t.axes.data[first ? 2 : 3]);
    const T y = number ? static_cast<T>(first ? t.a_bits : t.b_bits) : p[first ? at[2] : at[3]];
    static_cast<T*>(const_cast<void*>(t.axes.data[0]))[at[0]] = y;
  }
}

struct TriangleTask {
  View x, out;
  int64_t diagonal, count;
  bool upper;
};

template <class T>
__global__ void __launch_bounds__(kPlainThreads) triangle_kernel(const __grid_constant__ TriangleTask t) {
  let_next_start();
  wait_for_previous();
  const int last = t.out.size.rank - 1;
  const int64_t columns = t.out.size.v[last], rows = t.out.size.v[last - 1];
  const int64_t step = int64_t{gridDim.x} * kPlainThreads;
  for (int64_t k = int64_t{blockIdx.x} * kPlainThreads + threadIdx.x; k < t.count; k += step) {
    const int64_t row = k / columns, j = k - row * columns, i = row % rows;
    const bool keep = t.upper ? j - i >= t.diagonal : j - i <= t.diagonal;
    const T y = keep ? t.x.ptr<T>()[offset_of(t.x.size, t.x.stride, k)] : T{0};
    t.out.ptr<T>()[offset_of(t.out.size, t.out.stride, k)] = y;
  }
}

// f(T{}) for the unsigned integer of `size` bytes.
template <class F>
void with_bits(int64_t size, const F& f) {
  if (size == 8) return f(uint64_t{});
  if (size == 4) return f(uint32_t{});
  if (size == 2) return f(uint16_t{});
  f(uint8_t{});
}

}  // namespace

void where(const WhereArgs& args) {
  const View& a = args.a_number ? args.condition : args.a;
  const View& b = args.b_number ? args.condition : args.b;
  const WhereTask t = {plain_axes<4>({args.out, args.condition, a, b}),
                       args.a_number,
                       args.b_number,
                       args.a_bits,
                       args.b_bits,
                       args.out.numel()};
  if (t.count == 0) return;
  with_bits(item_size(args.out.dtype), [&](auto tag) {
    launch_after(WhereArgs::name, where_kernel<decltype(tag)>, {blocks_for(t.count, kPlainThreads), kPlainThreads},
                 args.device(), t);
  });
}

void triangle(const TriangleArgs& args) {
  const TriangleTask t = {args.x, args.out, args.diagonal, args.out.numel(), args.upper};
  if (t.count == 0) return;
  with_bits(item_size(args.out.dtype), [&](auto tag) {
    launch_after(TriangleArgs::name, triangle_kernel<decltype(tag)>,
                 {blocks_for(t.count, kPlainThreads), kPlainThreads}, args.device(), t);
  });
}

}  // namespace tally::cuda
