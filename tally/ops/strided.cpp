// Views of parts of a tensor: select, slice, diagonal, unfold, as_strided. One way back for all: the view is taken
// again of the zeroed gradient and what arrived is added to it. Where elements of that view overlap, it is added a
// slice at a time, each slice without overlap, in the order of the index: sums are deterministic and need no scratch.
#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/overlap.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

void require_axes(const char* op, const Tensor& x) {
  if (x.dim() == 0) fail("{}: a tensor without axes has no parts", op);
}

// Input 0's gradient, where the output was part_of(input).
template <class F>
void add_to_part(Backward& b, const F& part_of) {
  bool accumulate;
  Tensor dx = b.target(0, accumulate);
  Tensor part = part_of(dx);
  const bool simple = apart(part);
  if (!accumulate && !(simple && part.numel() == dx.numel())) fill_(dx, 0.0);
  if (simple && !accumulate) {
    copy_(part, b.grad());
  } else {
    add_overlapping(part, b.grad());
  }
  part = {};
  b.add(0, dx, accumulate);
}

}  // namespace

Tensor select(const Tensor& x, int axis, int64_t index) {
  if (x.dim() == 0) fail_index("select: a tensor without axes has nothing to select; use item()");
  axis = normalize_axis(axis, x.dim(), "select");
  const int64_t n = x.sizes()[axis];
  if (index < -n || index >= n) fail_index("select: index {} is outside axis {} of {}", index, axis, str(x.sizes()));
  if (index < 0) index += n;
  Dims size, stride;
  for (int i = 0; i < x.dim(); ++i)
    if (i != axis) size[size.rank++] = x.sizes()[i], stride[stride.rank++] = x.strides()[i];
  Tensor y = x.alias(size, stride, x.storage_offset() + index * x.strides()[axis]);
  record(
      y, {x}, {},
      [](Backward& b, int a, int64_t i) { add_to_part(b, [&](const Tensor& dx) { return select(dx, a, i); }); }, axis,
      index);
  return y;
}

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  axis = normalize_axis(axis, x.dim(), "slice");
  if (step < 1) fail_value("slice: a step of {}; it must be at least 1", step);
  const int64_t n = x.sizes()[axis];
  if (begin < 0) begin += n;
  if (end < 0) end += n;
  begin = std::clamp<int64_t>(begin, 0, n), end = std::clamp(end, begin, n);
  Dims size = x.sizes(), stride = x.strides();
  size[axis] = end == begin ? 0 : (end - begin - 1) / step + 1;
  // Of at most one element the step is never taken and may be too large to multiply.
  if (size[axis] > 1) stride[axis] *= step;
  Tensor y = x.alias(size, stride, x.storage_offset() + begin * x.strides()[axis]);
  record(
      y, {x}, {},
      [](Backward& b, int a, int64_t from, int64_t to, int64_t by) {
        add_to_part(b, [&](const Tensor& dx) { return slice(dx, a, from, to, by); });
      },
      axis, begin, end, step);
  return y;
}

Tensor narrow(const Tensor& x, int axis, int64_t start, int64_t length) {
  require_axes("narrow", x);
  axis = normalize_axis(axis, x.dim(), "narrow");
  const int64_t n = x.sizes()[axis];
  if (length < 0) fail("narrow: the length {} is negative", length);
  if (start < -n || start > n) fail_index("narrow: start {} is outside axis {} of {}", start, axis, str(x.sizes()));
  if (start < 0) start += n;
  if (length > n - start)
    fail("narrow: start {} and length {} exceed axis {} of {}", start, length, axis, str(x.sizes()));
  return slice(x, axis, start, start + length);
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int axis) {
  require_axes("split", x);
  axis = normalize_axis(axis, x.dim(), "split");
  const int64_t n = x.sizes()[axis];
  if (size < 0 || (size == 0 && n != 0))
    fail("split: parts of {} do not make axis {} of {}", size, axis, str(x.sizes()));
  std::vector<int64_t> sizes;
  for (int64_t left = n; left > 0; left -= size) sizes.push_back(std::min(size, left));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, axis);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int axis) {
  require_axes("chunk", x);
  axis = normalize_axis(axis, x.dim(), "chunk");
  if (chunks < 1) fail("chunk: {} chunks; at least 1 is needed", chunks);
  const int64_t n = x.sizes()[axis];
  if (n == 0) return split(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), axis);
  return split(x, n / chunks + (n % chunks != 0), axis);
}

Tensor diagonal(const Tensor& x, int64_t offset, int a, int b) {
  a = normalize_axis(a, x.dim(), "diagonal"), b = normalize_axis(b, x.dim(), "diagonal");
  if (a == b) fail("diagonal: axes {} and {} are the same", a, b);
  const int64_t rows = x.sizes()[a], columns = x.sizes()[b];
  // In -rows .. columns, beyond which it is empty all the same.
  offset = std::clamp(offset, -rows, columns);
  const int64_t row = offset < 0 ? -offset : 0, column = offset > 0 ? offset : 0;
  Dims size, stride;
  for (int i = 0; i < x.dim(); ++i)
    if (i != a && i != b) size[size.rank++] = x.sizes()[i], stride[stride.rank++] = x.strides()[i];
  size[size.rank++] = std::min(rows - row, columns - column);
  stride[stride.rank++] = x.strides()[a] + x.strides()[b];
  Tensor y = x.alias(size, stride, x.storage_offset() + row * x.strides()[a] + column * x.strides()[b]);
  record(
      y, {x}, {},
      [](Backward& t, int64_t at, int i, int j) {
        add_to_part(t, [&](const Tensor& dx) { return diagonal(dx, at, i, j); });
      },
      offset, a, b);
  return y;
}

Tensor unfold(const Tensor& x, int axis, int64_t size, int64_t step) {
  if (x.dim() == kMaxRank) fail("unfold: {} already has {} axes", str(x.sizes()), kMaxRank);
  const Tensor source = x.dim() == 0 ? unsqueeze(x, 0) : x;  // a scalar is a row of one
  axis = normalize_axis(axis, source.dim(), "unfold");
  const int64_t n = source.sizes()[axis];
  if (step < 1) fail("unfold: a step of {}; it must be at least 1", step);
  if (size < 0 || size > n) fail("unfold: windows of {} in axis {} of {}", size, axis, str(x.sizes()));
  Dims sizes = source.sizes(), strides = source.strides();
  sizes[sizes.rank++] = size, strides[strides.rank++] = source.strides()[axis];
  sizes[axis] = (n - size) / step + 1;
  if (sizes[axis] > 1) strides[axis] *= step;
  if (x.dim() == 0) {  // one window, no axis of windows
    sizes = Dims(size), strides = Dims(1);
    axis = 0;
  }
  Tensor y = source.alias(sizes, strides, source.storage_offset());
  record(
      y, {source}, {},
      [](Backward& b, int along, int64_t window, int64_t by, bool scalar) {
        add_to_part(b,
                    [&](const Tensor& dx) { return scalar ? slice(dx, 0, 0, window) : unfold(dx, along, window, by); });
      },
      axis, size, step, x.dim() == 0);
  return y;
}

Tensor as_strided(const Tensor& x, const Dims& size, const Dims& stride, int64_t offset) {
  if (size.rank != stride.rank) fail("as_strided: {} sizes and {} strides", size.rank, stride.rank);
  for (int i = 0; i < stride.rank; ++i)
    if (stride[i] < 0) fail("as_strided: negative strides are not supported: {}", str(stride));
  if (offset < 0) fail("as_strided: the offset {} is negative", offset);
  Tensor y = x.alias(size, stride, offset);
  if (!needs_grad({x})) return y;
  if (!apart(x))
    fail(
        "as_strided: elements of the input overlap in memory (shape {}, strides {}), so it has no gradient; use "
        "contiguous",
        str(x.sizes()), str(x.strides()));
  record(
      y, {x}, {},
      [](Backward& b, Dims of_x, int64_t x_at, Dims of_y, int64_t y_at) {
        add_from_memory(b, 0, of_x, x_at, of_y, y_at);
      },
      x.strides(), x.storage_offset(), stride, offset);
  return y;
}

}  // namespace tally
