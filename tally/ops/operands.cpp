#include "tally/ops/operands.h"

#include <algorithm>
#include <vector>

#include "tally/base/error.h"
#include "tally/ops/changes.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally {

Dims broadcast_shape(const char* op, const Dims& a, const Dims& b) {
  Dims out = a.rank >= b.rank ? a : b;
  for (int i = 1; i <= out.rank; ++i) {
    const int64_t x = i <= a.rank ? a[a.rank - i] : 1, y = i <= b.rank ? b[b.rank - i] : 1;
    if (x != y && x != 1 && y != 1) fail("{}: shapes {} and {} do not broadcast", op, str(a), str(b));
    out[out.rank - i] = x == 1 ? y : x;
  }
  return out;
}

Tensor broadcast_view(const Tensor& x, const Dims& size) {
  if (x.sizes() == size) return x.detach();
  if (size.rank < x.dim()) fail("broadcast: shape {} does not expand to {}", str(x.sizes()), str(size));
  Dims stride;
  stride.rank = size.rank;
  for (int i = 1; i <= size.rank; ++i) {
    const bool there = i <= x.dim() && x.sizes()[x.dim() - i] == size[size.rank - i];
    if (!there && i <= x.dim() && x.sizes()[x.dim() - i] != 1)
      fail("broadcast: shape {} does not expand to {}", str(x.sizes()), str(size));
    stride[size.rank - i] = there ? x.strides()[x.dim() - i] : 0;
  }
  return x.alias(size, stride, x.storage_offset());
}

View broadcast_raw(const Tensor& x, const Dims& size) {
  return x.sizes() == size ? x.raw() : broadcast_view(x, size).raw();
}

void require_computable(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: an input is missing", op);
  if (is_floating(x.dtype()) && !is_float(x.dtype()))
    fail_type("{}: {} is for storage and has no arithmetic; convert first: to(x, DType::kF32)", op, name_of(x.dtype()));
}

DType common_type(const char* op, std::initializer_list<Operand> operands) {
  const Tensor* first = nullptr;
  for (const Operand& o : operands) {
    if (!o.is_tensor()) continue;
    require_computable(op, o.tensor());
    if (first != nullptr && first->device() != o.tensor().device())
      fail("{}: devices {} and {} differ; move one with to()", op, name_of(first->device()),
           name_of(o.tensor().device()));
    if (first == nullptr) first = &o.tensor();
  }
  if (first == nullptr) fail_type("{}: at least one operand must be a tensor", op);
  return result_type(operands);
}

Tensor converted(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : to(x, dtype); }

Tensor number_tensor(Scalar value, DType dtype, const Tensor& x) {
  Tensor t = Tensor::empty(Dims(), dtype, x.device(), Category::kWorkspace);
  fill_(t, value);
  return t;
}

namespace {

// The axes longer than 1 by the magnitude of their strides, ascending; returns how many.
int axes_by_stride(const Tensor& x, int (&axes)[kMaxRank]) {
  int n = 0;
  for (int i = 0; i < x.dim(); ++i) {
    if (x.sizes()[i] == 1) continue;
    int j = n++;
    for (; j > 0 && std::abs(x.strides()[axes[j - 1]]) > std::abs(x.strides()[i]); --j) axes[j] = axes[j - 1];
    axes[j] = i;
  }
  return n;
}

}  // namespace

Tensor empty_like_layout(const Tensor& x, DType dtype, Category category) {
  Tensor y = Tensor::empty(x.sizes(), dtype, x.device(), category);
  if (x.is_contiguous() || x.numel() == 0) return y;
  int axes[kMaxRank];
  const int n = axes_by_stride(x, axes);
  // Dense: each axis begins where those before end.
  int64_t expected = 1;
  Dims stride = y.strides();
  for (int k = 0; k < n; ++k) {
    if (x.strides()[axes[k]] != expected) return y;
    stride[axes[k]] = expected;
    expected *= x.sizes()[axes[k]];
  }
  return y.alias(x.sizes(), stride, 0);
}

namespace {

// First and last element that x reaches in its storage, in bytes.
std::pair<int64_t, int64_t> reach(const Tensor& x) {
  int64_t low = x.storage_offset(), high = low;
  for (int i = 0; i < x.dim(); ++i) {
    const int64_t span = (x.sizes()[i] - 1) * x.strides()[i];
    (span < 0 ? low : high) += span;
  }
  return {low * x.element_size(), (high + 1) * x.element_size()};
}

}  // namespace

bool overlaps_itself(const Tensor& x) {
  if (x.numel() <= 1 || x.is_contiguous()) return false;
  int order[kMaxRank];
  const int n = axes_by_stride(x, order);
  std::pair<int64_t, int64_t> axes[kMaxRank];  // (stride, size)
  for (int i = 0; i < n; ++i) axes[i] = {std::abs(x.strides()[order[i]]), x.sizes()[order[i]]};
  int64_t span = 0;
  bool apart = true;
  for (int i = 0; i < n; ++i) {
    if (axes[i].first == 0) return true;
    apart = apart && axes[i].first > span;
    span += axes[i].first * (axes[i].second - 1);
  }
  if (apart || x.numel() > (1 << 20)) return !apart;
  // Axes interlock: the offsets themselves say whether two are equal.
  std::vector<int64_t> offsets{0};
  for (int i = 0; i < n; ++i) {
    const size_t before = offsets.size();
    for (int64_t k = 1; k < axes[i].second; ++k)
      for (size_t j = 0; j < before; ++j) offsets.push_back(offsets[j] + k * axes[i].first);
  }
  std::sort(offsets.begin(), offsets.end());
  return std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
}

bool overlap_partly(const Tensor& x, const Tensor& y) {
  if (!x.shares_storage(y) || x.numel() == 0 || y.numel() == 0) return false;
  if (x.sizes() == y.sizes() && x.strides() == y.strides() && x.storage_offset() == y.storage_offset() &&
      x.dtype() == y.dtype())
    return false;
  const auto [x_low, x_high] = reach(x);
  const auto [y_low, y_high] = reach(y);
  return x_low < y_high && y_low < x_high;
}

void require_writable(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: an input is missing", op);
  require_recordable(op, x);
  if (overlaps_itself(x))
    fail(
        "{}: more than one element of the written-to tensor refers to a single memory location (shape {}, strides {}); "
        "copy "
        "it first: contiguous(x)",
        op, str(x.sizes()), str(x.strides()));
}

void wrote(const Tensor& x) { bump_version(x); }

}  // namespace tally
