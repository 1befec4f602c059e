#include "tally/ops/einops_move.h"

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// Sizes of axes merged from `parts` neighbours each. Throws Error when the tensor would be too large to count.
Dims merged_size(const Dims& full, const Dims& parts) {
  int64_t all = 1;
  for (int i = 0; i < full.rank; ++i)
    if (full[i] != 0 && __builtin_mul_overflow(all, full[i], &all))
      fail_value("a tensor of axes {} has too many elements", str(full));
  Dims out;
  out.rank = parts.rank;
  int at = 0;
  for (int i = 0; i < parts.rank; ++i) {
    out[i] = 1;
    for (int64_t j = 0; j < parts[i]; ++j) out[i] *= full[at++];
  }
  return out;
}

// Strides of merged axes, or false where neighbours do not lie one behind the other.
bool merged_stride(const Dims& full, const Dims& stride, const Dims& parts, Dims& out) {
  out.rank = parts.rank;
  int at = 0;
  for (int i = 0; i < parts.rank; ++i) {
    int64_t n = 1, step = 1;  // of what is merged so far, from the last part on
    bool begun = false;
    for (int64_t j = parts[i] - 1; j >= 0; --j) {
      const int part = at + static_cast<int>(j);
      if (full[part] == 1) continue;
      if (begun && stride[part] != n * step) return false;
      if (!begun) step = stride[part];
      begun = true;
      n *= full[part];
    }
    out[i] = step;
    at += static_cast<int>(parts[i]);
  }
  return true;
}

// Strides of the parts of x's axes.
Dims split_stride(const Tensor& x, const AxisMove& move) {
  Dims stride;
  stride.rank = move.split.rank;
  int at = move.split.rank;
  for (int axis = x.dim() - 1; axis >= 0; --axis) {
    int64_t step = x.strides()[axis];
    for (int64_t j = 0; j < move.parts[axis]; ++j) {
      --at;
      stride[at] = step;
      step *= move.split[at];
    }
  }
  return stride;
}

// The gradient: new axes summed, parts back in x's order, merged to x's shape.
void move_back(Backward& b, const Dims& from, const Dims& full) {
  Tensor g = reshape(b.grad(), full);
  Dims one = full;
  for (int i = 0; i < full.rank; ++i)
    if (from[i] < 0) one[i] = 1;
  g = sum_to(g, one, b.category(0), b.gradient_dtype(0));
  Dims size, stride;
  for (int i = 0; i < full.rank; ++i) {
    if (from[i] < 0) continue;
    const int at = static_cast<int>(from[i]);
    size[at] = one[i], stride[at] = g.strides()[i];
    size.rank = stride.rank = size.rank + 1;
  }
  g = reshape(g.alias(size, stride, g.storage_offset()), b.input(0).size);
  if (b.category(0) != Category::kGradient) return b.add(0, std::move(g));
  bool accumulate;  // a leaf's gradient has memory of its own, in the leaf's order
  Tensor dx = b.target(0, accumulate);
  accumulate ? add_(dx, g) : copy_(dx, g);
  b.add(0, std::move(dx), accumulate);
}

}  // namespace

Tensor move_axes(const Tensor& x, const AxisMove& move) {
  const Dims size = merged_size(move.full, move.merged);
  bool same = size == x.sizes() && move.from.rank == move.split.rank;
  for (int i = 0; same && i < move.from.rank; ++i) same = move.from[i] == i;
  if (same) return x;
  const Dims parts = split_stride(x, move);
  Dims full, stride;
  full.rank = move.full.rank;
  for (int i = 0; i < full.rank; ++i) full[i] = move.from[i] < 0 ? 0 : parts[static_cast<int>(move.from[i])];
  Tensor y;
  if (size.numel() == 0) {
    y = x.alias(size, contiguous_strides(size), 0);
  } else if (merged_stride(move.full, full, move.merged, stride)) {
    y = x.alias(size, stride, x.storage_offset());
  } else {
    Tensor copy = Tensor::empty(move.full, x.dtype(), x.device());
    copy_(copy, x.alias(move.full, full, x.storage_offset()));
    y = copy.alias(size, contiguous_strides(size), 0);
  }
  record(
      y, {x}, {}, [](Backward& b, Dims from, Dims whole) { move_back(b, from, whole); }, move.from, move.full);
  return y;
}

}  // namespace tally
