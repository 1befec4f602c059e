// Dropout on CUDA: random words are computed where they are used. Contiguous tensors go in 16-byte accesses, a Philox
// call for four elements; other layouts go by groups of four elements of the logical order, with one call each.
#include "tally/ops/dropout_kernels.h"

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 2;  // vectors of a thread in flight

struct Mask {
  uint64_t seed, first;
  const int64_t* step;  // null: none
  uint32_t least;       // an element is kept when its word >> 8 is at least this
  float scale;

  __device__ __forceinline__ uint64_t stream() const {
    return step != nullptr ? first + static_cast<uint64_t>(*step) * kDropoutSteps : first;
  }
  __device__ __forceinline__ float apply(uint32_t word, float x) const {
    return word >> 8 >= least ? __fmul_rn(x, scale) : 0.0f;
  }
};

// x and out contiguous and aligned.
template <class T>
__global__ void __launch_bounds__(kThreads) vector_kernel(Mask mask, const T* x, T* out, int64_t n) {
  constexpr int kV = kVector<T>;
  const uint64_t stream = mask.stream();
  const int64_t vectors = n / kV, step = int64_t{gridDim.x} * kThreads;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t first = thread; first < vectors; first += step * kAhead) {
    float v[kAhead][kV];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (first + u * step < vectors) load_vector(x + (first + u * step) * kV, v[u]);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int64_t k = first + u * step;
      if (k >= vectors) break;
#pragma unroll
      for (int i = 0; i < kV; i += 4) {
        const Random4 r = philox(mask.seed, stream, static_cast<uint64_t>(k) * (kV / 4) + i / 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) v[u][i + j] = mask.apply(r.v[j], v[u][i + j]);
      }
      store_vector(out + k * kV, v[u]);
    }
  }
  const int64_t tail = vectors * kV + thread;
  if (tail < n)
    store_one(out + tail, mask.apply(random_u32(mask.seed, stream, static_cast<uint64_t>(tail)), load_one(x + tail)));
}

template <class X, class Y>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(Mask mask, const __grid_constant__ View x, const __grid_constant__ View out, int64_t n) {
  const uint64_t stream = mask.stream();
  const int64_t groups = (n + 3) / 4, step = int64_t{gridDim.x} * kThreads;
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < groups; group += step) {
    const Random4 r = philox(mask.seed, stream, static_cast<uint64_t>(group));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t k = 4 * group + j;
      if (k >= n) break;
      const float v = load_one(x.ptr<X>() + offset_of(x.size, x.stride, k));
      store_one(out.ptr<Y>() + offset_of(out.size, out.stride, k), mask.apply(r.v[j], v));
    }
  }
}

}  // namespace

void dropout(const DropoutArgs& a) {
  const int64_t n = a.out.numel();
  if (n == 0) return;
  // uniform_from_u32(w) >= p exactly when w >> 8 >= p 2^24
  const Mask mask{a.seed, a.stream, a.step.size.rank > 0 ? a.step.ptr<int64_t>() : nullptr,
                  static_cast<uint32_t>(__builtin_ceil(static_cast<double>(a.p) * 0x1p24)), a.scale};
  const cudaStream_t stream = stream_of(a.device());
  with_float("dropout", a.x.dtype, [&](auto x_tag) {
    with_float("dropout", a.out.dtype, [&](auto out_tag) {
      using X = decltype(x_tag);
      using Y = decltype(out_tag);
      if constexpr (std::is_same_v<X, Y>) {
        if (a.x.contiguous() && a.out.contiguous() && aligned<X>(a.x.data, 0) && aligned<X>(a.out.data, 0)) {
          const unsigned blocks = blocks_for(n, int64_t{kThreads} * kVector<X>);
          vector_kernel<X><<<blocks, kThreads, 0, stream>>>(mask, a.x.ptr<X>(), a.out.ptr<X>(), n);
          check_launch("dropout");
          return;
        }
      }
      strided_kernel<X, Y><<<blocks_for(n, 4 * kThreads), kThreads, 0, stream>>>(mask, a.x, a.out, n);
      check_launch("dropout");
    });
  });
}

}  // namespace tally::cuda
