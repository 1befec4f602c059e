// Quantisation on the CPU, a block of the format after the other (a tensor with one scale: kBlock values). The largest
// magnitude of a tensor is a maximum of bit patterns, whose result does not depend on the order of the threads.
#include "tally/ops/loops.h"
#include "tally/ops/quantize_kernels.h"

namespace tally::TALLY_ISA {

namespace {

int64_t step_of(QuantFormat f) { return quant_block(f) == 0 ? kBlock : quant_block(f); }

// f(block, first element, elements) for all blocks of n elements.
template <class F>
TALLY_INLINE void over_blocks(QuantFormat format, int64_t n, const F& f) {
  const int64_t size = step_of(format), blocks = (n + size - 1) / size;
  parallel_for(blocks, kGrainElements / size, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) f(b, b * size, n - b * size < size ? n - b * size : size);
  });
}

void store_codes(const QuantizeArgs& a, int64_t first, int64_t n, const float* x, float scale) {
  uint8_t* codes = a.codes.ptr<uint8_t>();
  if (is_f4(a.format)) {
    for (int64_t i = 0; i < n; i += 2)
      codes[(first + i) / 2] =
          static_cast<uint8_t>(quant_code(a.format, x[i], scale) | quant_code(a.format, x[i + 1], scale) << 4);
  } else if (is_e5m2(a.format)) {
    for (int64_t i = 0; i < n; ++i)
      codes[first + i] = static_cast<uint8_t>(quant_code(QuantFormat::kF8E5M2, x[i], scale));
  } else {
    for (int64_t i = 0; i < n; ++i)
      codes[first + i] = static_cast<uint8_t>(quant_code(QuantFormat::kF8E4M3, x[i], scale));
  }
}

}  // namespace

void quantize_scale(const QuantizeScaleArgs& a) {
  uint32_t most = 0;
  parallel_for(a.x.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    alignas(64) float buffer[kBlock];
    uint32_t here = 0;
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = end - i < kBlock ? end - i : kBlock;
      const float* x = block_in(a.x, i, 1, n, buffer);
      for (int64_t j = 0; j < n; ++j) {
        const uint32_t bits = finite_bits(x[j]);
        here = bits > here ? bits : here;
      }
    }
    uint32_t seen = __atomic_load_n(&most, __ATOMIC_RELAXED);
    while (seen < here && !__atomic_compare_exchange_n(&most, &seen, here, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  });
  a.scale.ptr<float>()[0] = tensor_scale_of(a.format, __builtin_bit_cast(float, most));
}

void quantize(const QuantizeArgs& a) {
  const float tensor_scale = has_tensor_scale(a.format) ? a.tensor_scale.ptr<float>()[0] : 1.0f;
  over_blocks(a.format, a.x.numel(), [&](int64_t block, int64_t first, int64_t n) {
    alignas(64) float buffer[kBlock];
    const float* x = block_in(a.x, first, 1, n, buffer);
    if (quant_block(a.format) == 0) return store_codes(a, first, n, x, tensor_scale);
    uint32_t most = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = finite_bits(x[i]);
      most = bits > most ? bits : most;
      finite = finite && is_finite(x[i]);
    }
    const BlockScale scale = block_scale_of(a.format, __builtin_bit_cast(float, most), finite, tensor_scale);
    a.scales.ptr<uint8_t>()[block] = scale.code;
    store_codes(a, first, n, x, scale.value);
  });
}

void dequantize(const DequantizeArgs& a) {
  const float tensor_scale = has_tensor_scale(a.format) ? a.tensor_scale.ptr<float>()[0] : 1.0f;
  const uint8_t *codes = a.codes.ptr<uint8_t>(), *scales = a.scales.ptr<uint8_t>();
  over_blocks(a.format, a.out.numel(), [&](int64_t block, int64_t first, int64_t n) {
    alignas(64) float values[kBlock];
    const float scale = quant_block(a.format) == 0 ? tensor_scale : block_value(a.format, scales[block], tensor_scale);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t code =
          is_f4(a.format) ? static_cast<uint32_t>(codes[(first + i) / 2]) >> (i % 2 * 4) : codes[first + i];
      values[i] = quant_value(a.format, code, scale);
    }
    block_out(a.out, first, 1, n, values, values);
  });
}

}  // namespace tally::TALLY_ISA
