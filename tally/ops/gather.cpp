#include "tally/ops/gather.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"
#include "tally/ops/view.h"

namespace tally {

void require_index(const char* op, const Tensor& index) {
  if (!index.defined()) fail("{}: an input is missing", op);
  if (index.dtype() != DType::kI32 && index.dtype() != DType::kI64)
    fail("{}: indices are i32 or i64, not {}", op, name_of(index.dtype()));
}

Tensor flat_index(const Tensor& index) {
  NoGrad quiet;
  return contiguous(reshape(index, Dims(index.numel())));
}

int64_t index_value(const Tensor& flat, int64_t i) {
  return flat.dtype() == DType::kI64 ? flat.data<int64_t>()[i] : flat.data<int32_t>()[i];
}

int64_t first_outside(const Tensor& flat, int64_t limit, const int64_t* allowed) {
  if (flat.device().kind != DeviceKind::kCpu) return -1;
  const auto find = [&](const auto* p) {
    const int64_t n = flat.numel();
    // Most often all are inside: x and limit - 1 - x are not negative then, which takes no branch an index.
    constexpr int64_t kChunk = 16384;
    std::atomic<int64_t> signs{0};
    parallel_for(n, kChunk, [&](int64_t begin, int64_t end) {
      int64_t joined = 0;
      for (int64_t i = begin; i < end; ++i) joined |= int64_t{p[i]} | (limit - 1 - int64_t{p[i]});
      if (joined < 0) signs.store(-1, std::memory_order_relaxed);
    });
    if (signs.load(std::memory_order_relaxed) == 0) return int64_t{-1};
    for (int64_t i = 0; i < n; ++i) {
      const int64_t x = p[i];
      if ((x < 0 || x >= limit) && !(allowed && x == *allowed)) return i;
    }
    return int64_t{-1};
  };
  return flat.dtype() == DType::kI64 ? find(flat.data<int64_t>()) : find(flat.data<int32_t>());
}

void require_range(const char* op, const Tensor& flat, int64_t limit) {
  if (const int64_t at = first_outside(flat, limit); at >= 0)
    fail_index("{}: index {} at position {} is outside 0..{}", op, index_value(flat, at), at, limit - 1);
}

Tensor spread_index(const Tensor& flat, const Dims& size, int axis) {
  Dims stride = contiguous_strides(size);
  if (flat.numel() != size.numel() || size.rank == 1) {
    for (int i = 0; i < size.rank; ++i) stride[i] = i == axis ? 1 : 0;
  }
  return flat.alias(size, stride, flat.storage_offset());
}

namespace {

void check_gather(const char* op, const Tensor& x, const Tensor& index) {
  if (!x.defined()) fail("{}: an input is missing", op);
  require_index(op, index);
  if (x.device() != index.device())
    fail("{}: devices {} and {} differ", op, name_of(x.device()), name_of(index.device()));
}

Tensor gathered(const Tensor& x, const Tensor& flat, const Dims& size, int axis) {
  Tensor y = Tensor::empty(size, x.dtype(), x.device());
  Dims lanes = size;
  lanes[axis] = x.sizes()[axis];
  launch(&Kernels::gather, GatherArgs{x.alias(lanes, x.strides(), x.storage_offset()).raw(),
                                      spread_index(flat, size, axis).raw(), y.raw(), axis});
  record(
      y, {x}, {flat},
      [](Backward& b, int along) {
        const Tensor index = b.saved(0);
        const InputMeta& x_meta = b.input(0);
        require_range("gather", index, x_meta.size[along]);  // the caller may have changed them since
        const DType sums = is_half(x_meta.dtype) ? DType::kF32 : x_meta.dtype;
        const bool narrow = b.gradient_dtype(0) != sums;  // summed in f32, rounded once
        Tensor dx = Tensor::empty(x_meta.size, sums, x_meta.device, narrow ? Category::kWorkspace : b.category(0));
        Dims lanes = b.grad().sizes();  // gather() may leave out the end of other axes
        const Tensor seen = spread_index(index, lanes, along);
        lanes[along] = x_meta.size[along];
        const bool partial = lanes != x_meta.size;
        if (partial) fill_(dx, 0.0);
        const Tensor grad = widens_f16(b.grad()) ? to(b.grad(), DType::kF32) : b.grad();
        launch(&Kernels::gather_backward,
               GatherBackwardArgs{grad.raw(), seen.raw(), dx.alias(lanes, dx.strides(), 0).raw(), along, partial});
        if (narrow) {
          Tensor rounded = b.empty(0);
          copy_(rounded, dx);
          dx = rounded;
        }
        b.add(0, std::move(dx));
      },
      axis);
  return y;
}

}  // namespace

Tensor index_select(const Tensor& x, int axis, const Tensor& ids) {
  check_gather("index_select", x, ids);
  axis = normalize_axis(axis, x.dim(), "index_select");
  if (ids.dim() != 1) fail("index_select: takes indices in one axis, not {}", str(ids.sizes()));
  const Tensor flat = flat_index(ids);
  require_range("index_select", flat, x.sizes()[axis]);
  Dims size = x.sizes();
  size[axis] = ids.numel();
  return gathered(x, flat, size, axis);
}

Tensor take_along_axis(const Tensor& x, const Tensor& index, int axis) {
  check_gather("take_along_axis", x, index);
  axis = normalize_axis(axis, x.dim(), "take_along_axis");
  Dims size = x.sizes();
  if (index.dim() == x.dim()) size[axis] = index.sizes()[axis];
  if (index.sizes() != size)
    fail("take_along_axis: an index of shape {} does not fit {} along axis {}", str(index.sizes()), str(x.sizes()),
         axis);
  const Tensor flat = flat_index(index);
  require_range("take_along_axis", flat, x.sizes()[axis]);
  return gathered(x, flat, size, axis);
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  check_gather("gather", x, index);
  if (index.dim() != x.dim())
    fail("gather: index {} must have as many axes as the input {}", str(index.sizes()), str(x.sizes()));
  axis = normalize_axis(axis, std::max(x.dim(), 1), "gather");
  if (x.dim() == 0) return reshape(gather(reshape(x, Dims(1)), 0, reshape(index, Dims(1))), {});
  for (int i = 0; i < x.dim(); ++i)
    if (i != axis && index.sizes()[i] > x.sizes()[i])
      fail("gather: index {} is larger than the input {} beyond axis {}", str(index.sizes()), str(x.sizes()), axis);
  const Tensor flat = flat_index(index);
  require_range("gather", flat, x.sizes()[axis]);
  return gathered(x, flat, index.sizes(), axis);
}

namespace {

// The tensors of cat() in their common dtype. Those of shape (0,) fit everywhere, as in PyTorch, and count for the
// dtype alone; if there are no others, one of them is left.
std::vector<Tensor> alike_parts(const std::vector<Tensor>& given) {
  if (given.empty()) fail_value("cat: expected a non-empty list of tensors");
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].defined()) fail("cat: an input is missing");
    if (given[i].dim() == 0) fail("cat: zero-dimensional tensor (at position {}) cannot be concatenated; use stack", i);
  }
  DType dtype = given[0].dtype();
  std::vector<Tensor> parts;
  for (const Tensor& t : given) {
    dtype = promote_types(dtype, t.dtype());
    if (t.device() != given[0].device())
      fail("cat: devices {} and {} differ; move one with to()", name_of(given[0].device()), name_of(t.device()));
    if (t.sizes() != Dims(0)) parts.push_back(t);
  }
  if (parts.empty()) parts.push_back(given[0]);
  for (Tensor& t : parts) t = converted(t, dtype);
  return parts;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& given, int axis) {
  const std::vector<Tensor> parts = alike_parts(given);
  if (parts.size() == 1 && parts[0].sizes() == Dims(0)) axis = 0;  // of such alone, any axis, as in PyTorch
  axis = normalize_axis(axis, parts[0].dim(), "cat");
  Dims size = parts[0].sizes();
  size[axis] = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Dims& other = parts[i].sizes();
    if (other.rank != size.rank)
      fail("cat: Tensors must have same number of dimensions: got {} and {}", size.rank, other.rank);
    for (int k = 0; k < size.rank; ++k)
      if (k != axis && other[k] != size[k])
        fail(
            "cat: Sizes of tensors must match except in dimension {}. Expected size {} but got size {} for tensor "
            "number {} in the list: {} beside {}",
            axis, size[k], other[k], i, str(other), str(parts[0].sizes()));
    size[axis] += other[axis];
  }
  Tensor out = Tensor::empty(size, parts[0].dtype(), parts[0].device());
  // One node a part: each hands its slice of the gradient to its part and the whole on to the node before it.
  int64_t at = 0;
  for (const Tensor& t : parts) {
    const int64_t n = t.sizes()[axis];
    Tensor next = out.detach();
    {
      NoGrad quiet;
      copy_(slice(next, axis, at, at + n), t);
    }
    record(
        next, {out, t}, {},
        [](Backward& b, int along, int64_t begin, int64_t length) {
          const Tensor g = b.take_grad();
          Tensor part = slice(g, along, begin, begin + length);
          if (b.needs(1) && b.category(1) == Category::kGradient) {  // a leaf keeps its own memory
            Tensor own = b.empty(1);
            copy_(own, part);
            part = own;
          }
          b.add(1, std::move(part));
          b.add(0, g);
        },
        axis, at, n);
    out = next;
    at += n;
  }
  return out;
}

namespace {

// The gradients of all parts in one buffer; zeros for a part that nothing used.
void join_gradients(Backward& b, int axis, Dims sizes) {
  Tensor dx = b.empty(0);
  int64_t at = 0;
  for (int i = 0; i < sizes.rank; ++i) {
    Tensor part = slice(dx, axis, at, at + sizes[i]);
    if (const Tensor g = b.take_grad(i); g.defined()) {
      copy_(part, g);
    } else {
      fill_(part, 0.0);
    }
    at += sizes[i];
  }
  b.add(0, std::move(dx));
}

void record_split(std::initializer_list<Tensor*> outputs, const Tensor& x, int axis, const Dims& sizes) {
  record(
      outputs, {x}, {}, [](Backward& b, int along, Dims all) { join_gradients(b, along, all); }, axis, sizes);
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int axis) {
  if (!x.defined()) fail("split: an input is missing");
  axis = normalize_axis(axis, x.dim(), "split");
  int64_t left = x.sizes()[axis];
  for (const int64_t n : sizes) {
    if (n < 0 || n > left) fail("split: sizes do not add up to axis {} of {}", axis, str(x.sizes()));
    left -= n;
  }
  if (left != 0) fail("split: sizes leave {} of axis {} of {}", left, axis, str(x.sizes()));
  const bool together = sizes.size() > 1 && sizes.size() <= kMaxRank;
  std::vector<Tensor> y;
  Dims lengths;
  int64_t at = 0;
  // Without a node, but of x's family: or each slice records itself.
  const Tensor source = together ? x.alias(x.sizes(), x.strides(), x.storage_offset()) : x;
  for (const int64_t n : sizes) {
    y.push_back(slice(source, axis, at, at + n));
    at += n;
    if (together) lengths[lengths.rank++] = n;
  }
  if (!together) return y;
  if (y.size() == 2) record_split({&y[0], &y[1]}, x, axis, lengths);
  if (y.size() == 3) record_split({&y[0], &y[1], &y[2]}, x, axis, lengths);
  if (y.size() == 4) record_split({&y[0], &y[1], &y[2], &y[3]}, x, axis, lengths);
  if (y.size() == 5) record_split({&y[0], &y[1], &y[2], &y[3], &y[4]}, x, axis, lengths);
  if (y.size() == 6) record_split({&y[0], &y[1], &y[2], &y[3], &y[4], &y[5]}, x, axis, lengths);
  if (y.size() == 7) record_split({&y[0], &y[1], &y[2], &y[3], &y[4], &y[5], &y[6]}, x, axis, lengths);
  if (y.size() == 8) record_split({&y[0], &y[1], &y[2], &y[3], &y[4], &y[5], &y[6], &y[7]}, x, axis, lengths);
  return y;
}

}  // namespace tally
