// Running sums and products on CUDA, in f64 (64 bits for integers). Where the axis is the last one a block has a row:
// it takes 256 elements at a time, joins them in warps by shuffles, then the warps, and carries the end on. Else a
// thread has a column.
#include "tally/ops/device_rows.cuh"
#include "tally/ops/order_keys.h"
#include "tally/ops/scan_kernels.h"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__device__ __forceinline__ double number_at(const T* p) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>) {
    return *p;
  } else {
    return to_float(*p);
  }
}
__device__ __forceinline__ void write_at(double* p, double x) { *p = x; }
__device__ __forceinline__ void write_at(float* p, double x) { *p = static_cast<float>(x); }
__device__ __forceinline__ void write_at(bf16* p, double x) { *p = to_bf16(static_cast<float>(x)); }
__device__ __forceinline__ void write_at(f16* p, double x) { *p = to_f16(static_cast<float>(x)); }

// What numbers of type T are joined in and written as.
template <class T, bool kWhole = std::is_integral_v<T>>
struct Sums {
  using Number = double;
  using Out = T;
  static __device__ __forceinline__ double load(const T* p) { return number_at(p); }
  static __device__ __forceinline__ void store(T* p, double x) { write_at(p, x); }
};
template <class T>
struct Sums<T, true> {
  using Number = unsigned long long;
  using Out = int64_t;
  static __device__ __forceinline__ Number load(const T* p) { return static_cast<Number>(static_cast<long long>(*p)); }
  static __device__ __forceinline__ void store(int64_t* p, Number x) { *p = static_cast<int64_t>(x); }
};

struct Scan {
  const void* x;
  void* out;
  Space x_at, out_at;  // of the other axes
  int64_t lanes, n, along_x, along_out;
  bool product, reverse;
};

template <class N>
__device__ __forceinline__ N joined(bool product, N a, N b) {
  return product ? a * b : a + b;
}

template <class T>
__global__ void __launch_bounds__(kThreads) row_kernel(const __grid_constant__ Scan a) {
  using S = Sums<T>;
  using N = typename S::Number;
  constexpr int kWarps = kThreads / kWarp;
  __shared__ N ends[kWarps];
  let_next_start();
  wait_for_previous();
  const int t = static_cast<int>(threadIdx.x), lane = t % kWarp, warp = t / kWarp;
  const N neutral = a.product ? N(1) : N(0);
  for (int64_t row = blockIdx.x; row < a.lanes; row += gridDim.x) {
    const T* x = static_cast<const T*>(a.x) + offset_in(a.x_at, row);
    typename S::Out* out = static_cast<typename S::Out*>(a.out) + offset_in(a.out_at, row);
    N carry = neutral;
    for (int64_t start = 0; start < a.n; start += kThreads) {
      const int64_t i = start + t, r = a.reverse ? a.n - 1 - i : i;
      N value = i < a.n ? S::load(x + r * a.along_x) : neutral;
#pragma unroll
      for (int w = 1; w < kWarp; w *= 2) {
        const N other = __shfl_up_sync(kAll, value, w);
        if (lane >= w) value = joined(a.product, other, value);
      }
      if (lane == kWarp - 1) ends[warp] = value;
      __syncthreads();
      N before = carry;
      for (int w = 0; w < warp; ++w) before = joined(a.product, before, ends[w]);
      for (int w = 0; w < kWarps; ++w) carry = joined(a.product, carry, ends[w]);
      if (i < a.n) S::store(out + r * a.along_out, joined(a.product, before, value));
      __syncthreads();  // before the ends are written again
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) column_kernel(const __grid_constant__ Scan a) {
  using S = Sums<T>;
  using N = typename S::Number;
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < a.lanes; k += step) {
    const T* x = static_cast<const T*>(a.x) + offset_in(a.x_at, k);
    typename S::Out* out = static_cast<typename S::Out*>(a.out) + offset_in(a.out_at, k);
    N value = a.product ? N(1) : N(0);
    for (int64_t i = 0; i < a.n; ++i) {
      const int64_t r = a.reverse ? a.n - 1 - i : i;
      value = joined(a.product, value, S::load(x + r * a.along_x));
      S::store(out + r * a.along_out, value);
    }
  }
}

struct ProductGradient {
  const void *grad, *x, *y;
  void* dx;
  Space grad_at, x_at, y_at, dx_at;
  int64_t lanes, n, along_grad, along_x, along_y, along_dx;
};

// A thread has a lane, from its end.
template <class T>
__global__ void __launch_bounds__(kThreads) product_gradient_kernel(const __grid_constant__ ProductGradient a) {
  let_next_start();
  wait_for_previous();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < a.lanes; k += step) {
    const T* grad = static_cast<const T*>(a.grad) + offset_in(a.grad_at, k);
    const T* x = static_cast<const T*>(a.x) + offset_in(a.x_at, k);
    const T* y = static_cast<const T*>(a.y) + offset_in(a.y_at, k);
    T* dx = static_cast<T*>(a.dx) + offset_in(a.dx_at, k);
    double s = 0, next = 0;
    for (int64_t r = a.n - 1; r >= 0; --r) {
      s = number_at(grad + r * a.along_grad) + next * s;
      next = number_at(x + r * a.along_x);
      write_at(dx + r * a.along_dx, (r > 0 ? number_at(y + (r - 1) * a.along_y) : 1.0) * s);
    }
  }
}

}  // namespace

void scan(const ScanArgs& a) {
  if (a.x.numel() == 0) return;
  const unsigned others = ~(1u << a.axis);
  const int64_t n = a.x.size.v[a.axis];
  const Scan s{a.x.data, a.out.data,           space_of(a.x, others),  space_of(a.out, others), a.x.numel() / n,
               n,        a.x.stride.v[a.axis], a.out.stride.v[a.axis], a.op == ScanOp::kProd,   a.reverse};
  bool rows = n > kWarp;  // by the shape, as the sums' order
  for (int axis = a.axis + 1; axis < a.x.size.rank; ++axis) rows = rows && a.x.size.v[axis] == 1;
  with_ordered(a.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (rows) {
      launch_after(ScanArgs::name, row_kernel<T>, {blocks_for(s.lanes, 1, 1 << 20), kThreads}, a.device(), s);
    } else {
      launch_after(ScanArgs::name, column_kernel<T>, {blocks_for(s.lanes, kThreads, 1 << 20), kThreads}, a.device(), s);
    }
  });
}

void cumprod_backward(const CumprodBackwardArgs& a) {
  if (a.dx.numel() == 0) return;
  const unsigned others = ~(1u << a.axis);
  const int64_t n = a.dx.size.v[a.axis];
  const ProductGradient p{a.grad.data,
                          a.x.data,
                          a.y.data,
                          a.dx.data,
                          space_of(a.grad, others),
                          space_of(a.x, others),
                          space_of(a.y, others),
                          space_of(a.dx, others),
                          a.dx.numel() / n,
                          n,
                          a.grad.stride.v[a.axis],
                          a.x.stride.v[a.axis],
                          a.y.stride.v[a.axis],
                          a.dx.stride.v[a.axis]};
  with_float(CumprodBackwardArgs::name, a.x.dtype, [&](auto tag) {
    launch_after(CumprodBackwardArgs::name, product_gradient_kernel<decltype(tag)>,
                 {blocks_for(p.lanes, kThreads, 1 << 20), kThreads}, a.device(), p);
  });
}

}  // namespace tally::cuda
