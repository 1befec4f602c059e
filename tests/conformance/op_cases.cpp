// Single ops: softmax (C13), cross-entropy (C14), SiLU (C15), rotary embedding (C16, C18), RMSNorm (C17), attention
// (C18), AdamW (C22), flash attention forward and backward (C49).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/io/npy.h"
#include "tally/ops/attention.h"
#include "tally/ops/backward.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/norm.h"
#include "tally/ops/optim_step.h"
#include "tally/ops/rope.h"
#include "tally/ops/sdpa.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tests/conformance/cases.h"
#include "tests/support/support.h"

namespace tally::conformance {
namespace {

std::vector<float> floats(const NpyArray& a) {
  std::vector<float> values(a.data.size() / 4);
  std::memcpy(values.data(), a.data.data(), a.data.size());
  return values;
}

NpyFile file(const char* name) { return NpyFile(test::shared_file(std::string("cs336/") + name)); }

// (B, T, D) as (B, T, 1, D).
Tensor one_head(const NpyArray& a) { return Tensor::from(floats(a), {a.shape[0], a.shape[1], 1, a.shape[2]}); }

// |got - want| <= absolute + relative * |want|
void expect_close(const Tensor& got, const NpyArray& want, double absolute, double relative) {
  const std::vector<double> values = got.to_vector();
  const std::vector<float> expected = floats(want);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_LE(std::abs(values[i] - expected[i]), absolute + relative * std::abs(expected[i])) << i;
}

void c18_rope() {
  const NpyFile input = file("a1/inputs_sdpa_rope.npz"), expected = file("a1/test_rope.npz");
  const Tensor x = one_head(input.at("in_embeddings"));
  const Tensor y = rope(x, rope_table(x.size(1), x.size(3), 1e4), 0, RopeStyle::kInterleaved);
  expect_close(y, expected.at("array"), 1e-5, 1e-4);
}

// A mask by choosing the keys: every query is given the keys that it may see.
void c18_attention() {
  const NpyFile input = file("a1/inputs_sdpa_rope.npz"), expected = file("a1/test_scaled_dot_product_attention.npz");
  const Tensor q = one_head(input.at("q"));
  const std::vector<float> k = floats(input.at("k")), v = floats(input.at("v")), want = floats(expected.at("array"));
  const Bytes mask = input.at("mask").data;
  const int64_t tq = q.size(1), tk = input.at("k").shape[1], d = q.size(3);
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t i = 0; i < tq; ++i) {
      std::vector<float> keys, values;
      for (int64_t j = 0; j < tk; ++j) {
        if (mask[(b * tq + i) * tk + j] == std::byte{0}) continue;
        keys.insert(keys.end(), k.begin() + (b * tk + j) * d, k.begin() + (b * tk + j + 1) * d);
        values.insert(values.end(), v.begin() + (b * tk + j) * d, v.begin() + (b * tk + j + 1) * d);
      }
      const Dims size(1, static_cast<int64_t>(keys.size()) / d, 1, d);
      const Tensor row = slice(slice(q, 0, b, b + 1), 1, i, i + 1);
      const std::vector<double> got =
          attention(row, Tensor::from(keys, size), Tensor::from(values, size), false).to_vector();
      for (int64_t c = 0; c < d; ++c) {
        const double w = want[(b * tq + i) * d + c];
        ASSERT_LE(std::abs(got[c] - w), 1e-5 + 1e-4 * std::abs(w)) << b << " " << i << " " << c;
      }
    }
}

// The same with the mask itself, which is bool.
void c18_masked_attention() {
  const NpyFile input = file("a1/inputs_sdpa_rope.npz"), expected = file("a1/test_scaled_dot_product_attention.npz");
  const auto load = [&](const char* name) { return Tensor::from(floats(input.at(name)), input.at(name).shape); };
  const Bytes& bytes = input.at("mask").data;
  const Tensor mask = Tensor::empty(input.at("mask").shape, DType::kBool);
  std::memcpy(mask.data<uint8_t>(), bytes.data(), bytes.size());
  expect_close(scaled_dot_product_attention(load("q"), load("k"), load("v"), mask), expected.at("array"), 1e-5, 1e-4);
}

// Linear regression of [x0 + x1, -x2] on x, a row a step.
void c22(const Json&) {
  const NpyFile input = file("a1/inputs_adamw.npz"), expected = file("a1/test_adamw.npz");
  const std::vector<float> x = floats(input.at("x"));
  const Tensor w = Tensor::from(floats(input.at("w0")), {2, 3});
  const Tensor m = Tensor::from(std::vector<float>(6), {2, 3}), v = Tensor::from(std::vector<float>(6), {2, 3});
  const int64_t steps = static_cast<int64_t>(x.size()) / 3;
  ASSERT_EQ(steps, 1000);
  for (int64_t t = 0; t < steps; ++t) {
    const float* row = &x[t * 3];
    const float target[2] = {row[0] + row[1], -row[2]};
    std::vector<float> gradient(6);
    for (int o = 0; o < 2; ++o) {
      const float* weight = w.data<float>() + o * 3;
      const float error = weight[0] * row[0] + weight[1] * row[1] + weight[2] * row[2] - target[o];
      for (int i = 0; i < 3; ++i) gradient[o * 3 + i] = 2 * error * row[i];
    }
    adamw_step(w, Tensor::from(gradient, {2, 3}), m, v,
               {1e-3, 0.9, 0.999, 1e-8, 0.01, 1 - std::pow(0.9, t + 1), 1 - std::pow(0.999, t + 1), 1});
  }
  expect_close(w, expected.at("array"), 1e-4, 0);
  expect_close(w, input.at("pytorch_final"), 1e-4, 0);
}

// The CPU and, in a build with CUDA on a machine with a card, the card.
std::vector<Device> devices() {
  std::vector<Device> all = {kCpu};
  try {
    require_device(cuda_device());
    all.push_back(cuda_device());
  } catch (const Error&) {
  }
  return all;
}

// f32 to 1e-4, which is the aim; bf16, which on a card takes other kernels, to the case's 1e-2.
void c49(const Json&) {
  const NpyFile input = file("a2/flash_inputs.npz"), expected = file("a2/flash_expected_noncausal.npz");
  for (const Device device : devices())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(name_of(device) + " " + name_of(dtype));
      const double tolerance = dtype == DType::kF32 ? 1e-4 : 1e-2;
      const auto load = [&](const char* name) { return to(to(one_head(input.at(name)), dtype), device).detach(); };
      Tensor q = load("q").set_requires_grad(), k = load("k").set_requires_grad(), v = load("v").set_requires_grad();
      const Tensor y = attention(q, k, v, false);
      expect_close(y, expected.at("o"), tolerance, tolerance);
      backward(y, load("do"));
      expect_close(q.grad(), expected.at("dq"), tolerance, tolerance);
      expect_close(k.grad(), expected.at("dk"), tolerance, tolerance);
      expect_close(v.grad(), expected.at("dv"), tolerance, tolerance);
      // attention() keeps the logarithms of the sums to itself.
      const Tensor lse = Tensor::empty({q.size(0), q.size(2), q.size(1)}, DType::kF32, device);
      launch(&Kernels::attention, AttentionArgs{q.raw(), k.raw(), v.raw(), y.raw(), lse.raw(),
                                                1 / std::sqrt(static_cast<double>(q.size(3))), false});
      expect_close(lse, expected.at("l"), tolerance, tolerance);
    }
}

void c18(const Json&) {
  c18_rope();
  c18_attention();
  c18_masked_attention();
}

void c13(const Json& expect) {
  const std::vector<float> x = {0.4655f, 0.8303f, 0.9608f, 0.9656f, 0.6840f};
  for (const float shift : {0.0f, 100.0f})
    expect_numbers(softmax(affine(Tensor::from(x, Dims(5)), 1, shift)).to_vector(), numbers(expect), 1e-5);
}

void c14(const Json& expect) {
  const Tensor logits = Tensor::from(
      std::vector<float>{0.1088f, 0.1060f, 0.6683f, 0.5131f, 0.0645f, 0.4538f, 0.6852f, 0.2520f, 0.3792f, 0.2675f,
                         0.4578f, 0.3357f, 0.6384f, 0.0481f, 0.5612f, 0.9639f, 0.8864f, 0.1585f, 0.3038f, 0.0350f,
                         0.3356f, 0.9013f, 0.7052f, 0.8294f, 0.8334f, 0.6333f, 0.4434f, 0.1428f, 0.5739f, 0.3810f,
                         0.9476f, 0.5917f, 0.7037f, 0.2987f, 0.6208f, 0.8541f, 0.1803f, 0.2054f, 0.4775f, 0.8199f},
      Dims(8, 5));
  const Tensor targets = Tensor::from(std::vector<int32_t>{1, 0, 2, 2, 4, 1, 4, 0}, Dims(8));
  expect_numbers({cross_entropy(logits, targets).item(), cross_entropy(affine(logits, 1000, 0), targets).item()},
                 numbers(expect), 1e-4);
}

void c15(const Json& expect) {
  const Tensor x = Tensor::from(std::vector<float>{0.2352f, 0.9259f, 0.5189f, 0.4725f, 0.9730f}, Dims(5));
  expect_numbers(silu(x).to_vector(), numbers(expect), 1e-5);
}

void c16(const Json& expect) {
  const Tensor x = Tensor::from(std::vector<float>{1, 0, 1, 0}, {1, 1, 1, 4});
  expect_numbers(rope(x, rope_table(4, 4, 1e4), 1, RopeStyle::kInterleaved).to_vector(), numbers(expect), 1e-6);
}

void c17(const Json& expect) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, Dims(1, 4));
  const Tensor gain = Tensor::from(std::vector<float>{1, 1, 1, 1}, Dims(4));
  expect_numbers(rms_norm(x, gain, 1e-5).to_vector(), numbers(expect), 1e-6);
}

}  // namespace

std::vector<Case> op_cases() {
  return {{"C13", c13}, {"C14", c14}, {"C15", c15}, {"C16", c16},
          {"C17", c17}, {"C18", c18}, {"C22", c22}, {"C49", c49}};
}

}  // namespace tally::conformance
