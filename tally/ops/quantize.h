// Tensors in numbers of 8 and 4 bits with scales (rules and sources: ops/quantize_kernels.h). Not recorded on the tape.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/quantize_kernels.h"

namespace tally {

const char* name_of(QuantFormat format);                    // "f8e4m3" ... "mxfp8_e4m3", "mxfp4", "nvfp4"
QuantFormat quant_format_from_name(std::string_view name);  // a ValueError that lists the names

struct Quantized {
  Tensor codes;         // size, or with half its last axis where a byte holds two codes
  Tensor scales;        // (..., last / block); undefined where the tensor has one scale
  Tensor tensor_scale;  // () f32; undefined for MX formats
  QuantFormat format{};
  Dims size;  // of the values
  int64_t bytes() const;
};

// x: f64 (by way of f32), f32, bf16 or f16. A last axis that is no multiple of the block is refused (ValueError).
Quantized quantize(const Tensor& x, QuantFormat format);
// The values as f64, f32, bf16 or f16.
Tensor dequantize(const Quantized& q, DType dtype = DType::kF32);

}  // namespace tally
