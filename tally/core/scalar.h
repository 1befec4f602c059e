// A host number as an operand of an op: a whole number, a float or a truth value, as Python's int, float and bool. It
// keeps its kind, because promotion asks for it (core/promote.h): x + 1 keeps an integer tensor's dtype, x + 1.0 not.
#pragma once

#include <concepts>
#include <cstdint>

#include "tally/core/view.h"

namespace tally {

class Scalar {
 public:
  template <class T>
  requires std::integral<T> || std::floating_point<T>
  constexpr Scalar(T value)  // implicit: add(x, 2)
      : dtype_(std::same_as<T, bool> ? DType::kBool
               : std::integral<T>    ? DType::kI64
                                     : DType::kF64),
        whole_(std::integral<T> ? static_cast<int64_t>(value) : 0),
        real_(static_cast<double>(value)) {}

  DType dtype() const { return dtype_; }  // kI64, kF64 or kBool
  bool is_float() const { return dtype_ == DType::kF64; }
  bool is_bool() const { return dtype_ == DType::kBool; }
  double real() const { return real_; }
  // Of a float: truncated towards zero; NaN is 0 and what lies outside i64 its nearest end.
  int64_t whole() const {
    if (!is_float()) return whole_;
    if (real_ != real_) return 0;
    if (real_ >= 0x1p63) return INT64_MAX;
    return real_ < -0x1p63 ? INT64_MIN : static_cast<int64_t>(real_);
  }

 private:
  DType dtype_;
  int64_t whole_;
  double real_;
};

}  // namespace tally
