#include "tally/ops/arrange.h"

#include <algorithm>
#include <string>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Tensor like(const Tensor& x, const Dims& size) { return Tensor::empty(size, x.dtype(), x.device()); }

void require_tensor(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: an input is missing", op);
}

}  // namespace

Tensor stack(const std::vector<Tensor>& parts, int axis) {
  if (parts.empty()) fail("stack: takes a non-empty list of tensors");
  std::vector<Tensor> rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    require_tensor("stack", parts[i]);
    if (parts[i].sizes() != parts[0].sizes())
      fail("stack: expects each tensor to be equal size, but got {} at entry 0 and {} at entry {}",
           str(parts[0].sizes()), str(parts[i].sizes()), i);
    rows.push_back(unsqueeze(parts[i], axis));
  }
  return cat(rows, normalize_axis(axis, rows[0].dim(), "stack"));
}

// ---- flip and roll

namespace {

// x read backwards along the axes whose bits are set.
Tensor flipped(const Tensor& x, int mask) {
  Tensor y = like(x, x.sizes());
  Dims stride = x.strides();
  int64_t offset = x.storage_offset();
  for (int i = 0; i < x.dim(); ++i) {
    if ((mask >> i & 1) == 0) continue;
    offset += x.numel() > 0 ? (x.sizes()[i] - 1) * stride[i] : 0;
    stride[i] = -stride[i];
  }
  copy_(y, x.alias(x.sizes(), stride, offset));
  return y;
}

Tensor rolled(const Tensor& x, int64_t shift, int axis) {
  const int64_t n = x.sizes()[axis];
  Tensor y = like(x, x.sizes());
  NoGrad quiet;
  const Tensor from = x.detach();
  copy_(slice(y, axis, 0, shift), slice(from, axis, n - shift, n));
  copy_(slice(y, axis, shift, n), slice(from, axis, 0, n - shift));
  return y;
}

Tensor roll_one(const Tensor& x, int64_t shift, int axis) {
  const int64_t n = x.sizes()[axis];
  if (n == 0) return x;
  shift = (shift % n + n) % n;
  Tensor y = rolled(x, shift, axis);
  record(
      y, {x}, {}, [](Backward& b, int64_t back, int along) { b.add(0, rolled(b.grad(), back, along)); },
      (n - shift) % n, axis);
  return y;
}

}  // namespace

Tensor flip(const Tensor& x, const Dims& axes) {
  require_tensor("flip", x);
  int mask = 0;
  for (int i = 0; i < axes.rank; ++i) {
    const int bit = 1 << scalar_axis(static_cast<int>(axes[i]), x.dim(), "flip");
    if (mask & bit) fail("flip: axis {} appears multiple times in the list of axes", axes[i]);
    mask |= bit;
  }
  Tensor y = flipped(x, mask);
  record(
      y, {x}, {}, [](Backward& b, int along) { b.add(0, flipped(b.grad(), along)); }, mask);
  return y;
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& axes) {
  require_tensor("roll", x);
  if (axes.rank == 0 && shifts.rank == 1)
    return reshape(roll_one(reshape(x, Dims(x.numel())), shifts[0], 0), x.sizes());
  if (shifts.rank != axes.rank || shifts.rank == 0)
    fail("roll: shifts {} and axes {} must have one length of at least 1", str(shifts), str(axes));
  Tensor y = x;
  for (int i = 0; i < axes.rank; ++i)
    y = roll_one(y, shifts[i], normalize_axis(static_cast<int>(axes[i]), x.dim(), "roll"));
  return y;
}

// ---- pad

namespace {

// What of x and of the result is the same, for one amount before each axis.
struct Overlap {
  Dims size, x_begin, y_begin;
};
Overlap overlap_of(const Dims& x, const Dims& y, const Dims& before) {
  Overlap o;
  o.size.rank = o.x_begin.rank = o.y_begin.rank = x.rank;
  for (int i = 0; i < x.rank; ++i) {
    o.x_begin[i] = std::max<int64_t>(0, -before[i]), o.y_begin[i] = std::max<int64_t>(0, before[i]);
    o.size[i] = std::max<int64_t>(0, std::min(x[i] - o.x_begin[i], y[i] - o.y_begin[i]));
  }
  return o;
}
Tensor part_of(const Tensor& t, const Dims& size, const Dims& begin) {
  int64_t offset = t.storage_offset();
  for (int i = 0; i < t.dim() && size.numel() > 0; ++i) offset += begin[i] * t.strides()[i];
  return t.alias(size, t.strides(), offset);
}

// What lies outside of `size` from `begin` on, slab by slab.
void fill_around(const Tensor& y, const Dims& size, const Dims& begin, double value) {
  if (size.numel() == 0) {
    Tensor whole = y.detach();
    return fill_(whole, value);
  }
  Dims left = y.sizes(), from;
  from.rank = left.rank;
  for (int i = 0; i < y.dim(); ++i) {
    const int64_t n = y.sizes()[i], end = begin[i] + size[i];
    for (const auto& [at, length] : {std::pair<int64_t, int64_t>{0, begin[i]}, {end, n - end}}) {
      if (length == 0) continue;
      Dims slab = left, corner = from;
      slab[i] = length, corner[i] = at;
      Tensor part = part_of(y, slab, corner);
      fill_(part, value);
    }
    left[i] = size[i], from[i] = begin[i];
  }
}

// y's values from x, `before` places further; the rest of y is `value`.
Tensor moved(const Tensor& x, const Dims& size, const Dims& before, double value, Category category) {
  const Tensor y = Tensor::empty(size, x.dtype(), x.device(), category);
  const Overlap o = overlap_of(x.sizes(), size, before);
  fill_around(y, o.size, o.y_begin, value);
  if (o.size.numel() > 0) copy_(part_of(y, o.size, o.y_begin), part_of(x, o.size, o.x_begin));
  return y;
}

Tensor pad_constant(const Tensor& x, const Dims& size, const Dims& before, double value) {
  Tensor y = moved(x, size, before, value, Category::kActivation);
  record(
      y, {x}, {},
      [](Backward& b, Dims shift) {
        for (int i = 0; i < shift.rank; ++i) shift[i] = -shift[i];
        const bool narrow = b.gradient_dtype(0) != b.grad().dtype();
        b.add(0, moved(b.grad(), b.input(0).size, shift, 0, narrow ? Category::kActivation : b.category(0)));
      },
      before);
  return y;
}

// The element of an axis of n that stands at place i of the padded one.
int64_t source_of(PadMode mode, int64_t i, int64_t n) {
  if (mode == PadMode::kReplicate) return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == PadMode::kCircular) return (i % n + n) % n;
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

Tensor pad_axis(const Tensor& x, int axis, int64_t before, int64_t after, PadMode mode) {
  const int64_t n = x.sizes()[axis], most = mode == PadMode::kReflect ? n - 1 : n;
  if (mode != PadMode::kReplicate && (before > most || after > most))
    fail("pad: ({}, {}) on axis {} of {} is more than {} elements can give", before, after, axis, str(x.sizes()), n);
  if (n == 0) fail("pad: axis {} of {} has no element to repeat", axis, str(x.sizes()));
  const int64_t length = n + before + after;
  if (length < 0) fail("pad: ({}, {}) leaves nothing of axis {} of {}", before, after, axis, str(x.sizes()));
  const Tensor ids = Tensor::empty(Dims(length), DType::kI64, kCpu, Category::kWorkspace);
  for (int64_t i = 0; i < length; ++i) ids.data<int64_t>()[i] = source_of(mode, i - before, n);
  if (x.device().kind != DeviceKind::kMeta) return index_select(x, axis, to(ids, x.device()));
  return index_select(x, axis, Tensor::empty(ids.sizes(), DType::kI64, x.device(), Category::kWorkspace));
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& amounts, PadMode mode, double value) {
  require_tensor("pad", x);
  const auto axes = static_cast<int>(amounts.size() / 2);
  if (amounts.size() % 2 != 0 || axes > x.dim())
    fail("pad: takes two amounts for each of up to {} axes of {}, not {} amounts", x.dim(), str(x.sizes()),
         amounts.size());
  Dims size = x.sizes(), before;
  before.rank = size.rank;
  Tensor y = x;
  for (int k = 0; k < axes; ++k) {
    const int axis = x.dim() - 1 - k;
    const int64_t low = amounts[static_cast<size_t>(2 * k)], high = amounts[static_cast<size_t>(2 * k + 1)];
    before[axis] = low;
    size[axis] += low + high;
    if (size[axis] < 0) fail("pad: ({}, {}) leaves nothing of axis {} of {}", low, high, axis, str(x.sizes()));
    if (mode != PadMode::kConstant && (low != 0 || high != 0)) y = pad_axis(y, axis, low, high, mode);
  }
  return mode == PadMode::kConstant ? pad_constant(x, size, before, value) : y;
}

PadMode pad_mode_from_name(const std::string& name) {
  const char* const names[] = {"constant", "reflect", "replicate", "circular"};
  for (int i = 0; i < 4; ++i)
    if (name == names[i]) return static_cast<PadMode>(i);
  fail_value("pad: mode is constant, reflect, replicate or circular, not '{}'", name);
}

// ---- repeat

namespace {

// Of (outer, n, inner): (outer, times, n, inner), or each element many times, (outer, n, times, inner).
Tensor repeat_axis(const Tensor& x, int axis, int64_t times, bool each) {
  if (times == 1) return x;
  if (times < 0) fail_value("repeat: {} times", times);
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= x.sizes()[i];
  for (int i = axis + 1; i < x.dim(); ++i) inner *= x.sizes()[i];
  const int64_t n = x.sizes()[axis], one = each ? times : n, two = each ? n : times;  // sizes, the inner one first
  NoGrad quiet;
  const Tensor from = contiguous(x.detach());
  Dims size = x.sizes();
  if (__builtin_mul_overflow(size[axis], times, &size[axis])) fail("repeat: {} times {} is too long", times, n);
  const Tensor y = like(x, size);
  const Dims seen(outer, two, one, inner);
  copy_(y.alias(seen, contiguous_strides(seen), 0),
        from.alias(seen, Dims(n * inner, each ? inner : 0, each ? 0 : inner, 1), from.storage_offset()));
  return y;
}

Tensor repeated(const Tensor& x, int axis, int64_t times, bool each) {
  if (times == 1) return x;
  Tensor y = repeat_axis(x, axis, times, each);
  record(
      y, {x}, {},
      [](Backward& b, int along, int64_t count, bool every) {
        NoGrad quiet;
        const Dims& size = b.input(0).size;
        int64_t outer = 1, inner = 1;
        for (int i = 0; i < along; ++i) outer *= size[i];
        for (int i = along + 1; i < size.rank; ++i) inner *= size[i];
        const int64_t n = size[along];
        const Tensor g = reshape(b.take_grad(), every ? Dims(outer, n, count, inner) : Dims(outer, count, n, inner));
        const Tensor dx = Tensor::empty(size, b.gradient_dtype(0), g.device(), b.category(0));
        const Dims seen = every ? Dims(outer, n, 1, inner) : Dims(outer, 1, n, inner);
        reduce_(ReduceOp::kSum, g, dx.alias(seen, contiguous_strides(seen), 0));
        b.add(0, dx);
      },
      axis, times, each);
  return y;
}

}  // namespace

Tensor repeat(const Tensor& x, const Dims& repeats) {
  require_tensor("repeat", x);
  if (repeats.rank < x.dim())
    fail("repeat: {} repeats for a tensor of {} axes; give one for each", repeats.rank, x.dim());
  Dims size;
  for (int i = 0; i < repeats.rank - x.dim(); ++i) size[size.rank++] = 1;
  for (int i = 0; i < x.dim(); ++i) size[size.rank++] = x.sizes()[i];
  for (int i = 0; i < repeats.rank; ++i)
    if (repeats[i] < 0) fail("repeat: {} holds a negative number", str(repeats));
  Tensor y = size == x.sizes() ? x : reshape(x, size);
  for (int i = repeats.rank - 1; i >= 0; --i) y = repeated(y, i, repeats[i], false);
  if (!y.shares_storage(x)) return y;
  Tensor copy = like(x, y.sizes());  // a result of its own, as ever
  copy_(copy, y);
  record(copy, {y}, {}, [](Backward& b) { b.add(0, b.take_grad()); });
  return copy;
}

Tensor tile(const Tensor& x, const Dims& repeats) {
  require_tensor("tile", x);
  Dims all;
  for (int i = repeats.rank; i < x.dim(); ++i) all[all.rank++] = 1;
  for (int i = 0; i < repeats.rank; ++i) all[all.rank++] = repeats[i];
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, int64_t times, int axis) {
  require_tensor("repeat_interleave", x);
  if (times < 0) fail("repeat_interleave: repeats must be non-negative, not {}", times);
  return repeated(x, normalize_axis(axis, x.dim(), "repeat_interleave"), times, true);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& times, int axis) {
  require_tensor("repeat_interleave", x);
  require_index("repeat_interleave", times);
  axis = normalize_axis(axis, x.dim(), "repeat_interleave");
  const int64_t n = x.sizes()[axis];
  if (times.device().kind == DeviceKind::kMeta)
    fail("repeat_interleave: the result's size depends on values, which a {} tensor has not", name_of(times.device()));
  if (times.dim() > 1 || (times.numel() != n && times.numel() != 1))
    fail("repeat_interleave: repeats {} must have the size of axis {} of {}", str(times.sizes()), axis, str(x.sizes()));
  const std::vector<double> counts = times.to_vector();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i) {
    const auto count = static_cast<int64_t>(counts[counts.size() == 1 ? 0 : static_cast<size_t>(i)]);
    if (count < 0) fail("repeat_interleave: repeats must be non-negative, not {}", count);
    ids.insert(ids.end(), static_cast<size_t>(count), i);
  }
  const Tensor host = Tensor::empty(Dims(static_cast<int64_t>(ids.size())), DType::kI64, kCpu, Category::kWorkspace);
  std::copy(ids.begin(), ids.end(), host.data<int64_t>());
  if (x.device().kind == DeviceKind::kMeta)
    return index_select(x, axis, Tensor::empty(host.sizes(), DType::kI64, x.device(), Category::kWorkspace));
  return index_select(x, axis, to(host, x.device()));
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& vectors) {
  if (vectors.empty()) fail("meshgrid: takes a non-empty list of tensors");
  if (vectors.size() > kMaxRank) fail("meshgrid: more than {} vectors", kMaxRank);
  Dims size;
  for (const Tensor& v : vectors) {
    require_tensor("meshgrid", v);
    if (v.dim() > 1) fail("meshgrid: takes vectors, not {}", str(v.sizes()));
    size[size.rank++] = v.numel();
  }
  std::vector<Tensor> all;
  for (int i = 0; i < size.rank; ++i) {
    Dims seen;
    seen.rank = size.rank;
    for (int k = 0; k < size.rank; ++k) seen[k] = k == i ? size[k] : 1;
    all.push_back(expand(reshape(vectors[static_cast<size_t>(i)], seen), size));
  }
  return all;
}

}  // namespace tally
