// What the op suite's small cases do not show: large tensors, whose vectorised paths are compared with the CPU's
// results; memory; whole training steps.
#include <cmath>
#include <cstring>
#include <functional>

#include "tally/base/rng.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/models/model.h"
#include "tally/ops/attention.h"
#include "tally/ops/backward.h"
#include "tally/ops/cache.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/linear_cross_entropy.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/op_test.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rope.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tally/train/plan.h"
#include "tally/train/step.h"

namespace tally {
namespace {

using test::Input;
using test::random_tensor;

// About normal, fast for millions of elements.
Tensor values(const Dims& size, DType dtype, uint64_t seed) {
  const int64_t n = size.numel();
  std::vector<float> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const Random4 r = philox(seed, 5, static_cast<uint64_t>(i));
    float sum = -2;
    for (const uint32_t v : r.v) sum += uniform_from_u32(v);
    x[static_cast<size_t>(i)] = 1.7f * sum;
  }
  Tensor f32 = Tensor::from(x, size);
  if (dtype == DType::kF32) return f32;
  Tensor out = Tensor::empty(size, dtype);
  copy_(out, f32);
  return out;
}

struct Case {
  const char* name;
  std::vector<Dims> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
  double bf16 = 0.02, f32 = 2e-5;  // largest error against the largest value
};

// The output and all gradients.
std::vector<std::vector<double>> results(const Case& c, DType dtype, Device device) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(to(values(c.inputs[i], dtype, 10 + i), device));
    inputs.back().set_requires_grad();
  }
  Tensor y = c.run(inputs);
  std::vector<std::vector<double>> all{y.to_vector()};
  const Tensor g = to(values(y.sizes(), y.dtype(), 77), device);
  backward(y, g);
  y = {};
  for (const Tensor& t : inputs) all.push_back(t.grad().defined() ? t.grad().to_vector() : std::vector<double>());
  return all;
}

void compare(const Case& c, DType dtype) {
  SCOPED_TRACE(c.name);
  const auto want = results(c, dtype, kCpu), got = results(c, dtype, cuda_device());
  const auto again = results(c, dtype, cuda_device());
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(want[k].size(), got[k].size()) << "result " << k;
    double largest = 0, worst = 0;
    size_t at = 0, changed = 0;
    for (size_t i = 0; i < want[k].size(); ++i) {
      largest = std::max(largest, std::abs(want[k][i]));
      const double error = std::abs(want[k][i] - got[k][i]);
      if (!(error <= worst)) worst = error, at = i;
      changed += got[k][i] != again[k][i];
    }
    const double allowed = (dtype == DType::kBF16 ? c.bf16 : c.f32) * largest;
    EXPECT_LE(worst, allowed) << (k ? "gradient " : "result ") << (k ? k - 1 : 0) << " at " << at << ": " << got[k][at]
                              << ", on the CPU " << want[k][at];
    EXPECT_EQ(changed, 0u) << "result " << k << " of a second run differs";
  }
}

std::vector<Case> large_cases() {
  using V = const std::vector<Tensor>&;
  std::vector<Case> all = {
      {"add", {{512, 1024}, {512, 1024}}, [](V x) { return add(x[0], x[1]); }},
      {"add a row", {{515, 1030}, {1030}}, [](V x) { return add(x[0], x[1]); }},
      {"gelu", {{512, 1024}}, [](V x) { return gelu(x[0]); }},
      {"gelu_tanh", {{513, 1025}}, [](V x) { return gelu_tanh(x[0]); }},
      {"silu", {{512, 1024}}, [](V x) { return silu(x[0]); }},
      {"swiglu", {{300, 2816}, {300, 2816}}, [](V x) { return swiglu(x[0], x[1]); }},
      {"transposed", {{600, 700}}, [](V x) { return contiguous(transpose(x[0], 0, 1)); }},
      {"sum of rows", {{700, 5000}}, [](V x) { return sum(x[0], Dims(1)); }, 0.02, 1e-4},
      {"sum of columns", {{5000, 768}}, [](V x) { return sum(x[0], Dims(0)); }, 0.02, 1e-4},
      {"bias of many rows", {{20000, 96}, {96}}, [](V x) { return add(x[0], x[1]); }, 0.02, 1e-4},
      {"bias of many rows, odd", {{9001, 35}, {35}}, [](V x) { return add(x[0], x[1]); }, 0.02, 1e-4},
      {"bias of columns", {{40, 9000}, {40, 1}}, [](V x) { return add(x[0], x[1]); }, 0.02, 1e-4},
      {"softmax", {{300, 5000}}, [](V x) { return softmax(x[0], -1); }},
      {"softmax, odd", {{301, 1027}}, [](V x) { return softmax(x[0], -1); }},
      {"dropout", {{512, 1024}}, [](V x) { return dropout(x[0], 0.3f, 5, 6); }},
  };
  for (const int64_t d : {768, 1024, 4096, 1030, 9000}) {
    all.push_back({"rms_norm", {{400, d}, {d}}, [](V x) { return rms_norm(x[0], x[1]); }, 0.02, 5e-5});
    all.push_back({"layer_norm", {{400, d}, {d}, {d}}, [](V x) { return layer_norm(x[0], x[1], x[2]); }, 0.02, 5e-5});
  }
  // d(sum) comes alone in the first kind (dx is written over it) and shares a tensor with d(y) in the second.
  for (const int64_t d : {192, 768, 1024, 2048, 4096, 8192, 1030, 9000}) {
    all.push_back({"residual_rms_norm",
                   {{400, d}, {400, d}, {d}},
                   [](V x) {
                     const ResidualNorm r = residual_rms_norm(x[0], x[1], x[2]);
                     return add(r.y, square(r.sum));
                   },
                   0.02,
                   5e-5});
    all.push_back({"residual_layer_norm",
                   {{400, d}, {400, d}, {d}, {d}},
                   [](V x) {
                     const ResidualNorm r = residual_layer_norm(x[0], x[1], x[2], x[3]);
                     return add(r.y, r.sum);
                   },
                   0.02,
                   5e-5});
  }
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit})
    all.push_back({"rope", {{2, 300, 6, 64}}, [=](V x) {
                     return rope(x[0], rope_table(300, 64, 1e4, 0, x[0].device()), 0, style);
                   }});
  for (const auto& [m, k, n] : {std::tuple(512, 768, 2304), {300, 1024, 1000}, {65, 64, 50304}, {1, 2048, 512}})
    all.push_back({"linear", {{m, k}, {n, k}}, [](V x) { return linear(x[0], x[1]); }, 0.02, 1e-4});
  all.push_back(
      {"linear with bias", {{512, 768}, {768, 768}, {768}}, [](V x) { return linear(x[0], x[1], x[2]); }, 0.02, 1e-4});
  // Weights of 1/sqrt(768), so that GELU sees numbers of size 1.
  all.push_back({"gelu_tanh_mlp",
                 {{512, 768}, {3072, 768}, {3072}, {768, 3072}, {768}},
                 [](V x) {
                   const auto scaled = [](const Tensor& t) { return affine(t, 0.036f, 0.0f); };
                   return gelu_tanh_mlp(x[0], scaled(x[1]), x[2], scaled(x[3]), x[4]);
                 },
                 0.02,
                 1e-4});
  all.push_back({"matmul", {{3, 4, 100, 60}, {4, 60, 70}}, [](V x) { return matmul(x[0], x[1]); }, 0.02, 1e-4});
  for (const bool causal : {false, true})
    for (const int64_t d : {32, 64, 96, 128, 80, 256})
      for (const auto& [b, tq, tk, h, hkv] : {std::tuple(1, 200, 200, 2, 2),
                                              {2, 129, 129, 4, 2},
                                              {1, 70, 300, 4, 1},
                                              {1, 1, 513, 4, 2},
                                              {1, 300, 70, 2, 2}})
        all.push_back({"attention",
                       {{b, tq, h, d}, {b, tk, hkv, d}, {b, tk, hkv, d}},
                       [=](V x) { return attention(x[0], x[1], x[2], causal); },
                       0.03,
                       1e-4});
  return all;
}

TEST(Cuda, LargeF32) {
  set_memory_guards(false, cuda_device());
  for (const Case& c : large_cases()) compare(c, DType::kF32);
}
TEST(Cuda, LargeBf16) {
  set_memory_guards(false, cuda_device());
  for (const Case& c : large_cases()) compare(c, DType::kBF16);
}

std::vector<int32_t> zipf_ids(int64_t n, int64_t limit) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const double u = uniform_from_u32(random_u32(3, 4, static_cast<uint64_t>(i)));
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(
        std::min<double>(static_cast<double>(limit - 1), std::pow(static_cast<double>(limit), u) - 1));
  }
  return ids;
}

TEST(Cuda, Embedding) {
  for (const auto& [n, vocab, d] : {std::tuple(20000, 50304, 64), {777, 100, 768}, {1, 5, 3}}) {
    const Tensor ids = Tensor::from(zipf_ids(n, vocab), Dims(n));
    std::vector<double> table[2], grad[2];
    for (int k = 0; k < 2; ++k) {
      const Device device = k ? cuda_device() : kCpu;
      Tensor w = to(values({vocab, d}, DType::kF32, 1), device);
      w.set_requires_grad();
      for (int twice = 0; twice < 2; ++twice) {  // the second on top of the first
        Tensor y = embedding(to(ids, device), w);
        if (twice == 0) table[k] = y.to_vector();
        backward(y, to(values(y.sizes(), y.dtype(), 2), device));
      }
      grad[k] = w.grad().to_vector();
    }
    EXPECT_EQ(table[0], table[1]);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < grad[0].size(); ++i)
      worst = std::max(worst, std::abs(grad[0][i] - grad[1][i])), largest = std::max(largest, std::abs(grad[0][i]));
    EXPECT_LE(worst, 1e-5 * largest);
  }
}

TEST(Cuda, HeadAndLossInChunks) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<double> results_of[2][3];
    for (int k = 0; k < 2; ++k) {
      const Device device = k ? cuda_device() : kCpu;
      Tensor x = to(values({1500, 64}, dtype, 1), device), w = to(values({5000, 64}, dtype, 2), device);
      x.set_requires_grad(), w.set_requires_grad();
      std::vector<int32_t> wanted = zipf_ids(1500, 5000);
      for (size_t i = 0; i < wanted.size(); i += 11) wanted[i] = -100;
      const Tensor loss = linear_cross_entropy(x, w, to(Tensor::from(wanted, Dims(1500)), device), -100, 512);
      results_of[k][0] = loss.to_vector();
      backward(loss);
      results_of[k][1] = x.grad().to_vector(), results_of[k][2] = w.grad().to_vector();
    }
    for (int r = 0; r < 3; ++r) {
      double worst = 0, largest = 0;
      for (size_t i = 0; i < results_of[0][r].size(); ++i)
        worst = std::max(worst, std::abs(results_of[0][r][i] - results_of[1][r][i])),
        largest = std::max(largest, std::abs(results_of[0][r][i]));
      EXPECT_LE(worst, (dtype == DType::kF32 ? 1e-4 : 2e-2) * largest) << "result " << r;
    }
  }
}

TEST(Cuda, CrossEntropy) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, classes] : {std::tuple(300, 50304), {257, 1003}, {3, 5}})
      for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
        std::vector<int32_t> wanted = zipf_ids(rows, classes);
        for (size_t i = 0; i < wanted.size(); i += 7) wanted[i] = -100;
        std::vector<double> loss[2], grad[2];
        for (int k = 0; k < 2; ++k) {
          const Device device = k ? cuda_device() : kCpu;
          Tensor x = to(values({rows, classes}, dtype, 4), device);
          x.set_requires_grad();
          Tensor y = cross_entropy(x, to(Tensor::from(wanted, Dims(rows)), device), -100, reduction);
          loss[k] = y.to_vector();
          backward(y, to(values(y.sizes(), y.dtype(), 5), device));
          grad[k] = x.grad().to_vector();
        }
        for (size_t i = 0; i < loss[0].size(); ++i)
          EXPECT_NEAR(loss[0][i], loss[1][i], 1e-5 * std::abs(loss[0][i]) + 1e-6);
        double worst = 0, largest = 0;
        for (size_t i = 0; i < grad[0].size(); ++i)
          worst = std::max(worst, std::abs(grad[0][i] - grad[1][i])), largest = std::max(largest, std::abs(grad[0][i]));
        EXPECT_LE(worst, (dtype == DType::kF32 ? 1e-5 : 1e-2) * largest);
      }
}

// More rows than blocks, so that a block fetches the next row while it writes one; rows that do not begin at 16 bytes,
// rows longer than shared memory, a warp a row. The bits of the two kernels, over the logits.
TEST(Cuda, FusedCrossEntropy) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, classes] :
         {std::tuple(600, 50304), {600, 50257}, {300, 128256}, {2500, 4099}, {9000, 300}}) {
      std::vector<int32_t> wanted = zipf_ids(rows, classes);
      for (size_t i = 0; i < wanted.size(); i += 7) wanted[i] = -100;
      const Tensor ids = to(Tensor::from(wanted, Dims(rows)), cuda_device());
      Tensor x = to(values({rows, classes}, dtype, 4), cuda_device());
      x.set_requires_grad();
      const Tensor total = cross_entropy(x, ids, -100, Reduction::kSum);
      const Tensor each = cross_entropy(x.detach(), ids, -100, Reduction::kNone);
      backward(total);
      NoGrad quiet;
      const Tensor over = x.detach(), losses = Tensor::empty(Dims(rows), DType::kF32, cuda_device()),
                   count = Tensor::empty(Dims(1), DType::kF32, cuda_device());
      launch(&Kernels::cross_entropy_fused,
             CrossEntropyFusedArgs{over.raw(), ids.raw(), count.raw(), losses.raw(), over.raw(), -100});
      EXPECT_EQ(losses.to_vector(), each.to_vector());
      EXPECT_TRUE(over.to_vector() == x.grad().to_vector()) << rows << " x " << classes << " " << name_of(dtype);
      EXPECT_EQ(count.item(), rows - (rows + 6) / 7);
    }
}

// Sums over many rows in shares, against f64: a bias's gradient, few columns, columns that are no whole vectors.
TEST(Cuda, SumsOfColumns) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, columns] :
         {std::tuple(65536, 768), {5120, 2304}, {4097, 3}, {70001, 65}, {4096, 40}, {300000, 8}}) {
      const Tensor x = values({rows, columns}, dtype, 6);
      const std::vector<double> got = sum(to(x, cuda_device()), Dims(0)).to_vector(), numbers = x.to_vector();
      std::vector<double> want(static_cast<size_t>(columns), 0.0), size = want;
      for (size_t i = 0; i < numbers.size(); ++i)
        want[i % columns] += numbers[i], size[i % columns] += std::abs(numbers[i]);
      for (size_t c = 0; c < want.size(); ++c)
        EXPECT_NEAR(got[c], want[c], 1e-6 * size[c] + (dtype == DType::kBF16 ? 0.004 * std::abs(want[c]) : 0)) << c;
    }
}

// ---- decoding

// The largest error against the largest value.
void expect_near(const std::vector<double>& got, const std::vector<double>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(got[i] - want[i]);
    if (!(error <= worst)) worst = error;
    largest = std::max(largest, std::abs(want[i]));
  }
  EXPECT_LE(worst, relative * largest);
}

Tensor position_of(int64_t n, Device device = cuda_device()) {
  return to(Tensor::from(std::vector<int32_t>{static_cast<int32_t>(n)}, Dims(1)), device);
}

// What a captured launch does when it is replayed: the numbers of the host are those of another position. Lengths on
// both sides of where blocks of a cluster join in; a cache with room and one without, whose clusters differ.
TEST(Cuda, CachedAttentionTakesItsPositionFromTheCard) {
  set_memory_guards(false, cuda_device());
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [b, t, h, hkv, d] :
         {std::tuple(2, 1, 8, 2, 64), {1, 1, 4, 4, 128}, {3, 1, 40, 1, 32}, {1, 5, 8, 2, 96}, {2, 1, 6, 3, 80}}) {
      const int64_t capacity = 2300;
      const Tensor q = values({b, t, h, d}, dtype, 1), k = values({b, capacity, hkv, d}, dtype, 2),
                   v = values({b, capacity, hkv, d}, dtype, 3);
      const Tensor there_q = to(q, cuda_device()), there_k = to(k, cuda_device()), there_v = to(v, cuda_device());
      const auto run = [&](int64_t host, int64_t n, int64_t room) {
        return attention_cached(there_q, slice(there_k, 1, 0, host), slice(there_v, 1, 0, host), position_of(n - t),
                                room)
            .to_vector();
      };
      for (const int64_t n : {5, 64, 65, 127, 128, 255, 256, 511, 512, 1023, 1024, 2047, 2048, 2300}) {
        SCOPED_TRACE(std::to_string(n) + " keys, head size " + std::to_string(d));
        const std::vector<double> got = run(n, n, capacity);
        expect_near(got, attention(q, slice(k, 1, 0, n), slice(v, 1, 0, n), true).to_vector(),
                    dtype == DType::kBF16 ? 0.02 : 1e-4);
        EXPECT_EQ(run(n, n, n), got) << "in a full cache";
        EXPECT_EQ(run(t, n, capacity), got) << "captured at the first position";
        EXPECT_EQ(run(capacity, n, capacity), got) << "captured at the last position";
      }
    }
}

TEST(Cuda, RopeAndCacheTakeTheirPositionFromTheCard) {
  set_memory_guards(false, cuda_device());
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t d : {6, 64}) {
      const Tensor x = to(values({2, 3, 4, d}, dtype, 1), cuda_device());
      const Tensor table = rope_table(200, d, 1e4, 0, cuda_device());
      for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit})
        EXPECT_EQ(rope(x, table, 3, style, position_of(190)).to_vector(), rope(x, table, 190, style).to_vector());
      std::vector<double> all[2];
      for (int k = 0; k < 2; ++k) {
        Tensor keys = Tensor::empty({2, 50, 4, d}, dtype, cuda_device()),
               held = Tensor::empty(keys.sizes(), dtype, cuda_device());
        fill_(keys, 0), fill_(held, 0);
        k ? cache_write(keys, held, x, x, 1, position_of(47)) : cache_write(keys, held, x, x, 47);
        all[k] = keys.to_vector();
        EXPECT_EQ(held.to_vector(), all[k]);
      }
      EXPECT_EQ(all[0], all[1]);
    }
}

// A row's bits are the same alone and among others, and whatever other columns there are.
TEST(Cuda, FewRows) {
  set_memory_guards(false, cuda_device());
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [n, k] :
         {std::tuple(2048, 2048), {512, 2048}, {2048, 8192}, {1003, 776}, {5, 20480}, {7, 8}, {3001, 5632}}) {
      SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k));
      const Tensor x = values({8, k}, dtype, 1), w = values({n, k}, dtype, 2), bias = values({n}, dtype, 3);
      const Tensor there_x = to(x, cuda_device()), there_w = to(w, cuda_device()), there_bias = to(bias, cuda_device());
      const Tensor all = linear(there_x, there_w, there_bias);
      expect_near(all.to_vector(), linear(x, w, bias).to_vector(), dtype == DType::kBF16 ? 0.01 : 1e-5);
      EXPECT_EQ(linear(there_x, there_w, there_bias).to_vector(), all.to_vector()) << "a second run";
      for (int64_t m = 1; m < 8; ++m)
        EXPECT_EQ(linear(slice(there_x, 0, 8 - m, 8), there_w, there_bias).to_vector(),
                  slice(all, 0, 8 - m, 8).to_vector())
            << m << " rows";
      const int64_t part = n / 3;
      EXPECT_EQ(linear(there_x, slice(there_w, 0, part, n)).to_vector(),
                contiguous(slice(linear(there_x, there_w), 1, part, n)).to_vector());
    }
}

// Several weights in one launch, and SwiGLU of two: the bits that they have one by one. Numbers of blocks that differ.
TEST(Cuda, FewRowsOfSeveralWeights) {
  set_memory_guards(false, cuda_device());
  const NoGrad quiet;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [n, k] : {std::tuple(2048, 2048), {5632, 2048}, {1003, 776}, {5, 20480}, {301, 5632}})
      for (const int64_t m : {1, 3, 8})
        for (const bool biases : {false, true}) {
          SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k) + ", rows " + std::to_string(m));
          const Tensor x = to(values({m, k}, dtype, 1), cuda_device());
          std::vector<Tensor> w, b;
          for (const int64_t size : {int64_t{n}, int64_t{n / 8 + 1}, int64_t{n}}) {
            w.push_back(to(values({size, k}, dtype, 2 + w.size()), cuda_device()));
            b.push_back(biases ? to(values({size}, dtype, 5 + b.size()), cuda_device()) : Tensor());
          }
          const std::vector<Tensor> got = linear_many(x, {{w[0], b[0]}, {w[1], b[1]}, {w[2], b[2]}});
          for (size_t i = 0; i < got.size(); ++i)
            EXPECT_EQ(got[i].to_vector(), linear(x, w[i], b[i]).to_vector()) << "weight " << i;
          EXPECT_EQ(linear_swiglu(x, {w[0], b[0]}, {w[2], b[2]}).to_vector(),
                    swiglu(linear(x, w[0], b[0]), linear(x, w[2], b[2])).to_vector());
        }
}

// Logits of a prompt and then of one token after another, in f32, where only the order of sums differs.
TEST(Cuda, DecodingAsOnTheCpu) {
  set_memory_guards(false, cuda_device());
  const NoGrad quiet;
  for (const char* name : {"demo", "char"}) {
    ModelConfig c = preset(name);
    c.context = 64, c.vocab_size = 320, c.dtype = "f32";
    const auto model = make_model(c, 7), there = make_model(c, 7, cuda_device());
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 40; ++i) ids.push_back((i * i * 7 + i) % 300);
    const Tensor x = Tensor::from(ids, Dims(1, 40)), y = model->logits(x);
    const auto cache = there->new_cache(1, 64);
    ForwardContext context;
    context.cache = cache.get();
    for (int64_t at = 0, n = 25; at < 40; at += n, n = 1) {
      const Tensor part = to(contiguous(slice(x, 1, at, at + n)), cuda_device());
      expect_near(there->logits(part, context).to_vector(), slice(y, 1, at, at + n).to_vector(), 1e-4);
      EXPECT_EQ(cache->position().to_vector(), std::vector<double>{static_cast<double>(at + n)});
    }
  }
}

// ---- memory

TEST(Cuda, MemoryAllocated) {
  set_memory_guards(false, cuda_device());
  const int64_t before = blocks_of(cuda_device()).live;
  {
    const Tensor a = Tensor::empty({32, 32}, DType::kF32, cuda_device());
    const Tensor b = Tensor::empty({32, 32}, DType::kF32, cuda_device());
    EXPECT_EQ(memory_allocated(cuda_device()) - before, 8192);
  }
  EXPECT_EQ(blocks_of(cuda_device()).live, before);
}

// Pinned memory, as in the notes: values unchanged, the source stays where it is, both copies in stream order.
TEST(Cuda, PinnedAndAsynchronous) {
  const Tensor x = values({1024, 1024}, DType::kF32, 8);
  EXPECT_FALSE(x.is_pinned());
  const int64_t before = memory_allocated(kCpu);
  {
    const Tensor pinned = pin_memory(x);
    EXPECT_TRUE(pinned.is_pinned());
    EXPECT_EQ(memory_allocated(kCpu) - before, 4 << 20);
    EXPECT_EQ(pinned.to_vector(), x.to_vector());
    const Tensor there = to(pinned, cuda_device(), true);
    EXPECT_EQ(there.device(), cuda_device());
    EXPECT_EQ(pinned.device(), kCpu);
    const Tensor back = to(add(there, there), kCpu, true);
    EXPECT_TRUE(back.is_pinned());
    synchronize(cuda_device());
    const std::vector<double> want = x.to_vector(), got = back.to_vector();
    int64_t wrong = 0;
    for (size_t i = 0; i < want.size(); ++i) wrong += got[i] != 2 * want[i];
    EXPECT_EQ(wrong, 0);
    // What is not pinned or not contiguous is waited for.
    EXPECT_EQ(to(x, cuda_device(), true).to_vector(), want);
    EXPECT_EQ(to(transpose(pinned, 0, 1), cuda_device(), true).to_vector(), transpose(x, 0, 1).to_vector());
  }
  EXPECT_EQ(memory_allocated(kCpu), before);
  // Goes out of scope while its copy may be under way.
  Tensor last;
  {
    const Tensor pinned = pin_memory(x);
    last = to(pinned, cuda_device(), true);
  }
  EXPECT_EQ(last.to_vector(), x.to_vector());
}

// The host goes on while a copy waits behind a launch of some milliseconds.
TEST(Cuda, CopiesFromPinnedBytesDoNotWait) {
  constexpr int64_t kBytes = 1 << 20;
  PinnedBytes host(kBytes, cuda_device());
  std::memset(host.data(), 7, kBytes);
  const Tensor there = Tensor::empty({kBytes}, DType::kU8, cuda_device());
  const Tensor out = Tensor::empty({1 << 15}, DType::kF32, cuda_device());
  synchronize(cuda_device());
  const auto launch_long = [&] { launch(&Kernels::fma_probe, ProbeArgs{out.raw(), 200000}); };
  launch_long();
  synchronize(cuda_device());
  const Moment start(cuda_device()), host_start(kCpu);
  launch_long();
  copy_bytes_async(there.raw().data, cuda_device(), host.data(), kCpu, kBytes);
  const Moment host_end(kCpu), end(cuda_device());
  end.wait();
  const double device_seconds = end.seconds_since(start);
  EXPECT_GT(device_seconds, 5e-3);
  EXPECT_LT(host_end.seconds_since(host_start), device_seconds / 2);
  std::memset(host.data(), 0, kBytes);  // the copy is done
  for (const double v : there.to_vector()) ASSERT_EQ(v, 7);
}

TEST(Cuda, MaxAndItsGradientOfLongAndShortRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, n] : {std::tuple(300, 4096), {301, 1032}, {700, 64}, {5, 50304}, {37, 1027}}) {
      std::vector<double> all[2];
      for (int k = 0; k < 2; ++k) {
        const Device device = k ? cuda_device() : kCpu;
        Tensor x = to(values({rows, n}, dtype, 4), device);  // in bf16 many rows have their maximum more than once
        x.set_requires_grad();
        Tensor y = max(x, Dims(1));
        backward(y, to(values(y.sizes(), y.dtype(), 5), device));
        all[k] = x.grad().to_vector();
      }
      EXPECT_EQ(all[0], all[1]) << rows << " x " << n << " " << name_of(dtype);
    }
}

// Sums in the order of the index, whatever of it comes more than once in a batch of places.
TEST(Cuda, GatherBackwardOfOneIndexForAllLanes) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, n, d] : {std::tuple(500, 4096, 768), {3, 3000, 100}, {1, 1000, 33}, {20000, 5000, 256}}) {
      std::vector<double> all[2];
      for (int k = 0; k < 2; ++k) {
        const Device device = k ? cuda_device() : kCpu;
        Tensor x = to(values({rows, d}, dtype, 4), device);
        x.set_requires_grad();
        Tensor y = index_select(x, 0, to(Tensor::from(zipf_ids(n, rows), Dims(n)), device));
        backward(y, to(values(y.sizes(), y.dtype(), 5), device));
        all[k] = x.grad().to_vector();
      }
      EXPECT_EQ(all[0], all[1]) << rows << " " << n << " " << d << " " << name_of(dtype);
    }
}

// ---- training

RunConfig small_run(const std::string& dtype, bool gpt2) {
  RunConfig c;
  c.model = preset(gpt2 ? "char" : "demo");
  c.model.context = 128, c.model.vocab_size = 512, c.model.dtype = dtype;
  c.train.batch = 4, c.train.steps = 20;
  c.optim.lr = 1e-3;
  c.check();
  return c;
}

std::vector<double> losses(const RunConfig& c, Device device) {
  TrainState state(c, device);
  reset_block_peak(device);
  std::vector<double> all;
  for (int64_t step = 0; step < c.train.steps; ++step)
    all.push_back(train_step(c, state, [&](int64_t index, int32_t* ids, int32_t* targets) {
                    const int64_t n = c.train.batch * c.context();
                    for (int64_t i = 0; i < n; ++i) {
                      const auto at = static_cast<uint64_t>(index * n + i);
                      ids[i] = static_cast<int32_t>(random_below(9, 1, at, 500));
                      targets[i] = (ids[i] * 7 + 3) % 500;
                    }
                  }).loss);
  return all;
}

TEST(Cuda, TrainingAsOnTheCpu) {
  set_memory_guards(false, cuda_device());
  for (const bool gpt2 : {false, true}) {
    const RunConfig c = small_run("f32", gpt2);
    const std::vector<double> cpu = losses(c, kCpu), card = losses(c, cuda_device());
    for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(card[i] / cpu[i], 1, 1e-4) << "step " << i + 1;
    EXPECT_EQ(card, losses(c, cuda_device())) << "a second run";
    const RunConfig half = small_run("bf16", gpt2);
    const std::vector<double> bf16 = losses(half, cuda_device());
    EXPECT_LT(bf16.back(), bf16.front());
    EXPECT_EQ(bf16, losses(half, cuda_device())) << "a second run";
  }
}

TEST(Cuda, PlanIsTheRun) {
  set_memory_guards(false, cuda_device());
  for (const char* dtype : {"f32", "bf16"}) {
    RunConfig c = small_run(dtype, false);
    c.train.device = "cuda", c.train.steps = 3;
    const Plan plan = plan_run(c, nullptr);
    const int64_t before = blocks_of(cuda_device()).live;
    losses(c, cuda_device());
    EXPECT_EQ(blocks_of(cuda_device()).peak - before, plan.step.bytes()) << dtype;
  }
}

}  // namespace
}  // namespace tally
