// Tensors from Python's values: numbers, nested lists, NumPy arrays and whatever gives its memory by DLPack.
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstring>

#include "python/bind.h"
#include "tally/core/number.h"
#include "tally/core/promote.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

// What goes through like a list: lists, tuples, ranges, NumPy's arrays of an axis or more, other sequences.
bool is_list(PyObject* o) {
  if (PyList_Check(o) || PyTuple_Check(o) || PyRange_Check(o)) return true;
  if (PyFloat_Check(o) || PyLong_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o) || PyType_Check(o)) return false;
  if (nb::isinstance<Tensor>(o) || PyDict_Check(o) || !PySequence_Check(o) || !nb::hasattr(o, "__len__")) return false;
  return !nb::hasattr(o, "ndim") || nb::cast<int>(nb::handle(o).attr("ndim")) > 0;
}

nb::object as_list(PyObject* o) {
  return PyList_Check(o) || PyTuple_Check(o) ? nb::borrow(o) : nb::steal(PySequence_List(o));
}

std::string shortened(PyObject* o) {
  std::string t = nb::repr(o).c_str();
  return t.size() > 40 ? t.substr(0, 40) + "..." : t;
}

// A nested list, read in order: its sizes, then a call for each number.
class Nested {
 public:
  explicit Nested(nb::handle data) {
    nb::object o = nb::borrow(data);
    while (is_list(o.ptr())) {
      if (size_.rank == kMaxRank) fail_value("tensor: lists deeper than {}, the most axes of a tensor", kMaxRank);
      o = as_list(o.ptr());
      if (!o.is_valid()) nb::raise_python_error();
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(o.ptr());
      size_[size_.rank++] = n;
      if (n == 0) return;
      o = nb::borrow(PySequence_Fast_GET_ITEM(o.ptr(), 0));
    }
  }
  const Dims& size() const { return size_; }

  // Calls visit(number) in row-major order; every list must have the length of the first of its depth.
  template <class F>
  void each(PyObject* o, int axis, const F& visit) const {
    if (axis == size_.rank) {
      if (is_list(o)) fail_value("tensor: lists of unequal depth: {} stands where a number is expected", shortened(o));
      return visit(o);
    }
    if (!is_list(o)) fail_value("tensor: {} stands where a list of {} is expected", shortened(o), size_[axis]);
    const nb::object list = as_list(o);  // kept: what an element does when it is read may change the lists
    if (!list.is_valid()) nb::raise_python_error();
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(list.ptr());
    if (n != size_[axis])
      fail_value("tensor: lists of unequal length: one of axis {} has {}, the first has {}", axis, n, size_[axis]);
    for (Py_ssize_t i = 0; i < n && i < PySequence_Fast_GET_SIZE(list.ptr()); ++i)
      each(PySequence_Fast_GET_ITEM(list.ptr(), i), axis + 1, visit);
  }

 private:
  Dims size_;
};

// The numbers of a list as Python's, and the dtype that all of them have: float32 of Python's floats, int64, bool; of
// NumPy's numbers and of tensors their own.
class Numbers {
 public:
  void add(PyObject* o) {
    if (PyFloat_CheckExact(o)) return put(nb::borrow(o), kDefaultFloat);
    if (PyLong_Check(o)) return put(nb::borrow(o), PyBool_Check(o) ? DType::kBool : DType::kI64);
    if (nb::isinstance<Tensor>(o)) {
      const Tensor& x = nb::cast<const Tensor&>(nb::handle(o));
      if (x.numel() != 1)
        fail_value("tensor: a tensor of shape {} stands where a number is expected; stack() joins tensors",
                   str(x.sizes()));
      return put(nb::handle(o).attr("item")(), x.dtype());
    }
    if (!PyUnicode_Check(o) && nb::hasattr(o, "dtype") && nb::hasattr(o, "item")) {
      nb::object v = nb::handle(o).attr("item")();
      if (PyFloat_Check(v.ptr()) || PyLong_Check(v.ptr())) return put(std::move(v), named(nb::handle(o).attr("dtype")));
    } else if (PyFloat_Check(o)) {
      return put(nb::borrow(o), kDefaultFloat);
    } else if (PyIndex_Check(o)) {
      nb::object v = nb::steal(PyNumber_Index(o));
      if (!v.is_valid()) nb::raise_python_error();
      return put(std::move(v), DType::kI64);
    }
    fail_type("tensor: {} is no number", shortened(o));
  }
  const std::vector<nb::object>& all() const { return all_; }
  DType dtype() const { return dtype_.value_or(kDefaultFloat); }

 private:
  void put(nb::object number, DType t) {
    all_.push_back(std::move(number));
    if (dtype_ != t) dtype_ = dtype_ ? promote_types(*dtype_, t) : t;
  }
  // Of a dtype of NumPy, by its name.
  DType named(const nb::object& dtype) {
    if (dtype.ptr() == known_.ptr()) return known_type_;
    known_ = dtype, known_type_ = kDefaultFloat;
    const std::string name = nb::str(dtype).c_str();
    for (int i = 0; i < kDTypes; ++i)
      if (name == torch_name(static_cast<DType>(i))) known_type_ = static_cast<DType>(i);
    if (name == "uint32" || name == "uint64") known_type_ = DType::kI64;
    return known_type_;
  }
  std::vector<nb::object> all_;
  std::optional<DType> dtype_;
  nb::object known_;
  DType known_type_ = kDefaultFloat;
};

void write(View v, int64_t at, PyObject* o) {
  const bool whole = is_integer(v.dtype) || v.dtype == DType::kI64;
  int overflow = 0;
  double value = 0;
  if (PyFloat_Check(o)) {
    value = std::trunc(PyFloat_AS_DOUBLE(o));
    if (!whole) return write_number(v.data, v.dtype, at, PyFloat_AS_DOUBLE(o));
    overflow = !(value >= -0x1p63 && value < 0x1p63);
  } else {
    const int64_t n = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (v.dtype == DType::kI64 && !overflow) {
      static_cast<int64_t*>(v.data)[at] = n;
      return;
    }
    value = static_cast<double>(n);
    if (overflow && !whole) {
      value = PyLong_AsDouble(o);
      if (PyErr_Occurred()) PyErr_Clear(), value = overflow * HUGE_VAL;
    }
  }
  if (!whole || !overflow) write_number(v.data, v.dtype, at, value);
  if (whole && (overflow || read_number(v.data, v.dtype, at) != value))
    fail("tensor: {} does not fit {}", shortened(o), torch_name(v.dtype));
}

Tensor from_list(nb::handle data, std::optional<DType> dtype) {
  const Nested nested(data);
  Numbers numbers;
  nested.each(data.ptr(), 0, [&](PyObject* o) { numbers.add(o); });
  Tensor x = Tensor::empty(nested.size(), dtype.value_or(numbers.dtype()));
  if (static_cast<int64_t>(numbers.all().size()) != x.numel()) fail_value("tensor: the lists changed while read");
  int64_t at = 0;
  for (const nb::object& n : numbers.all()) write(x.raw(), at++, n.ptr());
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
  } else if (!PyList_Check(data.ptr()) && !PyTuple_Check(data.ptr()) && !PyLong_Check(data.ptr()) &&
             !PyFloat_Check(data.ptr()) && !PyUnicode_Check(data.ptr()) && !PyBytes_Check(data.ptr()) &&
             nb::try_cast(data, array)) {
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
  m.attr("asarray") = m.attr("as_tensor");
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
      nb::arg("data").none(), nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false,
      "A new tensor of the values of a number, of nested lists or tuples of numbers, of an array or of a tensor. "
      "Without "
      "dtype: float32 if any number is a float, else int64, or bool if all are; of NumPy's numbers and of tensors "
      "their own. "
      "ValueError: lists of unequal length or "
      "depth; TypeError: what is no number; RuntimeError: a number that does not fit.");
}

}  // namespace tally::py
