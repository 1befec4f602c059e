#include "tally/ops/overlap.h"

#include <algorithm>

#include "tally/ops/elementwise.h"

namespace tally {

namespace {

// True when no two elements of the axes in `mask` lie at one place: each axis steps over all that shorter steps reach.
// (Sufficient, and necessary for the views made here.)
bool apart(const Dims& size, const Dims& stride, unsigned mask) {
  int axes[kMaxRank], n = 0;  // by stride
  for (int i = 0; i < size.rank; ++i) {
    if (!(mask >> i & 1) || size[i] <= 1) continue;
    int k = n++;
    for (; k > 0 && stride[axes[k - 1]] > stride[i]; --k) axes[k] = axes[k - 1];
    axes[k] = i;
  }
  int64_t reach = 0;
  for (int k = 0; k < n; ++k) {
    if (stride[axes[k]] <= reach) return false;
    reach += (size[axes[k]] - 1) * stride[axes[k]];
  }
  return true;
}

// The axes to go through one by one so that the others lie apart: those with the fewest steps in all.
unsigned axes_to_step(const Dims& size, const Dims& stride) {
  const unsigned all = (1u << size.rank) - 1;
  unsigned best = all;
  int64_t fewest = size.numel();
  for (unsigned stepped = 0; stepped <= all; ++stepped) {
    int64_t steps = 1;
    for (int i = 0; i < size.rank; ++i)
      if (stepped >> i & 1) steps *= size[i];
    if (steps < fewest && apart(size, stride, all & ~stepped)) best = stepped, fewest = steps;
  }
  return best;
}

}  // namespace

bool apart(const Tensor& x) { return x.numel() == 0 || apart(x.sizes(), x.strides(), (1u << kMaxRank) - 1); }

void add_overlapping(Tensor part, Tensor g) {
  if (part.numel() == 0) return;
  Dims size = part.sizes();
  for (int i = 0; i < size.rank; ++i)
    if (part.strides()[i] == 0) size[i] = 1;
  if (size != part.sizes()) {  // seen again and again: one sum
    g = sum_to(g, size, Category::kActivation, part.dtype());
    part = part.alias(size, part.strides(), part.storage_offset());
  }
  const unsigned stepped = axes_to_step(size, part.strides());
  Dims one = size, index;
  index.rank = size.rank;
  for (int i = 0; i < size.rank; ++i)
    if (stepped >> i & 1) one[i] = 1;
  for (;;) {
    int64_t to = part.storage_offset(), from = g.storage_offset();
    for (int i = 0; i < size.rank; ++i) to += index[i] * part.strides()[i], from += index[i] * g.strides()[i];
    Tensor here = part.alias(one, part.strides(), to);
    add_(here, g.alias(one, g.strides(), from));
    int i = size.rank - 1;
    for (; i >= 0; --i) {
      if (!(stepped >> i & 1)) continue;
      if (++index[i] < size[i]) break;
      index[i] = 0;
    }
    if (i < 0) return;
  }
}

// By way of a piece of memory that spans both views.
void add_from_memory(Backward& b, int i, const Dims& of_x, int64_t x_at, const Dims& of_y, int64_t y_at) {
  const InputMeta& in = b.input(i);
  int64_t x_end = x_at, y_end = y_at;
  for (int k = 0; k < of_x.rank; ++k) x_end += (in.size[k] - 1) * of_x[k];
  for (int k = 0; k < of_y.rank; ++k) y_end += (b.grad().sizes()[k] - 1) * of_y[k];
  const int64_t first = std::min(x_at, y_at);
  const bool none = in.size.numel() == 0 || b.grad().numel() == 0;
  bool accumulate;
  Tensor dx = b.target(i, accumulate);
  if (none) {
    if (!accumulate) fill_(dx, 0.0);
  } else {
    Tensor memory = Tensor::empty(Dims(std::max(x_end, y_end) + 1 - first), b.gradient_dtype(i), in.device);
    fill_(memory, 0.0);
    add_overlapping(memory.alias(b.grad().sizes(), of_y, y_at - first), b.grad());
    const Tensor seen = memory.alias(in.size, of_x, x_at - first);
    accumulate ? add_(dx, seen) : copy_(dx, seen);
  }
  b.add(i, dx, accumulate);
}

}  // namespace tally
