#include "tally/ops/compare.h"

#include "tally/core/ledger.h"
#include "tally/core/number.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"

namespace tally {

namespace {

// The number as one of `dtype`.
double rounded_to(double x, DType dtype) {
  uint64_t bits = number_bits(dtype, x);
  return read_number(&bits, dtype, 0);
}

// What logic and kinds of floats are computed in: nothing may become 0 or infinite on the way.
DType truth_type(const Operand& a, const Operand& b) {
  for (const Operand* o : {&a, &b})
    if (o->dtype() == DType::kF64 || (!o->is_tensor() && o->number().is_float())) return DType::kF64;
  return is_floating(a.dtype()) || is_floating(b.dtype()) ? DType::kF32 : DType::kI64;
}

}  // namespace

Tensor compare(CompareOp op, const Operand& a, const Operand& b) {
  const char* name = kCompareNames[static_cast<int>(op)];
  DType dtype = DType::kF32;
  if (op >= CompareOp::kAnd) {  // no promotion: any dtypes
    for (const Operand* o : {&a, &b})
      if (o->is_tensor()) require_computable(name, o->tensor());
    dtype = truth_type(a, b);
    if (a.is_tensor() && b.is_tensor() && a.tensor().device() != b.tensor().device()) common_type(name, {a, b});
  } else {
    dtype = common_type(name, {a, b});
  }
  const Tensor& one = a.is_tensor() ? a.tensor() : b.tensor();
  const Tensor& other = b.is_tensor() ? b.tensor() : one;
  const Dims size = broadcast_shape(name, one.sizes(), other.sizes());
  Tensor out =
      one.sizes() == size ? empty_like_layout(one, DType::kBool) : Tensor::empty(size, DType::kBool, one.device());
  View views[3] = {out.raw(), broadcast_raw(one, size), broadcast_raw(other, size)};
  order_axes(views);
  CompareArgs args{views[1], views[2], views[0], op, dtype, CompareArgs::kNone, 0, 0};
  if (!a.is_tensor() || !b.is_tensor()) {
    const Scalar number = a.is_tensor() ? b.number() : a.number();
    args.number = a.is_tensor() ? CompareArgs::kB : CompareArgs::kA;
    args.real = is_floating(dtype) ? rounded_to(number.real(), dtype) : number.real();
    args.whole = number.whole();
  }
  launch(&Kernels::compare, args);
  return out;
}

Tensor eq(const Operand& a, const Operand& b) { return compare(CompareOp::kEq, a, b); }
Tensor ne(const Operand& a, const Operand& b) { return compare(CompareOp::kNe, a, b); }
Tensor lt(const Operand& a, const Operand& b) { return compare(CompareOp::kLt, a, b); }
Tensor le(const Operand& a, const Operand& b) { return compare(CompareOp::kLe, a, b); }
Tensor gt(const Operand& a, const Operand& b) { return compare(CompareOp::kGt, a, b); }
Tensor ge(const Operand& a, const Operand& b) { return compare(CompareOp::kGe, a, b); }
Tensor logical_and(const Operand& a, const Operand& b) { return compare(CompareOp::kAnd, a, b); }
Tensor logical_or(const Operand& a, const Operand& b) { return compare(CompareOp::kOr, a, b); }
Tensor logical_xor(const Operand& a, const Operand& b) { return compare(CompareOp::kXor, a, b); }
Tensor logical_not(const Tensor& x) { return compare(CompareOp::kNot, x, false); }
Tensor isnan(const Tensor& x) { return compare(CompareOp::kIsNan, x, false); }
Tensor isinf(const Tensor& x) { return compare(CompareOp::kIsInf, x, false); }
Tensor isfinite(const Tensor& x) { return compare(CompareOp::kIsFinite, x, false); }

}  // namespace tally
