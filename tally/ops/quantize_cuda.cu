// Quantisation on a CUDA device: a thread has 8 neighbouring values, the threads of a block of values (2 or 4 lanes of
// a warp) find its largest magnitude with shuffles. Maxima are taken of bit patterns, so the order does not matter.
#include "tally/ops/elementwise_cuda.cuh"
#include "tally/ops/quantize_kernels.h"

namespace tally::cuda {

namespace {

// 8 values of a contiguous view; those from `valid` on are 0.
struct Values {
  void* data;
  bool half, f16, vector;
};
Values values_of(const View& v) {
  return {v.data, is_half(v.dtype), v.dtype == DType::kF16, reinterpret_cast<uintptr_t>(v.data) % 16 == 0};
}
__device__ __forceinline__ int valid_at(int64_t chunk, int64_t count) {
  const int64_t left = count - chunk * kChunk;
  return left >= kChunk ? kChunk : left > 0 ? static_cast<int>(left) : 0;
}
__device__ __forceinline__ void load_values(const Values& v, int64_t chunk, int valid, float (&x)[kChunk]) {
  unpack(load_chunk(v.data, chunk * kChunk, 1, valid, v.half, v.vector), v.half, v.f16, x);
}

__device__ __forceinline__ uint32_t most_of(const float (&x)[kChunk]) {
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) most = max(most, finite_bits(x[i]));
  return most;
}

__global__ void __launch_bounds__(kThreads)
    largest_kernel(const __grid_constant__ Values v, int64_t count, unsigned* out) {
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  uint32_t most = 0;
  for (int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x; c < chunks; c += int64_t{gridDim.x} * kThreads) {
    float x[kChunk];
    load_values(v, c, valid_at(c, count), x);
    most = max(most, most_of(x));
  }
  most = __reduce_max_sync(kAll, most);
  if (threadIdx.x % kWarp == 0) atomicMax(out, most);
}
__global__ void scale_kernel(QuantFormat format, float* scale) { *scale = tensor_scale_of(format, *scale); }

// Whole warps go round together, as they shuffle.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const __grid_constant__ Values v, QuantFormat format, const float* tensor_scale, uint8_t* codes,
                    uint8_t* scales, int64_t count) {
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  const int lanes = static_cast<int>(quant_block(format) / kChunk), lane = static_cast<int>(threadIdx.x) % kWarp;
  let_next_start();
  wait_for_previous();
  const float of_tensor = has_tensor_scale(format) ? *tensor_scale : 1.0f;
  for (int64_t begin = int64_t{blockIdx.x} * kThreads + threadIdx.x - lane; begin < chunks;
       begin += int64_t{gridDim.x} * kThreads) {
    const int64_t chunk = begin + lane;
    const int valid = valid_at(chunk, count);
    float x[kChunk] = {};
    if (valid > 0) load_values(v, chunk, valid, x);
    float scale = of_tensor;
    if (lanes > 0) {
      uint32_t most = most_of(x);
      bool finite = true;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) finite = finite && is_finite(x[i]);
      for (int w = lanes / 2; w > 0; w /= 2) {
        most = max(most, __shfl_xor_sync(kAll, most, w));
        finite = __shfl_xor_sync(kAll, static_cast<int>(finite), w) != 0 && finite;
      }
      const BlockScale s = block_scale_of(format, __uint_as_float(most), finite, of_tensor);
      scale = s.value;
      if (valid > 0 && chunk % lanes == 0) scales[chunk / lanes] = s.code;
    }
    if (valid == 0) continue;
    uint32_t w[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const uint32_t code = quant_code(format, x[i], scale);
      if (is_f4(format)) {
        w[0] |= code << (i * 4);
      } else {
        w[i / 4] |= code << (i % 4 * 8);
      }
    }
    if (is_f4(format)) {
      reinterpret_cast<uint32_t*>(codes)[chunk] = w[0];
    } else if (valid == kChunk) {
      reinterpret_cast<uint2*>(codes)[chunk] = make_uint2(w[0], w[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i)
        if (i < valid) codes[chunk * kChunk + i] = static_cast<uint8_t>(w[i / 4] >> (i % 4 * 8));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const __grid_constant__ Values out, QuantFormat format, const float* tensor_scale,
                      const uint8_t* codes, const uint8_t* scales, bool aligned_codes, int64_t count) {
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  const int64_t lanes = quant_block(format) / kChunk;
  let_next_start();
  wait_for_previous();
  const float of_tensor = has_tensor_scale(format) ? *tensor_scale : 1.0f;
  for (int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x; c < chunks; c += int64_t{gridDim.x} * kThreads) {
    const int valid = valid_at(c, count), bytes = is_f4(format) ? kChunk / 2 : valid;
    uint32_t w[2] = {0, 0};
    if (aligned_codes && is_f4(format)) {
      w[0] = reinterpret_cast<const uint32_t*>(codes)[c];
    } else if (aligned_codes && valid == kChunk) {
      const uint2 both = reinterpret_cast<const uint2*>(codes)[c];
      w[0] = both.x, w[1] = both.y;
    } else {
      const uint8_t* p = codes + c * (is_f4(format) ? kChunk / 2 : kChunk);
#pragma unroll
      for (int i = 0; i < kChunk; ++i)
        if (i < bytes) w[i / 4] |= static_cast<uint32_t>(p[i]) << (i % 4 * 8);
    }
    const float scale = lanes == 0 ? of_tensor : block_value(format, scales[c / lanes], of_tensor);
    float x[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const uint32_t code = is_f4(format) ? w[0] >> (i * 4) : w[i / 4] >> (i % 4 * 8);
      x[i] = quant_value(format, code, scale);
    }
    store_chunk(out.data, c * kChunk, 1, valid, out.half, out.vector, pack(x, out.half, out.f16));
  }
}

unsigned blocks_of(int64_t count) { return blocks_for(parts(count, kChunk), kThreads); }

}  // namespace

void quantize_scale(const QuantizeScaleArgs& a) {
  const cudaStream_t stream = stream_of(a.device());
  const int64_t count = a.x.numel();
  check_cuda(a.name, cudaMemsetAsync(a.scale.data, 0, sizeof(float), stream));
  if (count > 0) {
    largest_kernel<<<blocks_of(count), kThreads, 0, stream>>>(values_of(a.x), count,
                                                              static_cast<unsigned*>(a.scale.data));
    check_launch(a.name);
  }
  scale_kernel<<<1, 1, 0, stream>>>(a.format, a.scale.ptr<float>());
  check_launch(a.name);
}

void quantize(const QuantizeArgs& a) {
  const int64_t count = a.x.numel();
  if (count == 0) return;
  launch_after(a.name, quantize_kernel, {blocks_of(count), kThreads}, a.device(), values_of(a.x), a.format,
               static_cast<const float*>(a.tensor_scale.data), a.codes.ptr<uint8_t>(), a.scales.ptr<uint8_t>(), count);
}

void dequantize(const DequantizeArgs& a) {
  const int64_t count = a.out.numel();
  if (count == 0) return;
  launch_after(a.name, dequantize_kernel, {blocks_of(count), kThreads}, a.device(), values_of(a.out), a.format,
               static_cast<const float*>(a.tensor_scale.data), static_cast<const uint8_t*>(a.codes.data),
               static_cast<const uint8_t*>(a.scales.data), reinterpret_cast<uintptr_t>(a.codes.data) % 8 == 0, count);
}

}  // namespace tally::cuda
