#include "tally/ops/quantize.h"

#include <cstring>
#include <limits>

#include "tally/core/device.h"
#include "tally/core/ledger.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

constexpr QuantFormat kAll[] = {QuantFormat::kF8E4M3,   QuantFormat::kF8E5M2, QuantFormat::kMxF8E4M3,
                                QuantFormat::kMxF8E5M2, QuantFormat::kMxF4,   QuantFormat::kNvF4};

// ---- references: a code is found by looking through the table of all values, not by shifting bits

// The position, from 0 at the smallest magnitude, of the value nearest to |x| (ties to even); the largest if beyond.
int nearest_magnitude(double x, int mantissa, int bias, int count) {
  const auto value = [&](int k) {
    const int e = k >> mantissa, m = k & ((1 << mantissa) - 1);
    return e == 0 ? std::ldexp(m, 1 - bias - mantissa) : std::ldexp(m + (1 << mantissa), e - bias - mantissa);
  };
  int best = 0;
  for (int k = 1; k < count; ++k) {
    const double to_best = std::abs(std::abs(x) - value(best)), to_this = std::abs(std::abs(x) - value(k));
    if (to_this < to_best || (to_this == to_best && k % 2 == 0)) best = k;
  }
  return best;
}
int magnitude_of(QuantFormat f, double x) {
  if (is_f4(f)) return nearest_magnitude(x, 1, 1, 8);
  return is_e5m2(f) ? nearest_magnitude(x, 2, 15, 0x7C) : nearest_magnitude(x, 3, 7, 0x7F);
}

template <class N>
double real(N x) {
  if constexpr (std::is_same_v<N, Counted>)
    return 1;
  else
    return static_cast<double>(x);
}

template <class N>
N tensor_scale_reference(QuantFormat f, N amax) {
  const N scale = amax / N(f == QuantFormat::kNvF4 ? 2688.0 : is_e5m2(f) ? 57344.0 : 448.0);
  if constexpr (std::is_same_v<N, Counted>) {
    return scale;
  } else {
    return amax == 0 ? N(1) : std::max(scale, N(0x1p-126));
  }
}

const bool scale_registered = register_reference<QuantizeScaleArgs>([](const QuantizeScaleArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  N amax(0.0);
  for (int64_t i = 0; i < a.x.numel(); ++i) {
    const N v = x.flat(i);
    amax = num_max(real(v) < 0 ? -v : v, amax);
  }
  io.out(a.scale).flat(0) = tensor_scale_reference(a.format, amax);
});

const bool quantize_registered = register_reference<QuantizeArgs>([](const QuantizeArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  const bool counts = std::is_same_v<N, Counted>;
  auto x = io.in(a.x), tensor_scale = io.in(a.tensor_scale);
  auto& codes = io.out(a.codes);
  auto* scales = a.blocks() > 0 ? &io.out(a.scales) : nullptr;
  const int64_t n = a.x.numel(), block = quant_block(a.format) == 0 ? n : quant_block(a.format);
  for (int64_t first = 0; first < n; first += block) {
    N scale = has_tensor_scale(a.format) ? tensor_scale.flat(0) : N(1.0);
    if (scales != nullptr) {
      N amax(0.0);
      for (int64_t i = first; i < first + block; ++i) {
        const N v = x.flat(i);
        amax = num_max(real(v) < 0 ? -v : v, amax);
      }
      if (a.format == QuantFormat::kNvF4) {
        const N wanted = amax / N(6.0) / scale;
        const N held = N(to_float(f8e4m3{static_cast<uint8_t>(nearest_magnitude(real(wanted), 3, 7, 0x7F))}));
        scales->flat(first / block) = held;
        scale = held * scale;
      } else {
        const int e = std::max(counts ? 0
                                      : std::ilogb(real(amax)) - (is_f4(a.format)     ? 2
                                                                  : is_e5m2(a.format) ? 15
                                                                                      : 8),
                               -127);
        scale = N(std::ldexp(1.0, e));
        scales->flat(first / block) = scale;
      }
    }
    for (int64_t i = first; i < first + block; ++i) {
      const N scaled = x.flat(i) / scale;
      const int magnitude = magnitude_of(a.format, real(scaled));
      const bool negative = std::signbit(real(scaled));
      if (is_f4(a.format)) {
        const int code = magnitude + (negative ? 8 : 0);
        if constexpr (!std::is_same_v<N, Counted>)
          codes.flat(i / 2) = i % 2 == 0 ? N(code) : codes.flat(i / 2) + N(16 * code);
      } else {
        const auto code = static_cast<uint8_t>(magnitude + (negative ? 128 : 0));
        codes.flat(i) = N(is_e5m2(a.format) ? to_float(f8e5m2{code}) : to_float(f8e4m3{code}));
      }
    }
  }
});

const bool dequantize_registered = register_reference<DequantizeArgs>([](const DequantizeArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto codes = io.in(a.codes);
  auto bytes = io.index(a.codes);
  auto scales = io.in(a.scales), tensor_scale = io.in(a.tensor_scale);
  auto& out = io.out(a.out);
  const int64_t n = a.out.numel(), block = quant_block(a.format) == 0 ? n : quant_block(a.format);
  for (int64_t first = 0; first < n; first += block) {
    N scale(1.0);
    if (a.blocks() == 0) scale = tensor_scale.flat(0);
    if (a.blocks() > 0) scale = scales.flat(first / block);
    if (a.format == QuantFormat::kNvF4) scale = scale * tensor_scale.flat(0);
    for (int64_t i = first; i < first + block; ++i) {
      if (is_f4(a.format)) {
        static constexpr double kValues[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
        const int code = a.codes.data == nullptr ? 0 : static_cast<int>(bytes.flat(i / 2)) >> (i % 2 * 4) & 15;
        out.flat(i) = N(code < 8 ? kValues[code] : -kValues[code - 8]) * scale;
      } else {
        out.flat(i) = codes.flat(i) * scale;
      }
    }
  }
});

Tensor on_device(std::vector<float> values) {
  const Dims size(static_cast<int64_t>(values.size()));
  return to(Tensor::from(values, size), test_device());
}

std::vector<double> round_trip(const Tensor& x, QuantFormat f) { return dequantize(quantize(x, f)).to_vector(); }

TEST(Quantize, EveryFormat) {
  for (const QuantFormat f : kAll)
    for (const Dims& size : {Dims(32), Dims(3, 64), Dims(2, 5, 96), Dims(0, 32), Dims(4, 0), Dims(20, 1024)})
      run_op_case({std::string(name_of(f)) + " " + str(size), {{size}}, [f](const std::vector<Tensor>& x) {
                     return dequantize(quantize(x[0], f));
                   }});
  for (const QuantFormat f : {QuantFormat::kF8E4M3, QuantFormat::kF8E5M2})  // of any size
    for (const Dims& size : {Dims(), Dims(1), Dims(7, 9), Dims(1031)})
      run_op_case({std::string(name_of(f)) + " " + str(size), {{size}}, [f](const std::vector<Tensor>& x) {
                     return dequantize(quantize(x[0], f));
                   }});
}

// What a format holds exactly comes back exactly, in every dtype.
TEST(Quantize, ExactValuesComeBack) {
  std::vector<float> values;
  for (const float v : {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f})
    for (const float s : {1.f, -1.f}) values.insert(values.end(), {v * s, v * s});
  const std::vector<double> want(values.begin(), values.end());
  for (const QuantFormat f : {QuantFormat::kMxF4, QuantFormat::kMxF8E4M3, QuantFormat::kMxF8E5M2})
    for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      const Quantized q = quantize(to(on_device(values), t), f);
      EXPECT_EQ(dequantize(q, t).to_vector(), want) << name_of(f) << " " << name_of(t);
      EXPECT_EQ(dequantize(q, t).dtype(), t);
    }
  const Quantized q = quantize(on_device(values), QuantFormat::kMxF4);
  EXPECT_EQ(to(q.scales, kCpu).data<uint8_t>()[0], 127);  // 2^(floor(log2 6) - 2) = 1
  EXPECT_EQ(to(q.codes, kCpu).data<uint8_t>()[1], 0x88);  // two of -0
  EXPECT_EQ(to(q.codes, kCpu).data<uint8_t>()[14], 0x77);
}

// The rules by hand. NVFP4: 16 values up to 12 and 16 up to 3; scale of the tensor 12 / 2688, of the blocks 448 and
// 112.
TEST(Quantize, ScaleRules) {
  std::vector<float> values(32, 1.0f);
  values[0] = -12, values[20] = 3;
  const Quantized nv = quantize(on_device(values), QuantFormat::kNvF4);
  EXPECT_EQ(nv.tensor_scale.item(), static_cast<double>(12.0f / 2688.0f));
  EXPECT_EQ(nv.scales.to_vector(), (std::vector<double>{448, 112}));
  const std::vector<double> back = dequantize(nv).to_vector();
  EXPECT_NEAR(back[0], -12, 1e-5);
  EXPECT_NEAR(back[20], 3, 1e-6);
  EXPECT_NEAR(back[1], 1, 1e-6);   // 1 / 2 is .5
  EXPECT_NEAR(back[21], 1, 1e-6);  // 1 / .5 is 2
  const Quantized mx = quantize(on_device(values), QuantFormat::kMxF8E4M3);
  EXPECT_EQ(mx.scales.to_vector(), (std::vector<double>{std::ldexp(1.0, 3 - 8)}));
  const Quantized e5m2 = quantize(on_device(values), QuantFormat::kMxF8E5M2);
  EXPECT_EQ(e5m2.scales.to_vector(), (std::vector<double>{std::ldexp(1.0, 3 - 15)}));
  EXPECT_EQ(quantize(on_device(values), QuantFormat::kF8E4M3).tensor_scale.item(), double(12.0f / 448.0f));
}

TEST(Quantize, ErrorsAreWithinHalfAStep) {
  const Tensor x = to(random_tensor({Dims(40, 1024)}, DType::kF32, 3), test_device());
  const std::vector<double> values = x.to_vector();
  for (const QuantFormat f : kAll) {
    const std::vector<double> back = round_trip(x, f);
    double square = 0, error = 0;
    for (size_t i = 0; i < values.size(); ++i)
      square += values[i] * values[i], error += (back[i] - values[i]) * (back[i] - values[i]);
    const double relative = std::sqrt(error / square);  // of a normal distribution
    EXPECT_LT(relative, is_f4(f) ? 0.12 : is_e5m2(f) ? 0.06 : 0.03) << name_of(f);
    EXPECT_GT(relative, 0.01) << name_of(f);
  }
}

TEST(Quantize, ShapesBytesAndMeta) {
  for (const Device device : {test_device(), kMetaCpu}) {
    LedgerGuard guard;
    const Tensor x = Tensor::empty(Dims(3, 64), DType::kBF16, device);
    const std::pair<QuantFormat, int64_t> rows[] = {
        {QuantFormat::kF8E4M3, 192 + 4},        {QuantFormat::kF8E5M2, 192 + 4},
        {QuantFormat::kMxF8E4M3, 192 + 6},      {QuantFormat::kMxF8E5M2, 192 + 3 * 2},
        {QuantFormat::kMxF4, 96 + 3 * 64 / 32}, {QuantFormat::kNvF4, 96 + 12 + 4}};
    for (const auto& [f, bytes] : rows) {
      const Quantized q = quantize(x, f);
      EXPECT_EQ(q.bytes(), bytes) << name_of(f);
      EXPECT_EQ(q.size, x.sizes());
      EXPECT_EQ(q.codes.dtype(), quant_codes(f));
      EXPECT_EQ(dequantize(q, DType::kF16).sizes(), x.sizes());
      EXPECT_EQ(quant_format_from_name(name_of(f)), f);
    }
  }
}

TEST(Quantize, ViewsAndPartsOfBlocks) {
  const Tensor x = to(random_tensor({Dims(64, 3)}, DType::kF32, 4), test_device()), t = transpose(x, 0, 1);
  for (const QuantFormat f : kAll) EXPECT_EQ(round_trip(t, f), round_trip(contiguous(t), f)) << name_of(f);
}

TEST(Quantize, Refusals) {
  const Tensor x = Tensor::empty(Dims(2, 48), DType::kF32, kMetaCpu);
  expect_error([&] { quantize(x, QuantFormat::kMxF4); },
               "quantize: the last axis of (2, 48) is no multiple of mxfp4's blocks of 32; pad it");
  expect_error([&] { quantize(Tensor::empty(Dims()), QuantFormat::kNvF4); }, "nvfp4's blocks of 16");
  expect_error([&] { quantize(Tensor::empty(Dims(32), DType::kI32), QuantFormat::kMxF4); }, "quantize");
  expect_error([] { quant_format_from_name("fp4"); }, "unknown format 'fp4'; use one of f8e4m3, f8e5m2, mxfp8_e4m3");
  Quantized q = quantize(x, QuantFormat::kNvF4);
  expect_error([&] { dequantize(q, DType::kI32); }, "dequantize: gives f64, f32, bf16 or f16, not i32");
  q.scales = Tensor::empty(Dims(2, 4), DType::kF8E4M3, kMetaCpu);
  expect_error([&] { dequantize(q); }, "scales of nvfp4 are f8e4m3 of shape (2, 3), not f8e4m3 of shape (2, 4)");
  q.scales = {};
  expect_error([&] { dequantize(q); }, "dequantize: nvfp4 has scales, which are missing");
}

TEST(Traps, O06_ScalesOfZeroAndTinyBlocks) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const QuantFormat f : kAll) {
    SCOPED_TRACE(name_of(f));
    EXPECT_EQ(round_trip(on_device(std::vector<float>(64, 0.0f)), f), std::vector<double>(64, 0.0));
    for (const float tiny : {1e-42f, 1e-45f, 1e-38f})
      for (const double v : round_trip(on_device(std::vector<float>(64, tiny)), f)) ASSERT_TRUE(std::isfinite(v));
    std::vector<float> values(64, 0.0f);
    values[5] = 3e38f;
    const std::vector<double> large = round_trip(on_device(values), f);
    EXPECT_NEAR(large[5], 3e38, (f == QuantFormat::kMxF4 ? 0.25 : 0.0625) * 3e38);  // e2m1 ends at 6 of 8
    for (size_t i = 0; i < large.size(); ++i) ASSERT_TRUE(std::isfinite(large[i]) && (i == 5 || large[i] == 0)) << i;
    // What is not finite stays visible and spoils no other block: no other element where a code of its own exists.
    for (const float odd : {nan, inf, -inf}) {
      values.assign(64, 1.0f);
      values[40] = odd;
      const std::vector<double> got = round_trip(on_device(values), f);
      EXPECT_FALSE(std::isfinite(got[40])) << odd;
      for (size_t i = 0; i < 32; ++i) ASSERT_NEAR(got[i], 1, 0.0625) << odd << " " << i;
      for (size_t i = 32; i < 64 && !is_f4(f); ++i) {
        ASSERT_TRUE(i == 40 || std::abs(got[i] - 1) < 0.0625) << odd << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tally::test
