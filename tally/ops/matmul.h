// Matrix products on our own GEMM (matmul_kernels.h states its numerics contract).
#pragma once

#include "tally/core/tensor.h"

namespace tally {

// What products of f32 are computed in on CUDA, for the whole process and f32 unless set. tf32 rounds both operands to
// 10 bits of mantissa and sums in f32, on tensor cores: several times as fast, no more exact than f16. Nothing else is
// changed by it: not products of bf16, not the CPU.
enum class MatmulPrecision : uint8_t { kF32, kTf32 };
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();
MatmulPrecision matmul_precision_from_name(const std::string& name);  // "f32" or "tf32"; throws Error for others
const char* name_of(MatmulPrecision precision);

// (..., M, K) @ (..., K, N) -> (..., M, N); leading axes broadcast; one-axis operands as in PyTorch (a dot product, a
// matrix-vector product). Views of any strides; what broadcasts is copied only where many small products would each be
// a launch. Dtypes agree; integers wrap around and have no gradient. Throws Error naming both shapes.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor mm(const Tensor& a, const Tensor& b);     // (M, K) @ (K, N)
Tensor bmm(const Tensor& a, const Tensor& b);    // (B, M, K) @ (B, K, N)
Tensor mv(const Tensor& a, const Tensor& x);     // (M, K) @ (K) -> (M)
Tensor dot(const Tensor& a, const Tensor& b);    // (K) @ (K) -> ()
Tensor outer(const Tensor& a, const Tensor& b);  // (M), (N) -> (M, N)
// beta * input + alpha * bmm(a, b); input broadcasts to (B, M, N).
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);
// c = a b (+ c when accumulating), (B, M, K) @ (B, K, N); f32 and bf16 may mix; not recorded.
void matmul_(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate);
// The same with equal leading axes of any number, strides of 0 where a or b broadcasts.
void matmul_batched_(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate);

// y = x w^T + bias: x (..., in), w (out, in), bias (out) or undefined -> (..., out). The weight's gradient is added in
// place when there already is one (gradient accumulation, tied weights).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

struct LinearWeight {
  const Tensor &weight, &bias;  // as linear() takes them
};
// linear(x, w, b) for each of `all`. On CUDA up to eight rows, up to three weights and no gradient are one launch,
// which gives each result the bits it has alone.
std::vector<Tensor> linear_many(const Tensor& x, const std::vector<LinearWeight>& all);
// swiglu(linear(x, gate), linear(x, up)); one launch where linear_many() is.
Tensor linear_swiglu(const Tensor& x, const LinearWeight& gate, const LinearWeight& up);

// linear(gelu_tanh(linear(x, w1, b1)), w2, b2), biases undefined or both vectors. On CUDA in two products: GELU is
// computed behind the first, and its gradient behind the backward's.
Tensor gelu_tanh_mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2);

// A weight (out, in) of f32 or bf16 laid out for many products with few rows: (panels, in, 32), output j in
// [j / 32][:][j % 32], zeros behind the last. Decoding then reads it once, in order. Not recorded.
Tensor pack_weight(const Tensor& weight);
// linear() with a packed weight of `out` outputs: the same bits. Not recorded.
Tensor linear_packed(const Tensor& x, const Tensor& packed, int64_t out, const Tensor& bias = {});

}  // namespace tally
