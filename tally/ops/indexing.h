// Index expressions, as PyTorch's x[...]: index(x, {0, Slice(2, {}, 2), kEllipsis, kNone, mask, ids}).
//
// Integers, slices, kNone and the ellipsis give a view. Arrays of integers and masks copy: the arrays broadcast to one
// shape, which stands where they stood when they are neighbours and in front when they are not; an integer is no array
// (PyTorch's rule). A mask of r axes stands for r arrays, those of nonzero(mask). Negative integers count from the end;
// out of range is an IndexError that names axis and size, on a card too (the host waits for it there). Sizes that
// depend on data (masks, nonzero) are refused on meta.
#pragma once

#include <concepts>
#include <optional>
#include <vector>

#include "tally/core/tensor.h"

namespace tally {

// start:stop:step, clipped to the axis; negative bounds count from the end; step is at least 1.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
  Slice() = default;
  explicit Slice(std::optional<int64_t> from, std::optional<int64_t> to = {}, int64_t by = 1)
      : start(from), stop(to), step(by) {}
};
struct NoneIndex {};
struct EllipsisIndex {};
inline constexpr NoneIndex kNone;  // a new axis of size 1
inline constexpr EllipsisIndex kEllipsis;

class Index {
 public:
  enum class Kind { kInt, kSlice, kNone, kEllipsis, kBool, kTensor };
  template <std::integral I>
  requires(!std::same_as<I, bool>) Index(I i) : kind(Kind::kInt), integer(static_cast<int64_t>(i)) {}
  Index(std::same_as<bool> auto on) : kind(Kind::kBool), integer(on) {}  // a mask without axes
  Index(const Slice& s) : kind(Kind::kSlice), slice(s) {}
  Index(NoneIndex) : kind(Kind::kNone) {}
  Index(EllipsisIndex) : kind(Kind::kEllipsis) {}
  Index(const Tensor& t) : kind(Kind::kTensor), tensor(t) {}  // i32 or i64 ids, a bool (or u8) mask; any device
  Index(const std::vector<int64_t>& ids);                     // a list

  Kind kind;
  int64_t integer = 0;
  Slice slice;
  Tensor tensor;
};

Tensor index(const Tensor& x, const std::vector<Index>& at);
// x[at] = value, or += with `accumulate`, in the order of the arrays: where a place comes twice the last value stays,
// or all are added. value broadcasts to x[at]'s shape. Recorded as an op whose result is x; a leaf that requires a
// gradient is refused.
Tensor& index_put_(Tensor& x, const std::vector<Index>& at, const Tensor& value, bool accumulate = false);
Tensor& index_put_(Tensor& x, const std::vector<Index>& at, double value, bool accumulate = false);

// The coordinates of what is not zero, in row-major order: (n, x.dim()) i64. Not differentiable.
Tensor nonzero(const Tensor& x);
inline Tensor argwhere(const Tensor& x) { return nonzero(x); }
// The same, a vector an axis, so that x[result] are those elements; a tensor of rank 0 counts as one of shape (1,).
std::vector<Tensor> nonzero_tuple(const Tensor& x);
inline std::vector<Tensor> where(const Tensor& condition) { return nonzero_tuple(condition); }
// The elements of x where mask is true, in one axis; x and the mask broadcast to one shape.
Tensor masked_select(const Tensor& x, const Tensor& mask);

}  // namespace tally
