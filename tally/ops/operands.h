// What element-wise ops do with their operands before a kernel: check, promote, broadcast, lay out the output; and what
// in-place ops ask of the tensor they write to.
#pragma once

#include <initializer_list>
#include <optional>

#include "tally/core/promote.h"
#include "tally/core/tensor.h"

namespace tally {

// Shape of a pair after broadcasting. Throws Error naming op and both shapes.
Dims broadcast_shape(const char* op, const Dims& a, const Dims& b);
// x seen with `size` (axes of stride 0 where it broadcasts); not recorded.
Tensor broadcast_view(const Tensor& x, const Dims& size);
View broadcast_raw(const Tensor& x, const Dims& size);  // the same for a kernel

// Refuses tensors without arithmetic: undefined ones, floats of 8 and 4 bits.
void require_computable(const char* op, const Tensor& x);
// The dtype that the operands are computed in. They must be computable, on one device, one of them a tensor.
DType common_type(const char* op, std::initializer_list<Operand> operands);
// x in `dtype`, recorded where both are floats.
Tensor converted(const Tensor& x, DType dtype);
// The same for the length of a call: refers to x where it has the dtype already, because sharing a tensor costs more
// than an operation on a number.
class Converted {
 public:
  Converted(const Tensor& x, DType dtype) : tensor_(x.dtype() == dtype ? &x : &made_.emplace(converted(x, dtype))) {}
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;
  const Tensor& operator*() const { return *tensor_; }

 private:
  std::optional<Tensor> made_;
  const Tensor* tensor_;
};
// A tensor of rank 0 in `dtype` beside x.
Tensor number_tensor(Scalar value, DType dtype, const Tensor& x);

// Uninitialised, of x's shape; where x's elements lie densely but in another order of axes (a transposed matrix), in
// x's order, as PyTorch has it: chains of element-wise ops then run through memory from one end to the other.
Tensor empty_like_layout(const Tensor& x, DType dtype, Category category = Category::kActivation);

// The same axes of all views in the order in which the first, the output, lies in memory. For kernels to which an
// element's place does not matter.
template <int N>
void order_axes(View (&views)[N]) {
  if (views[0].contiguous()) return;
  Dims& first = views[0].stride;
  for (int i = 1; i < first.rank; ++i)
    for (int j = i; j > 0 && first[j - 1] < first[j]; --j)
      for (View& v : views) std::swap(v.stride[j - 1], v.stride[j]), std::swap(v.size[j - 1], v.size[j]);
}

// ---- in place

// Two indices of x lead to one element (a broadcast axis, overlapping windows).
bool overlaps_itself(const Tensor& x);
// Elements of x and y share memory, but not as one and the same view.
bool overlap_partly(const Tensor& x, const Tensor& y);
// Refuses what an in-place op cannot write to: leaves that require a gradient, while gradients are recorded, and
// tensors that overlap themselves.
void require_writable(const char* op, const Tensor& x);
// The one place where an in-place op says that x has new values.
void wrote(const Tensor& x);

}  // namespace tally
