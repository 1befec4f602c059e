// What elementwise_cuda.cu hands on to elementwise_more_cuda.cu: views are f32 or bf16.
#pragma once

#include "tally/ops/elementwise_kernels.h"

namespace tally::cuda {

constexpr int kFirstMore = static_cast<int>(UnaryOp::kAbs);  // the first UnaryOp of the second file
void unary_more(const UnaryArgs& a);
void unary_backward_more(const UnaryBackwardArgs& a);
void binary_more(const BinaryArgs& a);  // ops from kAddScaled on

}  // namespace tally::cuda
