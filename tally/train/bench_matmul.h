// Matrix products one by one, as training has them, against what the machine can do: y = x w^T, dx = g w, dw = g^T x of
// the layers of GPT-2 124M and a Llama of 336 M, and single products. The cache is flushed before every call.
#pragma once

#include <string>
#include <vector>

#include "tally/core/tensor.h"
#include "tally/ops/matmul.h"
#include "tally/train/profile.h"

namespace tally {

// c (m, n) = a (m, k) b (k, n).
struct MatmulCase {
  enum class Pass : uint8_t { kForward, kInputGradient, kWeightGradient, kPlain };
  std::string name;  // "gpt2 qkv"
  Pass pass = Pass::kForward;
  int64_t m = 0, n = 0, k = 0;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};
const char* name_of(MatmulCase::Pass pass);  // "y", "dx", "dw", "ab"

// Rows (tokens) of the models' products: 65,536 for GPT-2 and 32,768 for the Llama unless `rows` is more than 0.
std::vector<MatmulCase> matmul_cases(int64_t rows);
// One product of 16384 x 32768 by 32768 x 8192, or smaller ones for a processor.
std::vector<MatmulCase> large_matmul_cases(Device device);
// "4096x4096x1024": a product with M x N x K as a linear has it, y = x w^T. Throws Error saying how it is written.
MatmulCase matmul_case_of(const std::string& text);

struct MatmulResult {
  MatmulCase product;
  std::string dtype;   // of a and b: f32, tf32 (f32 tensors), bf16; dw is f32
  double seconds = 0;  // median
  int64_t rounds = 0;
  double peak_flops = 0;
  std::string peak_of;  // "datasheet" or "measured"
  double flops_per_second() const { return product.flops() / seconds; }
  double share_of_peak() const { return flops_per_second() / peak_flops; }
};

// Throws Error for tf32 off a card.
MatmulResult bench_matmul(const MatmulCase& product, const std::string& dtype, Device device, int64_t rounds);

std::string matmul_text(const std::vector<MatmulResult>& results);
Json matmul_json(const MatmulResult& result);

}  // namespace tally
