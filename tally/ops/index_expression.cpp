#include "tally/ops/index_expression.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/ops/elementwise.h"

namespace tally {

Index::Index(const std::vector<int64_t>& ids) : kind(Kind::kTensor) {
  tensor = Tensor::empty(Dims(static_cast<int64_t>(ids.size())), DType::kI64, kCpu, Category::kWorkspace);
  std::copy(ids.begin(), ids.end(), tensor.data<int64_t>());
}

void push_axis(Dims& d, int64_t n) {
  if (d.rank == kMaxRank) fail_index("index: a result of more than {} axes", kMaxRank);
  d[d.rank++] = n;
}

Frame basic_view(const Frame& x, const std::vector<IndexStep>& steps) {
  Frame y;
  y.offset = x.offset;
  int from = 0;
  for (const IndexStep& s : steps) {
    if (s.kind == Index::Kind::kNone) {
      push_axis(y.size, 1);
      push_axis(y.stride, from < x.size.rank ? x.size[from] * x.stride[from] : 1);
      continue;
    }
    if (s.length > 0 || s.kind == Index::Kind::kInt) y.offset += s.begin * x.stride[from];
    if (s.kind == Index::Kind::kSlice) {
      push_axis(y.size, s.length);
      push_axis(y.stride, s.step * x.stride[from]);
    }
    ++from;
  }
  return y;
}

namespace {

IndexStep slice_step(const Slice& s, int64_t n) {
  if (s.step < 1) fail_value("index: slice step must be greater than zero, not {}", s.step);
  const auto bound = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t begin = bound(s.start.value_or(0)), end = bound(s.stop.value_or(n));
  return {Index::Kind::kSlice, begin, s.step, end > begin ? (end - begin - 1) / s.step + 1 : 0};
}

// How many axes of x an index takes.
int axes_taken(const Index& i) {
  switch (i.kind) {
    case Index::Kind::kInt:
    case Index::Kind::kSlice:
      return 1;
    case Index::Kind::kTensor:
      return is_mask(i.tensor) ? i.tensor.dim() : 1;
    default:
      return 0;
  }
}

Tensor on_device(const Tensor& t, Device device) {
  if (t.device() == device) return t.detach();
  if (t.device().kind == DeviceKind::kMeta)
    fail("index: a {} tensor of indices has no values for one on {}", name_of(t.device()), name_of(device));
  if (device.kind == DeviceKind::kMeta) return Tensor::empty(t.sizes(), t.dtype(), device, Category::kWorkspace);
  return to(t, device);
}

// A mask of the axes from `axis` on becomes an array for each.
void push_mask(Expression& e, const Tensor& mask, const Dims& size, int from, int axis, size_t place) {
  for (int i = 0; i < mask.dim(); ++i)
    if (from + i >= size.rank || mask.sizes()[i] != size[from + i])
      fail_index(
          "index: the shape of the mask {} at index {} does not match the shape of the indexed tensor {} at "
          "index {}",
          str(mask.sizes()), place, str(size), from + i);
  const Tensor places = nonzero(mask);  // (n, r)
  for (int i = 0; i < mask.dim(); ++i)
    e.arrays.push_back({axis + i, places.alias(Dims(places.size(0)), Dims(places.stride(0)),
                                               places.storage_offset() + i * places.stride(1))});
}

}  // namespace

Expression parse_index(const Tensor& x, const std::vector<Index>& at) {
  if (!x.defined()) fail("index: an input is missing");
  const Dims& size = x.sizes();
  int taken = 0;
  for (const Index& i : at) {
    if (i.kind == Index::Kind::kTensor) {
      if (!i.tensor.defined()) fail_type("index: an index is missing");
      if (!is_mask(i.tensor) && i.tensor.dtype() != DType::kI64 && i.tensor.dtype() != DType::kI32)
        fail_index("index: tensors used as indices must be i32, i64 or bool tensors, not {}",
                   name_of(i.tensor.dtype()));
    }
    taken += axes_taken(i);
  }
  if (taken > size.rank)
    fail_index("index: too many indices for tensor of dimension {}: {} for shape {}", size.rank, taken, str(size));
  Expression e;
  int from = 0, axis = 0;  // of x; of the basic view
  bool rest_given = false;
  const auto keep = [&](int64_t begin, int64_t step, int64_t length) {
    e.steps.push_back({Index::Kind::kSlice, begin, step, length});
    ++from, ++axis;
  };
  const auto select = [&](int64_t i) {
    const int64_t n = size[from];
    if (i < -n || i >= n) fail_index("index: index {} is out of bounds for dimension {} with size {}", i, from, n);
    e.steps.push_back({Index::Kind::kInt, i < 0 ? i + n : i});
    ++from;
  };
  const auto new_axis = [&] {
    e.steps.push_back({Index::Kind::kNone});
    ++axis;
  };
  for (size_t place = 0; place < at.size(); ++place) {
    const Index& i = at[place];
    switch (i.kind) {
      case Index::Kind::kInt:
        select(i.integer);
        break;
      case Index::Kind::kSlice: {
        const IndexStep s = slice_step(i.slice, size[from]);
        keep(s.begin, s.step, s.length);
        break;
      }
      case Index::Kind::kNone:
        new_axis();
        break;
      case Index::Kind::kEllipsis:
        for (int k = rest_given ? 0 : size.rank - taken; k > 0; --k) keep(0, 1, size[from]);
        rest_given = true;
        break;
      case Index::Kind::kBool: {
        const Index one(std::vector<int64_t>(static_cast<size_t>(i.integer), 0));
        e.arrays.push_back({axis, on_device(one.tensor, x.device())});
        new_axis();
        break;
      }
      case Index::Kind::kTensor: {
        const bool data = i.tensor.device().kind != DeviceKind::kMeta && x.device().kind != DeviceKind::kMeta;
        if (!is_mask(i.tensor) && i.tensor.dim() == 0 && data) {
          select(static_cast<int64_t>(i.tensor.item()));
          break;
        }
        const Tensor t = on_device(i.tensor, x.device());
        if (!is_mask(t)) {
          e.arrays.push_back({axis, t});
          keep(0, 1, size[from]);
          break;
        }
        if (t.dim() == 0) {
          const Index one(std::vector<int64_t>(t.device().kind == DeviceKind::kMeta ? 1 : t.item() != 0, 0));
          e.arrays.push_back({axis, on_device(one.tensor, x.device())});
          new_axis();
          break;
        }
        push_mask(e, t, size, from, axis, place);
        for (int k = 0; k < t.dim(); ++k) keep(0, 1, size[from]);
        break;
      }
    }
  }
  while (from < size.rank) keep(0, 1, size[from]);
  return e;
}

}  // namespace tally
