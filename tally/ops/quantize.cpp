#include "tally/ops/quantize.h"

#include <array>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

constexpr std::array<const char*, kQuantFormats> kNames = {"f8e4m3",     "f8e5m2", "mxfp8_e4m3",
                                                           "mxfp8_e5m2", "mxfp4",  "nvfp4"};

View raw_or_none(const Tensor& t) { return t.defined() ? t.raw() : View{}; }

// The last axis of `size` divided by n.
Dims divided(Dims size, int64_t n) {
  if (n > 1) size[size.rank - 1] /= n;
  return size;
}

void require_blocks(const char* op, const Dims& size, QuantFormat format) {
  const int64_t block = quant_block(format);
  if (block == 0) return;
  if (size.rank == 0 || size[size.rank - 1] % block != 0)
    fail_value("{}: the last axis of {} is no multiple of {}'s blocks of {}; pad it", op, str(size), name_of(format),
               block);
}

// A part of a Quantized as it has to be.
void require_part(const char* what, const Tensor& part, const Tensor& codes, const Dims& size, DType dtype,
                  QuantFormat format) {
  if (!part.defined()) fail_value("dequantize: {} has {}, which are missing", name_of(format), what);
  if (part.sizes() != size || part.dtype() != dtype)
    fail_value("dequantize: {} of {} are {} of shape {}, not {} of shape {}", what, name_of(format), name_of(dtype),
               str(size), name_of(part.dtype()), str(part.sizes()));
  if (part.device() != codes.device())
    fail("dequantize: devices {} of the codes and {} of {} differ", name_of(codes.device()), name_of(part.device()),
         what);
}

}  // namespace

const char* name_of(QuantFormat format) { return kNames[static_cast<size_t>(format)]; }

QuantFormat quant_format_from_name(std::string_view name) {
  std::string known;
  for (int i = 0; i < kQuantFormats; ++i) {
    if (name == kNames[static_cast<size_t>(i)]) return static_cast<QuantFormat>(i);
    known += (i ? ", " : "") + std::string(kNames[static_cast<size_t>(i)]);
  }
  fail_value("unknown format '{}'; use one of {}", name, known);
}

int64_t Quantized::bytes() const {
  int64_t sum = 0;
  for (const Tensor* t : {&codes, &scales, &tensor_scale})
    if (t->defined()) sum += t->numel() * t->element_size();
  return sum;
}

Quantized quantize(const Tensor& x, QuantFormat format) {
  require_float("quantize", x);
  require_blocks("quantize", x.sizes(), format);
  const NoGrad quiet;
  Tensor values = contiguous(x.detach());
  if (values.dtype() == DType::kF64) values = to(values, DType::kF32);
  const int64_t block = quant_block(format);
  Quantized q;
  q.format = format, q.size = x.sizes();
  q.codes = Tensor::empty(divided(x.sizes(), is_f4(format) ? 2 : 1), quant_codes(format), x.device(), x.category());
  if (block > 0) q.scales = Tensor::empty(divided(x.sizes(), block), quant_scales(format), x.device(), x.category());
  if (has_tensor_scale(format)) {
    q.tensor_scale = Tensor::empty(Dims(), DType::kF32, x.device(), x.category());
    launch(&Kernels::quantize_scale, QuantizeScaleArgs{values.raw(), q.tensor_scale.raw(), format});
  }
  launch(&Kernels::quantize,
         QuantizeArgs{values.raw(), raw_or_none(q.tensor_scale), q.codes.raw(), raw_or_none(q.scales), format});
  return q;
}

Tensor dequantize(const Quantized& q, DType dtype) {
  if (!is_float(dtype)) fail_type("dequantize: gives f64, f32, bf16 or f16, not {}", name_of(dtype));
  require_blocks("dequantize", q.size, q.format);
  const int64_t block = quant_block(q.format);
  require_part("codes", q.codes, q.codes, divided(q.size, is_f4(q.format) ? 2 : 1), quant_codes(q.format), q.format);
  if (block > 0) require_part("scales", q.scales, q.codes, divided(q.size, block), quant_scales(q.format), q.format);
  if (has_tensor_scale(q.format)) require_part("tensor scales", q.tensor_scale, q.codes, Dims(), DType::kF32, q.format);
  const NoGrad quiet;
  const Tensor codes = contiguous(q.codes), scales = q.scales.defined() ? contiguous(q.scales) : Tensor{};
  const Tensor out = Tensor::empty(q.size, dtype == DType::kF64 ? DType::kF32 : dtype, codes.device());
  launch(&Kernels::dequantize,
         DequantizeArgs{codes.raw(), raw_or_none(scales), raw_or_none(q.tensor_scale), out.raw(), q.format});
  return to(out, dtype);
}

}  // namespace tally
