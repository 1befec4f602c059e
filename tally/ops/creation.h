// New tensors: PyTorch's names, argument order and inference of dtypes (whole numbers i64, a float among them f32,
// truth values bool). On meta shapes alone are made, by the same calls. Random ones: random.h.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <vector>

#include "tally/core/scalar.h"
#include "tally/core/tensor.h"

namespace tally {

// zeros({2, 3}, {.dtype = DType::kBF16, .device = cuda_device(), .requires_grad = true}). What is not given is the
// function's own dtype, the CPU, or for *_like what the other tensor has.
struct TensorOptions {
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
  bool requires_grad = false;
  Category category = Category::kActivation;
};

Tensor empty(const Dims& size, const TensorOptions& options = {});  // uninitialised; f32
Tensor zeros(const Dims& size, const TensorOptions& options = {});
Tensor ones(const Dims& size, const TensorOptions& options = {});
// Of the value's dtype. An integer dtype that does not have the value is an Error.
Tensor full(const Dims& size, Scalar value, const TensorOptions& options = {});
// start, start + step, .. before end: i64 where all are whole numbers, else f32.
Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options = {});
inline Tensor arange(Scalar start, Scalar end, const TensorOptions& options = {}) {
  return arange(start, end, 1, options);
}
inline Tensor arange(Scalar end, const TensorOptions& options = {}) { return arange(0, end, 1, options); }
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {});  // both ends included
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {});                          // (n, m), f32
inline Tensor eye(int64_t n, const TensorOptions& options = {}) { return eye(n, n, options); }

// Contiguous, of x's shape, dtype and device.
Tensor empty_like(const Tensor& x, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& x, const TensorOptions& options = {});
Tensor ones_like(const Tensor& x, const TensorOptions& options = {});
Tensor full_like(const Tensor& x, Scalar value, const TensorOptions& options = {});

// A number or a list of lists of one length: {{1, 2.5}, {3, 4}}.
class NestedList {
 public:
  template <class T>
  requires std::integral<T> || std::floating_point<T> NestedList(T number) : number_(number) {}
  NestedList(std::initializer_list<NestedList> items) : is_list_(true), items_(items) {}

 private:
  friend Tensor tensor(const NestedList& values, const TensorOptions& options);
  void collect(int axis, Dims& size, std::vector<Scalar>& out) const;
  Scalar number_ = 0;
  bool is_list_ = false;
  std::vector<NestedList> items_;
};

// tensor({{1., 2, 3}, {4, 5, 6}}): (2, 3), f32. Lists of unequal length are a ValueError.
Tensor tensor(const NestedList& values, const TensorOptions& options = {});
// The same of values one behind the other, which must fill the shape. T: any number, or Scalar.
Tensor tensor_of(const std::vector<Scalar>& values, const Dims& size, const TensorOptions& options = {});
template <class T>
Tensor tensor(const std::vector<T>& values, const Dims& size, const TensorOptions& options = {}) {
  std::vector<Scalar> numbers;
  numbers.reserve(values.size());
  for (const auto& v : values) numbers.push_back(static_cast<T>(v));
  return tensor_of(numbers, size, options);
}

namespace detail {
// An uninitialised tensor of the options, `dtype` and `device` where they leave them open.
Tensor made(const Dims& size, const TensorOptions& options, DType dtype, Device device);
// Throws Error, naming `op`, where an integer dtype does not have the value.
void require_fits(const char* op, Scalar value, DType dtype);
}  // namespace detail

}  // namespace tally
