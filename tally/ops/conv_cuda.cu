// Depthwise convolutions on CUDA: a thread an element of y or dx, a block a number of dw, whose threads take every
// 256th place and join in a fixed tree.
#include "tally/ops/conv_kernels.h"
#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kThreads = 256;

// Coordinates of logical element k of a rank-4 view.
struct Place {
  int64_t n, c, p, q;
};
__device__ __forceinline__ Place place_of(const Dims& size, int64_t k) {
  Place at;
  const int64_t lines = k / size.v[3], channels = lines / size.v[2];
  at.q = k - lines * size.v[3], at.p = lines - channels * size.v[2];
  at.n = channels / size.v[1], at.c = channels - at.n * size.v[1];
  return at;
}
__device__ __forceinline__ int64_t offset_at(const View& v, int64_t n, int64_t c, int64_t p, int64_t q) {
  return n * v.stride.v[0] + c * v.stride.v[1] + p * v.stride.v[2] + q * v.stride.v[3];
}
__device__ __forceinline__ int64_t weight_at(const View& w, int64_t o, int64_t i, int64_t j) {
  return o * w.stride.v[0] + i * w.stride.v[1] + j * w.stride.v[2];
}
__device__ __forceinline__ ConvAxis axis_of(const Dims& how, const Dims& w, int i) {
  return {how.v[i], how.v[2 + i], how.v[4 + i], w.v[w.rank - 2 + i]};
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ ConvDepthwiseArgs a, int64_t numel) {
  let_next_start();
  wait_for_previous();
  const ConvAxis h = axis_of(a.how, a.w.size, 0), w = axis_of(a.how, a.w.size, 1);
  const int64_t each = a.y.size.v[1] / a.x.size.v[1];
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < numel; k += int64_t{gridDim.x} * kThreads) {
    const Place at = place_of(a.y.size, k);
    float sum = 0;
    for (int64_t i = 0; i < h.taps; ++i) {
      const int64_t p = at.p * h.stride - h.padding + i * h.dilation;
      if (p < 0 || p >= a.x.size.v[2]) continue;
      for (int64_t j = 0; j < w.taps; ++j) {
        const int64_t q = at.q * w.stride - w.padding + j * w.dilation;
        if (q < 0 || q >= a.x.size.v[3]) continue;
        sum += load_one(static_cast<const T*>(a.w.data) + weight_at(a.w, at.c, i, j)) *
               load_one(static_cast<const T*>(a.x.data) + offset_at(a.x, at.n, at.c / each, p, q));
      }
    }
    if (a.has_bias) sum += load_one(static_cast<const T*>(a.bias.data) + at.c * a.bias.stride.v[0]);
    store_one(static_cast<T*>(a.y.data) + offset_at(a.y, at.n, at.c, at.p, at.q), sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    input_kernel(const __grid_constant__ ConvDepthwiseInputArgs a, int64_t numel) {
  let_next_start();
  wait_for_previous();
  const ConvAxis h = axis_of(a.how, a.w.size, 0), w = axis_of(a.how, a.w.size, 1);
  const int64_t each = a.grad.size.v[1] / a.dx.size.v[1];
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < numel; k += int64_t{gridDim.x} * kThreads) {
    const Place at = place_of(a.dx.size, k);
    float sum = 0;
    for (int64_t o = at.c * each; o < (at.c + 1) * each; ++o)
      for (int64_t i = 0; i < h.taps; ++i) {
        const int64_t above = at.p + h.padding - i * h.dilation, p = above / h.stride;
        if (above < 0 || above - p * h.stride != 0 || p >= a.grad.size.v[2]) continue;
        for (int64_t j = 0; j < w.taps; ++j) {
          const int64_t left = at.q + w.padding - j * w.dilation, q = left / w.stride;
          if (left < 0 || left - q * w.stride != 0 || q >= a.grad.size.v[3]) continue;
          sum += load_one(static_cast<const T*>(a.w.data) + weight_at(a.w, o, i, j)) *
                 load_one(static_cast<const T*>(a.grad.data) + offset_at(a.grad, at.n, o, p, q));
        }
      }
    store_one(static_cast<T*>(a.dx.data) + offset_at(a.dx, at.n, at.c, at.p, at.q), sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(const __grid_constant__ ConvDepthwiseWeightArgs a, int64_t numbers) {
  __shared__ float shared[kThreads / kWarp];
  let_next_start();
  wait_for_previous();
  const ConvAxis h = axis_of(a.how, a.dw.size, 0), w = axis_of(a.how, a.dw.size, 1);
  const int64_t taps = h.taps * w.taps, each = a.grad.size.v[1] / a.x.size.v[1];
  const int64_t lines = a.grad.size.v[2], width = a.grad.size.v[3], places = a.grad.size.v[0] * lines * width;
  for (int64_t number = blockIdx.x; number < numbers; number += gridDim.x) {
    const int64_t o = number / taps, tap = number - o * taps, i = tap / w.taps, j = tap - i * w.taps;
    float sum = 0;
    for (int64_t k = threadIdx.x; k < places; k += kThreads) {
      const int64_t row = k / width, out_q = k - row * width, n = row / lines, out_p = row - n * lines;
      const int64_t p = out_p * h.stride - h.padding + i * h.dilation,
                    q = out_q * w.stride - w.padding + j * w.dilation;
      if (p < 0 || p >= a.x.size.v[2] || q < 0 || q >= a.x.size.v[3]) continue;
      sum += load_one(static_cast<const T*>(a.grad.data) + offset_at(a.grad, n, o, out_p, out_q)) *
             load_one(static_cast<const T*>(a.x.data) + offset_at(a.x, n, o / each, p, q));
    }
    sum = block_sum<kThreads>(sum, shared);
    if (threadIdx.x == 0) static_cast<float*>(a.dw.data)[weight_at(a.dw, o, i, j)] = sum;
  }
}

}  // namespace

void conv_depthwise(const ConvDepthwiseArgs& a) {
  const int64_t numel = a.y.numel();
  if (numel == 0) return;
  with_float(ConvDepthwiseArgs::name, a.y.dtype, [&](auto tag) {
    launch_after(ConvDepthwiseArgs::name, forward_kernel<decltype(tag)>, {blocks_for(numel, kThreads), kThreads},
                 a.device(), a, numel);
  });
}

void conv_depthwise_input(const ConvDepthwiseInputArgs& a) {
  const int64_t numel = a.dx.numel();
  if (numel == 0) return;
  with_float(ConvDepthwiseInputArgs::name, a.dx.dtype, [&](auto tag) {
    launch_after(ConvDepthwiseInputArgs::name, input_kernel<decltype(tag)>, {blocks_for(numel, kThreads), kThreads},
                 a.device(), a, numel);
  });
}

void conv_depthwise_weight(const ConvDepthwiseWeightArgs& a) {
  const int64_t numbers = a.dw.numel();
  if (numbers == 0) return;
  if (a.dw.dtype != DType::kF32) detail::wrong_dtype(ConvDepthwiseWeightArgs::name, static_cast<int>(a.dw.dtype));
  with_float(ConvDepthwiseWeightArgs::name, a.x.dtype, [&](auto tag) {
    launch_after(ConvDepthwiseWeightArgs::name, weight_kernel<decltype(tag)>, {blocks_for(numbers, 1, 65535), kThreads},
                 a.device(), a, numbers);
  });
}

}  // namespace tally::cuda
