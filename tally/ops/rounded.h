// Single operations of IEEE 754 arithmetic in f64, rounded to nearest each and never fused: nvcc would join a product
// and a sum where the CPU's kernels, compiled without, do not. Formulas made of these have the same bits on every
// device.
#pragma once

#include "tally/core/view.h"

namespace tally::rounded {

#if defined(__CUDA_ARCH__)
TALLY_INLINE double add(double a, double b) { return __dadd_rn(a, b); }
TALLY_INLINE double mul(double a, double b) { return __dmul_rn(a, b); }
TALLY_INLINE double div(double a, double b) { return __ddiv_rn(a, b); }
TALLY_INLINE double root(double a) { return __dsqrt_rn(a); }
#else
TALLY_INLINE double add(double a, double b) { return a + b; }
TALLY_INLINE double mul(double a, double b) { return a * b; }
TALLY_INLINE double div(double a, double b) { return a / b; }
TALLY_INLINE double root(double a) { return __builtin_sqrt(a); }
#endif

}  // namespace tally::rounded
