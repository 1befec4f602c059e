// The dtype of a result, by PyTorch's rules of type promotion (docs/stable/tensor_attributes.html#type-promotion-doc):
// kinds are ordered bool < integer < float. Operands come in three categories: tensors with axes, tensors of rank 0 and
// host numbers. A lower category takes part only with a higher kind than those before it have.
#pragma once

#include <initializer_list>

#include "tally/core/scalar.h"
#include "tally/core/tensor.h"

namespace tally {

constexpr DType kDefaultFloat = DType::kF32;  // of Python floats, and of float functions of integers

// The smallest dtype that both convert to. Floats of 8 and 4 bits promote with themselves only, u16 with floats and
// itself only: everything else is a TypeError that says what to do.
DType promote_types(DType a, DType b);

// An operand of an element-wise op: a tensor, which it refers to, or a host number.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(&tensor) {}
  Operand(Scalar number) : number_(number) {}
  template <class T>
  requires std::integral<T> || std::floating_point<T> Operand(T number) : number_(number) {}

  bool is_tensor() const { return tensor_ != nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  Scalar number() const { return number_; }
  // Its part in promotion; a float counts as the default one.
  DType dtype() const { return is_tensor() ? tensor_->dtype() : number_.is_float() ? kDefaultFloat : number_.dtype(); }
  int category() const { return !is_tensor() ? 2 : tensor_->dim() == 0 ? 1 : 0; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar number_ = 0;
};

DType result_type(std::initializer_list<Operand> operands);

// What a float function (sqrt, a mean, true division) of this dtype gives: f32 for integers and bool, else itself.
constexpr DType float_type(DType t) { return is_floating(t) ? t : kDefaultFloat; }

// Whether an in-place op may write a result of `from` into a tensor of `to`: floats never into integers, numbers never
// into bool.
constexpr bool can_cast(DType from, DType to) {
  if (is_floating(from) && !is_floating(to)) return false;
  return from == DType::kBool || to != DType::kBool;
}

}  // namespace tally
