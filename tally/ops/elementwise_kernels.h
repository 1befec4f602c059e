// Element-wise kernels: y = f(x), dx = g * f'(x), z = a op b with broadcast views, fill, copy with a change of dtype,
// and SwiGLU (Shazeer 2020, "GLU variants improve transformer").
#pragma once

#include "tally/core/cost.h"
#include "tally/ops/elementwise_math.h"

namespace tally {

// out = f(x), with the numbers alpha and beta of ops that have some. x may be any view of out's shape; out may be x.
struct UnaryArgs {
  static constexpr const char* name = "unary";
  View x, out;
  UnaryOp op;
  double alpha, beta;
  Device device() const { return out.device; }
  Cost cost() const { return {0, out.numel() * unary_flops(op), x.bytes(), out.bytes(), 0}; }
};

// dx = grad * f'(x)
struct UnaryBackwardArgs {
  static constexpr const char* name = "unary_backward";
  View grad, x, dx;
  UnaryOp op;
  double alpha, beta;
  Device device() const { return dx.device; }
  Cost cost() const { return {0, dx.numel() * unary_backward_flops(op), grad.bytes() + x.bytes(), dx.bytes(), 0}; }
};

// out = a op b; a and b have out's shape (axes of stride 0 where they broadcast). out may be a or b.
struct BinaryArgs {
  static constexpr const char* name = "binary";
  View a, b, out;
  BinaryOp op;
  double alpha = 1;  // of kAddScaled
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, out.numel() * kBinaryRows[static_cast<int>(op)].flops, a.bytes() + b.bytes(), out.bytes(), 0};
  }
};

// out = grad * d(a op b)/da, or db where `first` is false; of out's shape, as in BinaryArgs.
struct BinaryBackwardArgs {
  static constexpr const char* name = "binary_backward";
  View grad, a, b, out;
  BinaryOp op;
  bool first;
  Device device() const { return out.device; }
  Cost cost() const {
    return {0, out.numel() * kBinaryRows[static_cast<int>(op)].backward_flops, grad.bytes() + a.bytes() + b.bytes(),
            out.bytes(), 0};
  }
};

struct FillArgs {
  static constexpr const char* name = "fill";
  View out;
  double value;
  Device device() const { return out.device; }
  Cost cost() const { return {0, 0, 0, out.bytes(), 0}; }
};

// out = x, converted to out's dtype (core/number.h): floats round once, to nearest even; float to integer truncates.
// saturate: f8 takes its largest number for what lies beyond, else NaN (e4m3) or infinity (e5m2).
struct CopyArgs {
  static constexpr const char* name = "copy";
  View x, out;
  bool saturate = true;
  Device device() const { return out.device; }
  Cost cost() const { return {0, 0, x.bytes(), out.bytes(), 0}; }
};

// out = silu(gate) * up, all of one shape
struct SwigluArgs {
  static constexpr const char* name = "swiglu";
  View gate, up, out;
  Device device() const { return out.device; }
  Cost cost() const { return {0, out.numel() * 4, gate.bytes() + up.bytes(), out.bytes(), 0}; }
};

struct SwigluBackwardArgs {
  static constexpr const char* name = "swiglu_backward";
  View grad, gate, up, dgate, dup;
  Device device() const { return dgate.device; }
  Cost cost() const {
    return {0, grad.numel() * 11, grad.bytes() + gate.bytes() + up.bytes(), dgate.bytes() + dup.bytes(), 0};
  }
};

#ifdef TALLY_ISA
namespace isa_plain {
void convert(const CopyArgs&);  // any two dtypes on the CPU
}
namespace TALLY_ISA {
void unary(const UnaryArgs&);
void unary_backward(const UnaryBackwardArgs&);
void binary(const BinaryArgs&);
void binary_backward(const BinaryBackwardArgs&);
void fill(const FillArgs&);
void copy(const CopyArgs&);
void swiglu(const SwigluArgs&);
void swiglu_backward(const SwigluBackwardArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
