// Tensors from Python's values: numbers, nested lists, NumPy arrays and whatever gives its memory by DLPack.
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstring>

#include "python/bind.h"
#include "tally/core/number.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

// The kinds of numbers in a nested list, in the order in which one of them decides.
enum class Kind { kBool, kInt, kFloat };

// A nested list, read in order: its sizes, then a call for each number.
class Nested {
 public:
  explicit Nested(nb::handle data) { sizes(data.ptr()); }
  const Dims& size() const { return size_; }

  // Calls visit(number) in row-major order; every list must have the length of the first of its depth.
  template <class F>
  void each(PyObject* o, int axis, const F& visit) const {
    if (axis == size_.rank) {
      if (is_list(o)) fail_value("tensor: lists of unequal depth: {} stands where a number is expected", text(o));
      return visit(o);
    }
    if (!is_list(o)) fail_value("tensor: {} stands where a list of {} is expected", text(o), size_[axis]);
    const nb::object kept = nb::borrow(o);  // what an element does when it is read may change the lists
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    if (n != size_[axis])
      fail_value("tensor: lists of unequal length: one of axis {} has {}, the first has {}", axis, n, size_[axis]);
    for (Py_ssize_t i = 0; i < n && i < PySequence_Fast_GET_SIZE(o); ++i)
      each(PySequence_Fast_GET_ITEM(o, i), axis + 1, visit);
  }

  static bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }
  static std::string text(PyObject* o) {
    std::string t = nb::repr(o).c_str();
    return t.size() > 40 ? t.substr(0, 40) + "..." : t;
  }

 private:
  void sizes(PyObject* o) {
    while (is_list(o)) {
      if (size_.rank == kMaxRank) fail_value("tensor: lists deeper than {}, the most axes of a tensor", kMaxRank);
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      size_[size_.rank++] = n;
      if (n == 0) return;
      o = PySequence_Fast_GET_ITEM(o, 0);
    }
  }
  Dims size_;
};

// A number of a list: Python's, NumPy's, or a tensor of one element.
nb::object number(PyObject* o) {
  if (PyFloat_Check(o) || PyLong_Check(o)) return nb::borrow(o);
  if (PyIndex_Check(o) && !nb::hasattr(o, "item")) return nb::steal(PyNumber_Index(o));
  if (!PyUnicode_Check(o) && nb::hasattr(o, "item")) {
    nb::object v = nb::handle(o).attr("item")();
    if (PyFloat_Check(v.ptr()) || PyLong_Check(v.ptr())) return v;
  }
  fail_type("tensor: {} is no number", Nested::text(o));
}

void write(View v, int64_t at, PyObject* o) {
  if (PyFloat_Check(o)) return write_number(v.data, v.dtype, at, PyFloat_AS_DOUBLE(o));
  int overflow = 0;
  const int64_t n = PyLong_AsLongLongAndOverflow(o, &overflow);
  const bool whole = is_integer(v.dtype);
  if (v.dtype == DType::kI64 && !overflow) {
    static_cast<int64_t*>(v.data)[at] = n;
    return;
  }
  double value = static_cast<double>(n);
  if (overflow && !whole) {
    value = PyLong_AsDouble(o);
    if (PyErr_Occurred()) PyErr_Clear(), value = overflow * HUGE_VAL;
  }
  write_number(v.data, v.dtype, at, value);
  if (whole && (overflow || read_number(v.data, v.dtype, at) != value))
    fail("tensor: {} does not fit {}", Nested::text(o), torch_name(v.dtype));
}

Tensor from_list(nb::handle data, std::optional<DType> dtype) {
  const Nested nested(data);
  std::vector<nb::object> numbers;
  Kind kind = Kind::kBool;
  nested.each(data.ptr(), 0, [&](PyObject* o) {
    numbers.push_back(number(o));
    PyObject* v = numbers.back().ptr();
    kind = std::max(kind, PyFloat_Check(v) ? Kind::kFloat : PyBool_Check(v) ? Kind::kBool : Kind::kInt);
  });
  if (numbers.empty()) kind = Kind::kFloat;
  const DType t = dtype.value_or(kind == Kind::kFloat ? DType::kF32 : kind == Kind::kInt ? DType::kI64 : DType::kBool);
  Tensor x = Tensor::empty(nested.size(), t);
  int64_t at = 0;
  for (const nb::object& n : numbers) write(x.raw(), at++, n.ptr());
  return x;
}

DType dtype_of(nb::dlpack::dtype t) {
  using nb::dlpack::dtype_code;
  const auto code = static_cast<dtype_code>(t.code);
  if (t.lanes == 1) {
    if (code == dtype_code::Float && t.bits == 64) return DType::kF64;
    if (code == dtype_code::Float && t.bits == 32) return DType::kF32;
    if (code == dtype_code::Float && t.bits == 16) return DType::kF16;
    if (code == dtype_code::Bfloat && t.bits == 16) return DType::kBF16;
    if (code == dtype_code::Int && t.bits == 64) return DType::kI64;
    if (code == dtype_code::Int && t.bits == 32) return DType::kI32;
    if (code == dtype_code::Int && t.bits == 16) return DType::kI16;
    if (code == dtype_code::Int && t.bits == 8) return DType::kI8;
    if (code == dtype_code::UInt && t.bits == 16) return DType::kU16;
    if (code == dtype_code::UInt && t.bits == 8) return DType::kU8;
    if (code == dtype_code::Bool && t.bits == 8) return DType::kBool;
  }
  fail_type("tensor: an array of {} bits of kind {} has no dtype here; convert it first", t.bits, t.code);
}

// A copy of an array on the CPU.
Tensor from_array(const nb::ndarray<nb::ro>& a) {
  if (a.device_type() != nb::device::cpu::value) fail("tensor: takes arrays of the CPU; use from_dlpack()");
  if (a.ndim() > static_cast<size_t>(kMaxRank))
    fail_value("tensor: an array of {} axes; at most {}", a.ndim(), kMaxRank);
  Dims size;
  Dims stride;
  size.rank = stride.rank = static_cast<int32_t>(a.ndim());
  for (size_t i = 0; i < a.ndim(); ++i) size.v[i] = static_cast<int64_t>(a.shape(i)), stride.v[i] = a.stride(i);
  Tensor x = Tensor::empty(size, dtype_of(a.dtype()));
  const int64_t n = x.numel(), item = x.element_size();
  const char* from = static_cast<const char*>(a.data());
  char* into = static_cast<char*>(x.raw().data);
  Dims index;
  for (int64_t k = 0; k < n; ++k) {  // any strides; rows of elements one behind the other go at once
    int64_t offset = 0;
    for (int i = 0; i < size.rank; ++i) offset += index.v[i] * stride.v[i];
    int64_t run = 1;
    if (size.rank > 0 && stride.v[size.rank - 1] == 1) run = size.v[size.rank - 1];
    std::memcpy(into + k * item, from + offset * item, static_cast<size_t>(run * item));
    k += run - 1;
    for (int i = size.rank - (run > 1 ? 2 : 1); i >= 0 && ++index.v[i] == size.v[i]; --i) index.v[i] = 0;
  }
  return x;
}

}  // namespace

Tensor tensor_from_python(nb::handle data, std::optional<DType> dtype, Device device) {
  Tensor x;
  nb::ndarray<nb::ro> array;
  if (nb::isinstance<Tensor>(data)) {
    const Tensor& from = nb::cast<const Tensor&>(data);
    x = Tensor::empty(from.sizes(), dtype.value_or(from.dtype()), from.device());
    copy_(x, from);
  } else if (!Nested::is_list(data.ptr()) && !PyLong_Check(data.ptr()) && !PyFloat_Check(data.ptr()) &&
             !PyUnicode_Check(data.ptr()) && nb::try_cast(data, array)) {
    x = from_array(array);
    if (dtype && *dtype != x.dtype()) {
      Tensor converted = Tensor::empty(x.sizes(), *dtype);
      copy_(converted, x);
      x = converted;
    }
  } else {
    x = from_list(data, dtype);
  }
  return to(x, device);
}

void bind_create(nb::module_& m, TensorClass& c) {
  c.def(
      "__init__",
      [](Tensor* self, const nb::object& data) { new (self) Tensor(tensor_from_python(data, DType::kF32, kCpu)); },
      "data"_a, "float32 values of nested lists.");
  m.def(
      "as_tensor",
      [](nb::handle data, std::optional<DType> dtype, DeviceArg device) {
        if (!nb::isinstance<Tensor>(data)) return tensor_from_python(data, dtype, device.get());
        const Tensor& x = nb::cast<const Tensor&>(data);
        return to(to(x, dtype.value_or(x.dtype())), device.get(x.device()));
      },
      "data"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "A tensor itself, of values a new one.");
  m.def(
      "as_parameter",
      [](const Tensor& x) {
        if (x.category() == Category::kParameter) return x.detach();
        Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device(), Category::kParameter);
        copy_(y, x);
        return y;
      },
      Release(), "data"_a, "The values in memory that is accounted as a parameter's: itself, or a copy.");
  m.def(
      "tensor",
      [](nb::handle data, std::optional<DType> dtype, DeviceArg device, bool requires_grad) {
        Device otherwise = nb::isinstance<Tensor>(data) ? nb::cast<const Tensor&>(data).device() : kCpu;
        Tensor x = tensor_from_python(data, dtype, device.get(otherwise));
        if (requires_grad) x.set_requires_grad();
        return x;
      },
      "data"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false,
      "A new tensor of the values of a number, of nested lists or tuples of numbers, of an array or of a tensor. "
      "Without "
      "dtype: float32 if any number is a float, else int64, or bool if all are. ValueError: lists of unequal length or "
      "depth; TypeError: what is no number; RuntimeError: a number that does not fit.");
}

}  // namespace tally::py
