// The matrix product on CUDA: cuBLASLt for products whose matrices it can describe (matmul_lt_cuda.cpp), a plain tiled
// kernel for all others (matmul_plain_cuda.cu). GELU and its gradient ride in the product in bf16, where cuBLASLt's
// approximation of tanh is below the rounding; else a kernel follows.
#include "tally/ops/device.cuh"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/matmul_cuda.h"

namespace tally::cuda {

bool multiply_rows(const MatmulArgs& args);  // matmul_rows_cuda.cu

namespace {

// The product alone, then GELU.
void multiply_in_steps(const MatmulArgs& args) {
  MatmulArgs bare = args;
  bare.what_aux = MatmulAux::kNone;
  if (args.what_aux == MatmulAux::kGelu) bare.c = args.aux;
  matmul(bare);
  if (args.what_aux == MatmulAux::kGelu)
    unary({args.aux, args.c, UnaryOp::kGeluTanh, 0, 0});
  else
    unary_backward({args.c, args.aux, args.c, UnaryOp::kGeluTanh, 0});
}

// Several products one after another.
void multiply_many(const MatmulArgs& args) {
  const bool gated = args.what_aux == MatmulAux::kSwiglu;
  MatmulArgs bare = args;
  bare.more = 0, bare.what_aux = MatmulAux::kNone;
  View sums[2] = {args.c, args.c};  // contiguous in scratch
  for (int i = 0; i < 2; ++i) {
    sums[i].stride[1] = args.c.size[2], sums[i].stride[2] = 1, sums[i].stride[0] = args.c.numel();
    sums[i].data = args.scratch.ptr<char>() + i * args.c.numel() * item_size(args.c.dtype);
  }
  if (gated) bare.c = sums[0];
  matmul(bare);
  for (int i = 0; i < args.more; ++i) {
    bare.b = args.more_b[i], bare.bias = args.more_bias[i], bare.c = gated ? sums[1] : args.more_c[i];
    matmul(bare);
  }
  if (gated) swiglu({sums[0], sums[1], args.c});
}

}  // namespace

void matmul(const MatmulArgs& args) {
  if (args.c.numel() == 0 && args.more == 0) return;
  if (args.b_packed) detail::wrong_dtype("matmul with a weight packed for the CPU", static_cast<int>(args.b.dtype));
  if (args.c.numel() != 0 && multiply_rows(args)) return;
  if (args.more > 0) return multiply_many(args);
  if (multiply_lt(args)) return;
  args.what_aux == MatmulAux::kNone ? multiply_plain(args) : multiply_in_steps(args);
}

}  // namespace tally::cuda
