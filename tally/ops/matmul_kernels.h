// Matrix product, batched, with optional bias and accumulation:
//   C[b] = A[b] B[b] (+ C[b]) (+ bias per column);  A (b, M, K), B (b, K, N), C (b, M, N), bias (N).
// The views may have any strides: a transposed weight is a view, a batch stride of 0 a broadcast. C must not overlap A,
// B or bias. A, B, C are f32 or bf16 in any mixture, or all f64.
// A weight that is used many times may come packed (b_packed): B is then contiguous (panels, K, kPanel) of f32 or bf16,
// column j at [j / kPanel][k][j % kPanel], without a batch axis; columns behind the last one are zero.
//
// On CUDA a product may do more in the same launch (the CPU's kernel is never asked to):
// gelu_tanh() behind the product, C = gelu(A B + bias) with A B + bias kept in aux; or its gradient,
// C = (A B) gelu'(aux). With few rows it may be several products of one A (`more`): more_c[i] = A more_b[i] +
// more_bias[i], each as it would be alone; or, of two, C = silu(A B + bias) * (A more_b[0] + more_bias[0]) (kSwiglu),
// both sums rounded to C's dtype first.
//
// Numerics, the same for every M, N, position in the matrix, batch, thread count, stride and instruction set:
// K is cut into blocks of 256; in a block every element is one chain of fused multiply-adds from 0 in order of k; the
// blocks' values are added in order to the running f32 value, which starts as C's old value when accumulating and as
// the first block otherwise; bias is added last. bf16 inputs are widened exactly, a bf16 C is rounded once at the end.
// f64 has the same order with a separate multiply and add. K = 0 gives zeros (+ C) (+ bias).
#pragma once

#include "tally/core/cost.h"
#include "tally/core/view.h"
#include "tally/ops/elementwise_math.h"

namespace tally {

enum class MatmulAux : uint8_t { kNone, kGelu, kGeluGradient, kSwiglu };

struct MatmulArgs {
  static constexpr const char* name = "matmul";
  View a, b, c, bias;
  View aux;  // C's shape
  MatmulAux what_aux = MatmulAux::kNone;
  static constexpr int kMore = 2;
  View more_b[kMore], more_c[kMore], more_bias[kMore];  // biases where has_bias; no more_c with kSwiglu
  int more = 0;
  View scratch;  // matmul_scratch_bytes() bytes, aligned to 64
  bool accumulate = false;
  bool has_bias = false;  // bias.data is null on meta even where there is one
  bool b_packed = false;
  bool tf32 = false;                     // CUDA's products of f32 may round a and b to tf32 (matmul.h)
  static constexpr int64_t kPanel = 32;  // columns of a panel, the same for every instruction set

  Device device() const { return c.device; }
  Cost cost() const {
    const int64_t outputs = c.numel(), k = a.size[2];
    Cost cost;
    cost.matmul_flops = 2 * outputs * k;
    cost.other_flops = outputs * (has_bias ? 1 : 0) + outputs * (accumulate ? 1 : 0);
    cost.bytes_read = a.bytes() + b.bytes() + (has_bias ? bias.bytes() : 0) + (accumulate ? c.bytes() : 0);
    cost.bytes_written = c.bytes();
    const bool gated = what_aux == MatmulAux::kSwiglu;
    for (int i = 0; i < more; ++i) {
      const int64_t columns = more_b[i].size[2], also = c.size[1] * columns;
      cost.matmul_flops += 2 * also * k;
      cost.other_flops += (has_bias ? also : 0) + (gated ? 4 * also : 0);
      cost.bytes_read += more_b[i].bytes() + (has_bias ? more_bias[i].bytes() : 0);
      if (!gated) cost.bytes_written += more_c[i].bytes();
    }
    if (what_aux != MatmulAux::kNone && !gated) {
      const bool forward = what_aux == MatmulAux::kGelu;
      cost.other_flops +=
          outputs * (forward ? unary_flops(UnaryOp::kGeluTanh) : unary_backward_flops(UnaryOp::kGeluTanh));
      (forward ? cost.bytes_written : cost.bytes_read) += aux.bytes();
    }
    return cost;
  }
};

// How the CPU kernel works on a product: from shapes and dtypes only, never from strides or the number of threads.
//  - Tall: blocks of B are packed into scratch by all threads, tasks pack panels of A.
//  - Tall and wide (more columns than rows): the same the other way round, so that the operand which moves from one
//    processor core to another is the smaller one.
//  - Low (few rows, one batch): A is packed into scratch, tasks read their columns of B once.
//  - Others need no scratch: a task packs both.
// Where strides allow, operands of tall products are read as they lie and not packed: rows of A that are contiguous
// along K, columns of a B that lie next to each other. The scratch is there in any case.
struct MatmulPlan {
  static constexpr int64_t kBlockK = 256;    // part of the numerics contract
  static constexpr int64_t kBlock = 1024;    // columns of B, or rows of A, packed at a time
  static constexpr int64_t kTaskRows = 64;   // up to here a product is low
  static constexpr int64_t kStreamRows = 4;  // up to here packing A costs nothing
  static constexpr int64_t kPadding = 16;    // floats behind a panel of A: whole vectors are written
  static constexpr int64_t kScratchFloats = 393216;

  bool tall = false, wide = false, low = false;
  int64_t k_blocks = 0;      // blocks of K
  int64_t block = 0;         // tall: columns (wide: rows) a block, the last may have fewer
  int64_t group = 0;         // tall: blocks of K packed at a time
  int64_t block_floats = 0;  // of scratch for one block of K

  TALLY_INLINE MatmulPlan(int64_t batch, int64_t m, int64_t n, int64_t k, bool f32_result) {
    k_blocks = (k + kBlockK - 1) / kBlockK;
    const int64_t steps = k < kBlockK ? k : kBlockK;
    if (n == 0 || k == 0) return;
    if (m > kTaskRows && f32_result && (batch == 1 || m > 4 * kTaskRows)) {
      tall = true;
      wide = m < n;
      const int64_t size = wide ? m : n, blocks = (size + kBlock - 1) / kBlock;
      block = (size + blocks - 1) / blocks;
      if (!wide) block = (block + 31) / 32 * 32;
      block_floats = wide ? block * (steps + 8) + 64 : block * steps;  // 16 floats of padding behind every few rows
      group = kScratchFloats / block_floats;
      if (group > k_blocks) group = k_blocks;
    } else if (batch == 1 && m > kStreamRows && m <= kTaskRows) {
      block_floats = m * (steps + kPadding);
      low = k_blocks * block_floats <= kScratchFloats;
      group = low ? k_blocks : 0;
    }
  }
  TALLY_INLINE int64_t scratch_bytes() const { return group * block_floats * 4; }
};

// Workspace in bytes (on the CPU at most 1.5 MB, 0 where none is needed: the one of cuBLASLt is the device's own).
TALLY_INLINE int64_t matmul_scratch_bytes(const MatmulArgs& args) {
  if (target_of(args.c.device) == DeviceKind::kCuda)  // the two sums, should they have to be computed one by one
    return args.what_aux == MatmulAux::kSwiglu ? 2 * args.c.numel() * item_size(args.c.dtype) : 0;
  return MatmulPlan(args.c.size[0], args.c.size[1], args.c.size[2], args.a.size[2], args.c.dtype == DType::kF32)
      .scratch_bytes();
}

#ifdef TALLY_ISA
namespace TALLY_ISA {
void matmul(const MatmulArgs& args);
}
#endif

}  // namespace tally
