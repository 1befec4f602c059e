// Matrix product, batched, with optional bias and accumulation:
//   C[b] = A[b] B[b] (+ C[b]) (+ bias per column);  A (b, M, K), B (b, K, N), C (b, M, N), bias (N).
// The views may have any strides: a transposed weight is a view, a batch stride of 0 a broadcast. C must not overlap A,
// B or bias. A, B, C are f32 or bf16 in any mixture, or all f64.
//
// Numerics, the same for every M, N, position in the matrix, batch, thread count, stride and instruction set:
// K is cut into blocks of 256; in a block every element is one chain of fused multiply-adds from 0 in order of k; the
// blocks' values are added in order to the running f32 value, which starts as C's old value when accumulating and as
// the first block otherwise; bias is added last. bf16 inputs are widened exactly, a bf16 C is rounded once at the end.
// f64 has the same order with a separate multiply and add. K = 0 gives zeros (+ C) (+ bias).
#pragma once

#include "tally/core/cost.h"
#include "tally/core/view.h"

namespace tally {

struct MatmulArgs {
  static constexpr const char* name = "matmul";
  View a, b, c, bias;
  View scratch;  // matmul_scratch_bytes() bytes, aligned to 64
  bool accumulate = false;
  bool has_bias = false;  // bias.data is null on meta even where there is one

  Device device() const { return c.device; }
  Cost cost() const {
    const int64_t outputs = c.numel(), k = a.size[2];
    Cost cost;
    cost.matmul_flops = 2 * outputs * k;
    cost.other_flops = outputs * (has_bias ? 1 : 0) + outputs * (accumulate ? 1 : 0);
    cost.bytes_read = a.bytes() + b.bytes() + (has_bias ? bias.bytes() : 0) + (accumulate ? c.bytes() : 0);
    cost.bytes_written = c.bytes();
    return cost;
  }
};

// How the CPU kernel works on a product: from shapes and dtypes only, never from strides or the number of threads.
// Tall products pack blocks of A into scratch, shared by all threads; others need no scratch.
struct MatmulPlan {
  static constexpr int64_t kBlockK = 256;     // part of the numerics contract
  static constexpr int64_t kBlockRows = 704;  // rows of A packed at a time
  static constexpr int64_t kTaskRows = 64;    // up to here a task packs its own rows
  static constexpr int64_t kScratchFloats = kBlockRows * (kBlockK + 8) + 64;

  int64_t k_blocks = 0;      // blocks of K
  int64_t row_blocks = 0;    // blocks of M; 0: no scratch
  int64_t block_rows = 0;    // rows a block, the last may have fewer
  int64_t group = 0;         // blocks of K packed at a time
  int64_t block_floats = 0;  // scratch for one block of rows and one block of K

  TALLY_INLINE MatmulPlan(int64_t batch, int64_t m, int64_t n, int64_t k, bool f32_result) {
    k_blocks = (k + kBlockK - 1) / kBlockK;
    const bool tall = m > kTaskRows && n > 0 && k > 0 && f32_result;
    if (!tall || (batch > 1 && m <= 4 * kTaskRows)) return;
    row_blocks = (m + kBlockRows - 1) / kBlockRows;
    block_rows = (m + row_blocks - 1) / row_blocks;
    block_floats = block_rows * (kBlockK + 8) + 64;  // 16 floats of padding behind every few rows
    group = kScratchFloats / block_floats < k_blocks ? kScratchFloats / block_floats : k_blocks;
  }
  TALLY_INLINE int64_t scratch_bytes() const { return group * block_floats * 4; }
};

// Workspace in bytes (at most 0.75 MB, 0 where none is needed).
TALLY_INLINE int64_t matmul_scratch_bytes(const MatmulArgs& args) {
  return MatmulPlan(args.c.size[0], args.c.size[1], args.c.size[2], args.a.size[2], args.c.dtype == DType::kF32)
      .scratch_bytes();
}

#ifdef TALLY_ISA
namespace TALLY_ISA {
void matmul(const MatmulArgs& args);
}
#endif

}  // namespace tally
