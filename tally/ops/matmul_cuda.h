// The parts of the matrix product on CUDA.
#pragma once

#include "tally/ops/matmul_kernels.h"

namespace tally::cuda {

// Any strides and dtypes; what_aux must be kNone.
void multiply_plain(const MatmulArgs& args);  // matmul_plain_cuda.cu

// By cuBLASLt. False, with nothing done: it cannot describe the product (a matrix without a unit stride, f64, dtypes it
// does not mix, GELU outside bf16) or has no algorithm for it.
bool multiply_lt(const MatmulArgs& args);  // matmul_lt_cuda.cpp

}  // namespace tally::cuda
