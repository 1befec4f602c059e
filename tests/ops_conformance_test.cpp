// The course's own numbers for single ops: rotary embedding and attention (C18), AdamW (C22), flash attention forward
// and backward (C49). The data are development data; where they are absent the tests say so.
#include <cmath>
#include <cstring>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/io/npy.h"
#include "tally/ops/attention.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/optim_step.h"
#include "tally/ops/rope.h"
#include "tally/ops/sdpa.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

std::vector<float> floats(const NpyArray& a) {
  std::vector<float> values(a.data.size() / 4);
  std::memcpy(values.data(), a.data.data(), a.data.size());
  return values;
}

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

TEST(OpsConformance, C18Rope) {
  TALLY_SHARED_FILE(input_path, "cs336/a1/inputs_sdpa_rope.npz");
  TALLY_SHARED_FILE(expected_path, "cs336/a1/test_rope.npz");
  const NpyFile input(input_path), expected(expected_path);
  const Tensor x = one_head(input.at("in_embeddings"));
  const Tensor y = rope(x, rope_table(x.size(1), x.size(3), 1e4), 0, RopeStyle::kInterleaved);
  expect_close(y, expected.at("array"), 1e-5, 1e-4);
}

// A mask by choosing the keys: every query is given the keys that it may see.
TEST(OpsConformance, C18Attention) {
  TALLY_SHARED_FILE(input_path, "cs336/a1/inputs_sdpa_rope.npz");
  TALLY_SHARED_FILE(expected_path, "cs336/a1/test_scaled_dot_product_attention.npz");
  const NpyFile input(input_path), expected(expected_path);
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
TEST(OpsConformance, C18MaskedAttention) {
  TALLY_SHARED_FILE(input_path, "cs336/a1/inputs_sdpa_rope.npz");
  TALLY_SHARED_FILE(expected_path, "cs336/a1/test_scaled_dot_product_attention.npz");
  const NpyFile input(input_path), expected(expected_path);
  const auto load = [&](const char* name) { return Tensor::from(floats(input.at(name)), input.at(name).shape); };
  const Bytes& bytes = input.at("mask").data;
  const Tensor mask = Tensor::empty(input.at("mask").shape, DType::kBool);
  std::memcpy(mask.data<uint8_t>(), bytes.data(), bytes.size());
  expect_close(scaled_dot_product_attention(load("q"), load("k"), load("v"), mask), expected.at("array"), 1e-5, 1e-4);
}

// Linear regression of [x0 + x1, -x2] on x, a row a step.
TEST(OpsConformance, C22Adamw) {
  TALLY_SHARED_FILE(input_path, "cs336/a1/inputs_adamw.npz");
  TALLY_SHARED_FILE(expected_path, "cs336/a1/test_adamw.npz");
  const NpyFile input(input_path), expected(expected_path);
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
TEST(OpsConformance, C49FlashAttention) {
  TALLY_SHARED_FILE(input_path, "cs336/a2/flash_inputs.npz");
  TALLY_SHARED_FILE(expected_path, "cs336/a2/flash_expected_noncausal.npz");
  const NpyFile input(input_path), expected(expected_path);
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

}  // namespace
}  // namespace tally
