#include "tally/ops/view.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"
#include "tally/ops/reduce.h"

namespace tally {

namespace {

// A fresh contiguous copy of x's values in dtype; not recorded.
Tensor copied(const Tensor& x, DType dtype, Category category, bool saturate = true) {
  Tensor y = Tensor::empty(x.sizes(), dtype, x.device(), category);
  copy_(y, x, saturate);
  return y;
}

// `size` for the elements of a tensor (or an axis) of shape `of`: resolves one -1 and checks their number.
Dims resolved(const Dims& of, Dims size) {
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
    size[unknown] = of.numel() / known;
    known *= size[unknown];
  }
  if (!fits || known != of.numel())
    fail("view: shape {} does not fit {} elements of {}", str(size), of.numel(), str(of));
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
  if (x.dim() == 0) {  // as PyTorch: a scalar's axis
    scalar_axis(a, 0, "transpose"), scalar_axis(b, 0, "transpose");
    return x;
  }
  a = normalize_axis(a, x.dim(), "transpose"), b = normalize_axis(b, x.dim(), "transpose");
  Dims size = x.sizes(), stride = x.strides();
  std::swap(size[a], size[b]);
  std::swap(stride[a], stride[b]);
  Tensor y = x.alias(size, stride, x.storage_offset());
  record(
      y, {x}, {}, [](Backward& t, int i, int j) { t.add(0, transpose(t.grad(), i, j)); }, a, b);
  return y;
}

Tensor permute(const Tensor& x, const Dims& order) {
  if (order.rank != x.dim()) fail("permute: {} axes given for a tensor of shape {}", order.rank, str(x.sizes()));
  Dims size, stride, back;
  size.rank = stride.rank = back.rank = x.dim();
  bool seen[kMaxRank] = {};
  for (int i = 0; i < order.rank; ++i) {
    const int from = normalize_axis(static_cast<int>(order[i]), x.dim(), "permute");
    if (seen[from]) fail("permute: axis {} comes twice in {}", from, str(order));
    seen[from] = true;
    size[i] = x.sizes()[from], stride[i] = x.strides()[from], back[from] = i;
  }
  Tensor y = x.alias(size, stride, x.storage_offset());
  record(
      y, {x}, {}, [](Backward& b, Dims inverse) { b.add(0, permute(b.grad(), inverse)); }, back);
  return y;
}

Tensor t(const Tensor& x) {
  if (x.dim() > 2) fail("t: takes at most two axes, not {}; use transpose or mT", str(x.sizes()));
  return x.dim() < 2 ? x : transpose(x, 0, 1);
}

Tensor mT(const Tensor& x) {
  if (x.dim() < 2) fail("mT: takes at least two axes, not {}", str(x.sizes()));
  return transpose(x, -2, -1);
}

Tensor movedim(const Tensor& x, const Dims& from, const Dims& to) {
  if (from.rank != to.rank) fail("movedim: {} axes to {} places", from.rank, to.rank);
  if (x.dim() == 0 && from.rank == 1 && from[0] >= -1 && from[0] <= 0 && to[0] >= -1 && to[0] <= 0) return x;
  Dims order;
  order.rank = x.dim();
  bool moved[kMaxRank] = {}, taken[kMaxRank] = {};
  for (int i = 0; i < from.rank; ++i) {
    const int f = normalize_axis(static_cast<int>(from[i]), x.dim(), "movedim");
    const int place = normalize_axis(static_cast<int>(to[i]), x.dim(), "movedim");
    if (moved[f] || taken[place]) fail("movedim: an axis comes twice in {} to {}", str(from), str(to));
    moved[f] = taken[place] = true;
    order[place] = f;
  }
  for (int f = 0, place = 0; f < x.dim(); ++f) {
    if (moved[f]) continue;
    while (taken[place]) ++place;
    order[place++] = f;
  }
  return permute(x, order);
}

Tensor broadcast_to(const Tensor& x, const Dims& size) {
  if (x.sizes() == size) return x;
  Tensor y = broadcast_view(x, size);
  record(y, {x}, {},
         [](Backward& b) { b.add(0, sum_to(b.grad(), b.input(0).size, b.category(0), b.gradient_dtype(0))); });
  return y;
}

Tensor expand(const Tensor& x, const Dims& size) {
  Dims full = size;
  if (full.rank < x.dim()) fail("expand: {} has more axes than {}", str(x.sizes()), str(size));
  double elements = 1;
  for (int i = 0; i < full.rank; ++i) {
    const int from = i - (full.rank - x.dim());
    if (full[i] == -1 && from >= 0) full[i] = x.sizes()[from];
    if (full[i] < 0) fail("expand: size {} is not allowed at axis {} of {}", full[i], i, str(size));
    if (full[i] > 0 && (elements *= static_cast<double>(full[i])) >= 0x1p63)
      fail("expand: a tensor of shape {} has too many elements", str(full));
  }
  return broadcast_to(x, full);
}

namespace {

// x with other axes of size 1; recorded.
Tensor with_unit_axes(const Tensor& x, const Dims& size, const Dims& stride) {
  Tensor y = x.alias(size, stride, x.storage_offset());
  record(y, {x}, {}, [](Backward& b) { b.add(0, reshape(b.grad(), b.input(0).size)); });
  return y;
}

Tensor squeezed(const Tensor& x, const bool (&drop)[kMaxRank]) {
  Dims size, stride;
  for (int i = 0; i < x.dim(); ++i)
    if (!drop[i] || x.sizes()[i] != 1) size[size.rank++] = x.sizes()[i], stride[stride.rank++] = x.strides()[i];
  return size.rank == x.dim() ? x : with_unit_axes(x, size, stride);
}

}  // namespace

Tensor squeeze(const Tensor& x) { return squeezed(x, {true, true, true, true, true, true}); }

Tensor squeeze(const Tensor& x, int axis) { return squeeze(x, Dims(axis)); }

Tensor squeeze(const Tensor& x, const Dims& axes) {
  bool drop[kMaxRank] = {};
  for (int i = 0; i < axes.rank; ++i) {
    const int axis = normalize_axis(static_cast<int>(axes[i]), std::max(x.dim(), 1), "squeeze");
    if (drop[axis]) fail("squeeze: axis {} comes twice in {}", axis, str(axes));
    drop[axis] = true;
  }
  return squeezed(x, drop);
}

Tensor unsqueeze(const Tensor& x, int axis) {
  if (x.dim() == kMaxRank) fail("unsqueeze: {} already has {} axes", str(x.sizes()), kMaxRank);
  axis = normalize_axis(axis, x.dim() + 1, "unsqueeze");
  Dims size, stride;
  for (int i = 0; i <= x.dim(); ++i) {
    if (i == axis) size[size.rank++] = 1, stride[stride.rank++] = i < x.dim() ? x.sizes()[i] * x.strides()[i] : 1;
    if (i < x.dim()) size[size.rank++] = x.sizes()[i], stride[stride.rank++] = x.strides()[i];
  }
  return with_unit_axes(x, size, stride);
}

Tensor view(const Tensor& x, const Dims& wanted) {
  const Dims size = resolved(x.sizes(), wanted);
  Dims stride;
  if (!view_strides(x, size, stride))
    fail("view size is not compatible with input tensor's size and stride: {} with strides {} as {}; use reshape",
         str(x.sizes()), str(x.strides()), str(size));
  Tensor y = x.alias(size, stride, x.storage_offset());
  record(y, {x}, {}, [](Backward& t) { t.add(0, reshape(t.grad(), t.input(0).size)); });
  return y;
}

Tensor reshape(const Tensor& x, const Dims& wanted) {
  const Dims size = resolved(x.sizes(), wanted);
  Dims stride;
  return view(view_strides(x, size, stride) ? x : contiguous(x), size);
}

Tensor view(const Tensor& x, DType dtype) {
  const int64_t from = x.element_size(), to = item_size(dtype);
  Dims size = x.sizes(), stride = x.strides();
  int64_t offset = x.storage_offset();
  if (from != to) {
    const int last = x.dim() - 1;
    const auto fits = [&](int64_t n) { return n * from % to == 0; };
    bool whole = last >= 0 && (stride[last] == 1 || size[last] == 1) && fits(size[last]) && fits(offset);
    for (int i = 0; i < last; ++i) whole = whole && (fits(stride[i]) || size[i] == 1);
    if (!whole)
      fail("view: {} of shape {} and strides {} cannot be seen as {}; use contiguous", name_of(x.dtype()), str(size),
           str(stride), name_of(dtype));
    size[last] = size[last] * from / to, offset = offset * from / to;
    for (int i = 0; i < last; ++i) stride[i] = stride[i] * from / to;
    stride[last] = 1;
  }
  return x.alias(dtype, size, stride, offset);
}

Tensor flatten(const Tensor& x, int start, int end) {
  if (x.dim() == 0) return reshape(x, Dims(1));
  start = normalize_axis(start, x.dim(), "flatten"), end = normalize_axis(end, x.dim(), "flatten");
  if (start > end) fail("flatten: start {} comes behind end {}", start, end);
  if (start == end) return x;
  Dims size;
  for (int i = 0; i < x.dim(); ++i) {
    if (i > start && i <= end)
      size[size.rank - 1] *= x.sizes()[i];
    else
      size[size.rank++] = x.sizes()[i];
  }
  return reshape(x, size);
}

Tensor unflatten(const Tensor& x, int axis, const Dims& sizes) {
  axis = normalize_axis(axis, x.dim(), "unflatten");
  if (sizes.rank == 0) fail("unflatten: takes at least one size");
  if (x.dim() - 1 + sizes.rank > kMaxRank) fail("unflatten: more than {} axes", kMaxRank);
  const Dims parts = resolved(Dims(x.sizes()[axis]), sizes);
  Dims size;
  for (int i = 0; i < x.dim(); ++i) {
    if (i != axis)
      size[size.rank++] = x.sizes()[i];
    else
      for (int k = 0; k < parts.rank; ++k) size[size.rank++] = parts[k];
  }
  return view(x, size);
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
  const auto differentiable = [](DType t) { return is_float(t) || t == DType::kF8E4M3 || t == DType::kF8E5M2; };
  if (differentiable(dtype) && differentiable(x.dtype()))
    record(y, {x}, {}, [](Backward& t) { t.add(0, copied(t.grad(), t.gradient_dtype(0), t.category(0))); });
  return y;
}

}  // namespace tally
