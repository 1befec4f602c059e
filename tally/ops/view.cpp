#include "tally/ops/view.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"

namespace tally {

namespace {

// A fresh contiguous copy of x's values in dtype; not recorded.
Tensor copied(const Tensor& x, DType dtype, Category category, bool saturate = true) {
  Tensor y = Tensor::empty(x.sizes(), dtype, x.device(), category);
  copy_(y, x, saturate);
  return y;
}

// Resolves one -1 and checks the number of elements.
Dims resolved(const Tensor& x, Dims size) {
  int unknown = -1;
  int64_t known = 1;
  bool fits = true;
  for (int i = 0; i < size.rank; ++i) {
    if (size[i] == -1) {
      if (unknown >= 0) fail("view: only one size can be -1 in {}", str(size));
      unknown = i;
    } else {
      if (size[i] < 0) fail("view: invalid size in {}", str(size));
      fits = !__builtin_mul_overflow(known, size[i], &known) && fits;
    }
  }
  if (fits && unknown >= 0) {
    if (known == 0) fail("view: a -1 beside a size of 0 in {} cannot be inferred", str(size));
    size[unknown] = x.numel() / known;
    known *= size[unknown];
  }
  if (!fits || known != x.numel())
    fail("view: shape {} does not fit {} elements of {}", str(size), x.numel(), str(x.sizes()));
  return size;
}

// Strides that show x's elements in `size`, or false: each group of merged axes must be contiguous in itself.
bool view_strides(const Tensor& x, const Dims& size, Dims& stride) {
  stride.rank = size.rank;
  if (x.numel() == 0) {
    stride = contiguous_strides(size);
    return true;
  }
  int out = size.rank - 1;
  int64_t base = x.dim() > 0 ? x.strides()[x.dim() - 1] : 1;  // stride of the group's last axis
  int64_t in_group = 1, out_group = 1;
  for (int in = x.dim() - 1; in >= 0; --in) {
    in_group *= x.sizes()[in];
    const bool group_ends = in == 0 || (x.sizes()[in - 1] != 1 && x.strides()[in - 1] != in_group * base);
    if (!group_ends) continue;
    while (out >= 0 && (out_group < in_group || size[out] == 1)) {
      stride[out] = out_group * base;
      out_group *= size[out--];
    }
    if (out_group != in_group) return false;
    if (in > 0) base = x.strides()[in - 1], in_group = 1, out_group = 1;
  }
  for (; out >= 0; --out) stride[out] = 1;  // leading axes of size 1
  return true;
}

}  // namespace

Tensor transpose(const Tensor& x, int a, int b) {
  a = normalize_axis(a, x.dim(), "transpose"), b = normalize_axis(b, x.dim(), "transpose");
  Dims size = x.sizes(), stride = x.strides();
  std::swap(size[a], size[b]);
  std::swap(stride[a], stride[b]);
  Tensor y = x.alias(size, stride, x.storage_offset());
  record(
      y, {x}, {}, [](Backward& t, int i, int j) { t.add(0, transpose(t.grad(), i, j)); }, a, b);
  return y;
}

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end) {
  axis = normalize_axis(axis, x.dim(), "slice");
  const int64_t n = x.sizes()[axis];
  if (begin < 0) begin += n;
  if (end < 0) end += n;
  if (begin < 0 || begin > end || end > n)
    fail("slice: [{}, {}) is outside axis {} of {}", begin, end, axis, str(x.sizes()));
  Dims size = x.sizes();
  size[axis] = end - begin;
  Tensor y = x.alias(size, x.strides(), x.storage_offset() + begin * x.strides()[axis]);
  record(
      y, {x}, {},
      [](Backward& t, int i, int64_t from, int64_t to) {
        bool accumulate;
        Tensor dx = t.target(0, accumulate);
        if (!accumulate) fill_(dx, 0.0);
        Tensor part = slice(dx, i, from, to);
        if (accumulate)
          add_(part, t.grad());
        else
          copy_(part, t.grad());
        part = {};
        t.add(0, dx, accumulate);
      },
      axis, begin, end);
  return y;
}

Tensor expand(const Tensor& x, const Dims& size) {
  Dims full = size;
  for (int i = 0; i < full.rank; ++i) {
    const int from = i - (full.rank - x.dim());
    if (full[i] == -1 && from >= 0) full[i] = x.sizes()[from];
  }
  Tensor y = broadcast_to(x, full);
  record(y, {x}, {},
         [](Backward& t) { t.add(0, sum_to(t.grad(), t.input(0).size, t.category(0), t.gradient_dtype(0))); });
  return y;
}

Tensor squeeze(const Tensor& x, int axis) {
  axis = normalize_axis(axis, x.dim(), "squeeze");
  if (x.sizes()[axis] != 1) return x;
  Dims size;
  for (int i = 0; i < x.dim(); ++i)
    if (i != axis) size[size.rank++] = x.sizes()[i];
  return view(x, size);
}

Tensor unsqueeze(const Tensor& x, int axis) {
  if (x.dim() == kMaxRank) fail("unsqueeze: {} already has {} axes", str(x.sizes()), kMaxRank);
  axis = normalize_axis(axis, x.dim() + 1, "unsqueeze");
  Dims size;
  for (int i = 0; i <= x.dim(); ++i) {
    if (i == axis) size[size.rank++] = 1;
    if (i < x.dim()) size[size.rank++] = x.sizes()[i];
  }
  return view(x, size);
}

Tensor view(const Tensor& x, const Dims& wanted) {
  const Dims size = resolved(x, wanted);
  Dims stride;
  if (!view_strides(x, size, stride))
    fail("view size is not compatible with input tensor's size and stride: {} with strides {} as {}; use reshape",
         str(x.sizes()), str(x.strides()), str(size));
  Tensor y = x.alias(size, stride, x.storage_offset());
  record(y, {x}, {}, [](Backward& t) { t.add(0, reshape(t.grad(), t.input(0).size)); });
  return y;
}

Tensor reshape(const Tensor& x, const Dims& wanted) {
  const Dims size = resolved(x, wanted);
  Dims stride;
  return view(view_strides(x, size, stride) ? x : contiguous(x), size);
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor y = copied(x, x.dtype(), Category::kActivation);
  record(y, {x}, {}, [](Backward& t) { t.add(0, t.take_grad()); });
  return y;
}

Tensor to(const Tensor& x, DType dtype, bool saturate) {
  if (x.dtype() == dtype) return x;
  Tensor y = copied(x, dtype, Category::kActivation, saturate);
  if (is_float(dtype) && is_float(x.dtype()))
    record(y, {x}, {}, [](Backward& t) { t.add(0, copied(t.grad(), t.gradient_dtype(0), t.category(0))); });
  return y;
}

}  // namespace tally
