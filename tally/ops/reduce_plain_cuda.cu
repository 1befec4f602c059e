// Reductions of integers and truth values, places of extremes and the gradient of a product on CUDA.
#include "tally/ops/order_keys.h"
#include "tally/ops/reduce_lanes.cuh"
#include "tally/ops/reduce_plain_kernels.h"

namespace tally::cuda {

namespace {

template <class T>
__device__ __forceinline__ bool is_true(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x != 0;
  } else {
    return (x.bits & 0x7FFFu) != 0;
  }
}
template <class T>
__device__ __forceinline__ unsigned long long whole(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<unsigned long long>(static_cast<long long>(x));
  } else {
    return 0;
  }
}

struct Plain {
  Outputs o;
  const void* x;
  void* out;
  PlainOp op;
};

__device__ __forceinline__ unsigned long long join_whole(PlainOp op, unsigned long long a, unsigned long long b) {
  const long long x = static_cast<long long>(a), y = static_cast<long long>(b);
  switch (op) {
    case PlainOp::kSum:
      return a + b;
    case PlainOp::kProd:
      return a * b;
    case PlainOp::kMax:
      return x > y ? a : b;
    case PlainOp::kMin:
      return x < y ? a : b;
    case PlainOp::kAny:
      return a | b;
    default:
      return a & b;
  }
}

template <class T>
__global__ void __launch_bounds__(kReduceThreads) plain_kernel(const __grid_constant__ Plain a) {
  using N = unsigned long long;
  __shared__ N shared[kReduceThreads];
  let_next_start();
  wait_for_previous();
  const T* x = static_cast<const T*>(a.x);
  const bool truth = a.op == PlainOp::kAny || a.op == PlainOp::kAll;
  const N neutral = a.op == PlainOp::kMax                             ? N{1} << 63
                    : a.op == PlainOp::kMin                           ? ~(N{1} << 63)
                    : a.op == PlainOp::kProd || a.op == PlainOp::kAll ? N{1}
                                                                      : N{0};
  over_outputs<N>(
      a.o, neutral, shared,
      [&](N value, int64_t at, int64_t, int64_t) {
        return join_whole(a.op, value, truth ? N{is_true(x[at])} : whole(x[at]));
      },
      [&](N p, N q) { return join_whole(a.op, p, q); },
      [&](int64_t, int64_t at, N value) {
        if (truth) {
          static_cast<uint8_t*>(a.out)[at] = static_cast<uint8_t>(value);
        } else if (a.op == PlainOp::kSum || a.op == PlainOp::kProd) {
          static_cast<int64_t*>(a.out)[at] = static_cast<int64_t>(value);
        } else if constexpr (std::is_integral_v<T>) {
          static_cast<T*>(a.out)[at] = static_cast<T>(value);
        }
      });
}

// ---- places of extremes

struct Best {
  unsigned long long key;  // the wanted one is the largest
  long long place;         // -1: none yet
};
__device__ __forceinline__ Best better(Best a, Best b) {
  if (a.place < 0) return b;
  if (b.place < 0) return a;
  return b.key > a.key || (b.key == a.key && b.place < a.place) ? b : a;
}

struct Places {
  Outputs o;
  const void* x;
  int64_t* out;
  bool least;
};

template <class T>
__global__ void __launch_bounds__(kReduceThreads) place_kernel(const __grid_constant__ Places a) {
  __shared__ Best shared[kReduceThreads];
  let_next_start();
  wait_for_previous();
  const T* x = static_cast<const T*>(a.x);
  over_outputs<Best>(
      a.o, Best{0, -1}, shared,
      [&](Best value, int64_t at, int64_t r, int64_t) {
        using Key = decltype(order_key(T{}));
        Key key = order_key(x[at]);
        const bool nan = !std::is_integral_v<T> && key == static_cast<Key>(~Key{0});
        if (a.least && !nan) key = static_cast<Key>(~key);
        return better(value, Best{key, r});
      },
      [](Best p, Best q) { return better(p, q); }, [&](int64_t, int64_t at, Best value) { a.out[at] = value.place; });
}

// ---- the gradient of a product

struct Product {
  const void *grad, *x;
  void* dx;
  Space kept_x, kept_dx, kept_grad, reduced_x, reduced_dx;
  int64_t outputs, elements;
};

// A warp has an output.
template <class T>
__global__ void __launch_bounds__(kReduceThreads) product_kernel(const __grid_constant__ Product a) {
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t step = int64_t{gridDim.x} * (kReduceThreads / kWarp);
  for (int64_t k = (int64_t{blockIdx.x} * kReduceThreads + threadIdx.x) / kWarp; k < a.outputs; k += step) {
    const T* x = static_cast<const T*>(a.x) + offset_in(a.kept_x, k);
    T* dx = static_cast<T*>(a.dx) + offset_in(a.kept_dx, k);
    double product = 1;
    int zeros = 0;
    for (int64_t r = lane; r < a.elements; r += kWarp) {
      const double v = load_one(x + offset_in(a.reduced_x, r));
      if (v == 0) {
        zeros = min(zeros + 1, 2);
      } else {
        product *= v;
      }
    }
#pragma unroll
    for (int w = kWarp / 2; w > 0; w /= 2) {
      product *= __shfl_xor_sync(kAll, product, w);
      zeros += __shfl_xor_sync(kAll, zeros, w);
    }
    product *= load_one(static_cast<const T*>(a.grad) + offset_in(a.kept_grad, k));
    for (int64_t r = lane; r < a.elements; r += kWarp) {
      const double v = load_one(x + offset_in(a.reduced_x, r));
      const double d = zeros == 0 ? product / v : zeros == 1 && v == 0 ? product : 0.0;
      store_one(dx + offset_in(a.reduced_dx, r), static_cast<float>(d));
    }
  }
}

}  // namespace

void reduce_plain(const ReducePlainArgs& a) {
  if (a.out.numel() == 0) return;
  const Plain p{outputs_of(a.x, a.out), a.x.data, a.out.data, a.op};
  with_ordered(a.x.dtype, [&](auto tag) {
    launch_after(ReducePlainArgs::name, plain_kernel<decltype(tag)>, {blocks_of(p.o), kReduceThreads}, a.device(), p);
  });
}

void arg_reduce(const ArgReduceArgs& a) {
  if (a.out.numel() == 0) return;
  const Places p{outputs_of(a.x, a.out), a.x.data, a.out.ptr<int64_t>(), a.least};
  with_ordered(a.x.dtype, [&](auto tag) {
    launch_after(ArgReduceArgs::name, place_kernel<decltype(tag)>, {blocks_of(p.o), kReduceThreads}, a.device(), p);
  });
}

void prod_backward(const ProdBackwardArgs& a) {
  if (a.dx.numel() == 0) return;
  unsigned axes = 0;
  for (int axis = 0; axis < a.x.size.rank; ++axis)
    if (a.x.size.v[axis] != a.grad.size.v[axis]) axes |= 1u << axis;
  const Product p{a.grad.data,
                  a.x.data,
                  a.dx.data,
                  space_of(a.x, ~axes),
                  space_of(a.dx, ~axes),
                  space_of(a.grad, ~axes),
                  space_of(a.x, axes),
                  space_of(a.dx, axes),
                  a.grad.numel(),
                  a.x.numel() / a.grad.numel()};
  with_float(ProdBackwardArgs::name, a.x.dtype, [&](auto tag) {
    launch_after(ProdBackwardArgs::name, product_kernel<decltype(tag)>,
                 {blocks_for(p.outputs, kReduceThreads / kWarp, 1 << 20), kReduceThreads}, a.device(), p);
  });
}

}  // namespace tally::cuda
