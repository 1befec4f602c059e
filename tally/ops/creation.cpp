#include "tally/ops/creation.h"

#include <algorithm>
#include <cmath>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/number.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"

namespace tally {

namespace {

Tensor finished(Tensor x, const TensorOptions& options) {
  if (options.requires_grad) x.set_requires_grad();
  return x;
}

Tensor filled(Tensor x, double value, const TensorOptions& options) {
  fill_(x, value);
  return finished(std::move(x), options);
}

DType dtype_of(Scalar value) { return value.is_float() ? DType::kF32 : value.dtype(); }

// Least and largest of an integer dtype.
std::pair<int64_t, int64_t> range_of(DType t) {
  const int bits = 8 * static_cast<int>(item_size(t));
  const bool is_signed = t != DType::kU8 && t != DType::kU16;
  const int digits = is_signed ? bits - 1 : bits;
  const int64_t most = static_cast<int64_t>((uint64_t{1} << digits) - 1);
  return {is_signed ? -most - 1 : 0, most};
}

uint64_t bits_of(DType t, Scalar value) {
  return is_integer(t) ? static_cast<uint64_t>(value.whole()) : number_bits(t, value.real());
}

int64_t whole_steps(int64_t start, int64_t end, int64_t step) {
  const auto a = static_cast<uint64_t>(start), b = static_cast<uint64_t>(end), by = static_cast<uint64_t>(step);
  const uint64_t way = step > 0 ? b - a : a - b, stride = step > 0 ? by : -by;
  return static_cast<int64_t>(std::min<uint64_t>(way / stride + (way % stride != 0), INT64_MAX));
}

}  // namespace

namespace detail {

Tensor made(const Dims& size, const TensorOptions& options, DType dtype, Device device) {
  const Device where = options.device.value_or(device);
  require_device(where);
  return Tensor::empty(size, options.dtype.value_or(dtype), where, options.category);
}

void require_fits(const char* op, Scalar value, DType dtype) {
  if (!is_integer(dtype)) return;
  const auto [least, most] = range_of(dtype);
  const bool fits = value.is_float() ? value.real() > static_cast<double>(least) - 1 &&
                                           (dtype == DType::kI64 ? value.real() < 0x1p63
                                                                 : value.real() < static_cast<double>(most) + 1)
                                     : value.whole() >= least && value.whole() <= most;
  if (!fits) fail("{}: {} does not fit {}", op, value.real(), name_of(dtype));
}

}  // namespace detail

using detail::made;

Tensor empty(const Dims& size, const TensorOptions& options) {
  return finished(made(size, options, DType::kF32, kCpu), options);
}

Tensor zeros(const Dims& size, const TensorOptions& options) {
  return filled(made(size, options, DType::kF32, kCpu), 0, options);
}

Tensor ones(const Dims& size, const TensorOptions& options) {
  return filled(made(size, options, DType::kF32, kCpu), 1, options);
}

Tensor full(const Dims& size, Scalar value, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(dtype_of(value));
  detail::require_fits("full", value, dtype);
  Tensor x = made(size, options, dtype, kCpu);
  // fill_ takes a double, which does not have every i64.
  if (dtype != DType::kI64 || value.is_float()) return filled(std::move(x), value.real(), options);
  launch(&Kernels::sequence, SequenceArgs{x.raw(), 0, 0, 0, 0, true, value.whole(), 0});
  return finished(std::move(x), options);
}

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options) {
  const bool floats = start.is_float() || end.is_float() || step.is_float();
  const DType dtype = options.dtype.value_or(floats ? DType::kF32 : DType::kI64);
  if (dtype == DType::kBool) fail("arange: of bool is not defined");
  const bool whole = is_integer(dtype) || !floats;
  for (const Scalar s : {start, end, step})
    if (!std::isfinite(s.real())) fail("arange: {} is not a finite number", s.real());
  const double from = start.real(), to = end.real(), by = step.real();
  if (whole ? step.whole() == 0 : by == 0) fail("arange: the step must not be zero");
  if (by > 0 ? from > to : from < to) fail("arange: {} to {} by steps of {} leads nowhere", from, to, by);
  const double steps = std::ceil((to - from) / by);
  if (!whole && steps > 0x1p62) fail("arange: {} elements are more than any memory has", steps);
  const int64_t n =
      whole ? whole_steps(start.whole(), end.whole(), step.whole()) : static_cast<int64_t>(std::max(steps, 0.0));
  if (n > 0 && is_integer(dtype)) {
    detail::require_fits("arange", start, dtype);
    detail::require_fits("arange", end.whole() - (step.whole() > 0 ? 1 : -1), dtype);
  }
  Tensor x = made(Dims(n), options, dtype, kCpu);
  launch(&Kernels::sequence, SequenceArgs{x.raw(), from, by, 0, n, whole, start.whole(), step.whole()});
  return finished(std::move(x), options);
}

Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options) {
  if (steps < 0) fail("linspace: {} steps; the number must not be negative", steps);
  Tensor x = made(Dims(steps), options, DType::kF32, kCpu);
  if (is_integer(x.dtype())) detail::require_fits("linspace", start, x.dtype());
  if (is_integer(x.dtype())) detail::require_fits("linspace", end, x.dtype());
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  launch(&Kernels::sequence, SequenceArgs{x.raw(), start, step, end, steps == 1 ? 1 : steps / 2, false, 0, 0});
  return finished(std::move(x), options);
}

Tensor eye(int64_t n, int64_t m, const TensorOptions& options) {
  if (n < 0 || m < 0) fail("eye: a matrix of {} by {}", n, m);
  Tensor x = made(Dims(n, m), options, DType::kF32, kCpu);
  fill_(x, 0);
  Tensor diagonal = x.alias(Dims(std::min(n, m)), Dims(m + 1), 0);
  fill_(diagonal, 1);
  return finished(std::move(x), options);
}

Tensor empty_like(const Tensor& x, const TensorOptions& options) {
  return finished(made(x.sizes(), options, x.dtype(), x.device()), options);
}

Tensor zeros_like(const Tensor& x, const TensorOptions& options) { return full_like(x, 0, options); }
Tensor ones_like(const Tensor& x, const TensorOptions& options) { return full_like(x, 1, options); }

Tensor full_like(const Tensor& x, Scalar value, const TensorOptions& options) {
  TensorOptions all = options;
  all.dtype = options.dtype.value_or(x.dtype());
  all.device = options.device.value_or(x.device());
  return full(x.sizes(), value, all);
}

void NestedList::collect(int axis, Dims& size, std::vector<Scalar>& out) const {
  // The first branch down to a number sets the sizes.
  const bool first = out.empty() && size.rank == axis;
  if (!is_list_) {
    if (size.rank != axis) fail_value("tensor: a number where a list of {} is expected", size[axis]);
    return out.push_back(number_);
  }
  if (first) {
    if (axis == kMaxRank) fail_value("tensor: lists nested more than {} deep", kMaxRank);
    size[size.rank++] = static_cast<int64_t>(items_.size());
  }
  if (axis >= size.rank) fail_value("tensor: a list where a number is expected");
  if (size[axis] != static_cast<int64_t>(items_.size()))
    fail_value("tensor: a list of {} where one of {} is expected at axis {}", items_.size(), size[axis], axis);
  for (const NestedList& item : items_) item.collect(axis + 1, size, out);
}

Tensor tensor(const NestedList& values, const TensorOptions& options) {
  Dims size;
  std::vector<Scalar> numbers;
  values.collect(0, size, numbers);
  return tensor_of(numbers, size, options);
}

Tensor tensor_of(const std::vector<Scalar>& values, const Dims& size, const TensorOptions& options) {
  DType dtype = values.empty() ? DType::kF32 : DType::kBool;
  for (const Scalar v : values)
    dtype = dtype == DType::kF32 || v.is_float() ? DType::kF32 : v.is_bool() ? dtype : DType::kI64;
  Tensor x = made(size, options, dtype, kCpu);
  if (x.numel() != static_cast<int64_t>(values.size()))
    fail_value("tensor: {} values do not fill the shape {}", values.size(), str(size));
  dtype = x.dtype();
  for (const Scalar v : values) detail::require_fits("tensor", v, dtype);
  const Device device = x.device();
  if (device.kind != DeviceKind::kMeta) {
    const Tensor host = device.kind == DeviceKind::kCpu ? x : Tensor::empty(size, dtype, kCpu, Category::kWorkspace);
    const int64_t item = item_size(dtype);
    for (size_t i = 0; i < values.size(); ++i)
      write_number_bits(host.raw().data, item, static_cast<int64_t>(i), bits_of(dtype, values[i]));
    if (!host.shares_storage(x)) copy_(x, host);
  }
  return finished(std::move(x), options);
}

}  // namespace tally
