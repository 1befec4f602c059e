// What the files about cuBLASLt share: a product as it sees it, and running it with one algorithm.
#pragma once

#include <cublasLt.h>

#include <array>
#include <string>

#include "tally/ops/matmul_kernels.h"

namespace tally::cuda {

constexpr int64_t kLtWorkspace = int64_t{64} << 20;  // bytes, taken once a card

struct LtLibrary {  // of a card
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  int device = 0;
  std::string card;  // "NVIDIA H200"
};

// Everything that an algorithm is chosen by: shapes, strides, dtypes, alignments. Not the card.
using LtKey = std::array<int64_t, 22>;

// Descriptors live as long as the program. Row-major C is to cuBLASLt the column-major C^T = B^T A^T: its A is our b.
struct LtProduct {
  cublasLtMatmulDesc_t what = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;  // b, a, c
  uint32_t alignment[3]{};                                                     // of those, in bytes
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;
};

void check_lt(const char* call, cublasStatus_t status);  // throws RunError naming the call

// Gives the product to the card's stream. `out` is c's memory or another of its layout; c is read when accumulating.
cublasStatus_t run_lt(const LtLibrary& library, const LtProduct& product, const MatmulArgs& args,
                      const cublasLtMatmulAlgo_t& algorithm, void* out);

// Fills in product.algorithm and product.found; matmul_search_cuda.cpp.
void choose_lt(const LtLibrary& library, const MatmulArgs& args, const LtKey& key, LtProduct& product);

}  // namespace tally::cuda
