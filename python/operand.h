// Numbers and "a tensor or a number" as arguments.
#pragma once

#include <cstring>
#include <stdexcept>

#include "python/bind.h"
#include "tally/core/promote.h"

namespace tally::py {

// Thrown where a whole number does not fit: std::overflow_error is Python's OverflowError.
[[noreturn]] inline void number_too_large() { throw std::overflow_error("int too large: numbers have 64 bits here"); }

// Python's int, float or bool, or NumPy's. A whole number of more than 64 bits is one too, as NaN with `too_large`.
inline bool scalar_from_python(PyObject* o, Scalar& value, bool& too_large) {
  if (PyFloat_Check(o)) return value = Scalar(PyFloat_AS_DOUBLE(o)), true;
  if (PyBool_Check(o)) return value = Scalar(o == Py_True), true;
  if (PyLong_Check(o)) {
    int overflow = 0;
    const int64_t n = PyLong_AsLongLongAndOverflow(o, &overflow);
    too_large = overflow != 0;
    return value = Scalar(n), true;
  }
  if (PySequence_Check(o) || PyUnicode_Check(o) || PyType_Check(o)) return false;
  PyObject* number = PyIndex_Check(o) ? PyNumber_Index(o) : nullptr;
  if (!number && Py_TYPE(o)->tp_as_number && Py_TYPE(o)->tp_as_number->nb_float) {
    PyErr_Clear();
    number = PyNumber_Float(o);
  }
  if (!number) return PyErr_Clear(), false;
  const bool is = scalar_from_python(number, value, too_large);
  Py_DECREF(number);
  return is;
}

// A NumPy array of one axis or more as a tensor, a copy.
inline bool array_from_python(PyObject* o, std::optional<Tensor>& value) noexcept {
  if (!PySequence_Check(o) || PyList_Check(o) || PyTuple_Check(o) || PyUnicode_Check(o)) return false;
  if (!nb::hasattr(o, "__array_interface__")) return false;
  try {
    value = tensor_from_python(o, std::nullopt, kCpu);
    return true;
  } catch (const std::exception&) {  // of a dtype that tensors do not have: NumPy may try
    return false;
  }
}

struct OperandArg {
  const Tensor* given = nullptr;
  Scalar number = 0;
  bool too_large = false;
  std::optional<Tensor> made;  // of an array
  const Tensor* tensor() const { return made ? &*made : given; }
  Operand get() const {
    if (too_large) number_too_large();
    return tensor() ? Operand(*tensor()) : Operand(number);
  }
};

// x.relu_(), x.add_(y): f changes x; the method returns the same Python object.
template <class... A, class F, class... Names>
void in_place(Ops& o, const char* name, F f, const Names&... names) {
  o.class_.def(
      name,
      [f](nb::handle_t<Tensor> self, A... arguments) -> Self {
        Tensor& x = nb::cast<Tensor&>(self);
        {
          const Unlocked free;
          f(x, arguments...);
        }
        return nb::borrow(self);
      },
      names..., (std::string(name, std::strlen(name) - 1) + "(), written into this tensor, which it gives.").c_str());
}

}  // namespace tally::py

namespace nanobind::detail {

template <>
struct type_caster<tally::Scalar> {
  using Value = tally::Scalar;
  static constexpr auto Name = const_name("int | float | bool");
  template <typename T_>
  using Cast = movable_cast_t<T_>;
  template <typename T_>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    return !isinstance<tally::Tensor>(src) && tally::py::scalar_from_python(src.ptr(), value, too_large);
  }
  Value& checked() {
    if (too_large) tally::py::number_too_large();
    return value;
  }
  explicit operator Value*() { return &checked(); }
  explicit operator Value&() { return checked(); }
  explicit operator Value&&() { return static_cast<Value&&>(checked()); }
  Value value = 0;
  bool too_large = false;
};

// The library's caster of an optional reads its value where nothing may be thrown yet.
template <>
struct type_caster<std::optional<tally::Scalar>> {
  using Value = std::optional<tally::Scalar>;
  static constexpr auto Name = const_name("int | float | bool | None");
  template <typename T_>
  using Cast = movable_cast_t<T_>;
  template <typename T_>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
    if (src.is_none()) return true;
    given = true;
    return inner.from_python(src, flags, cleanup);
  }
  Value& checked() {
    if (given) value = inner.checked();
    return value;
  }
  explicit operator Value*() { return &checked(); }
  explicit operator Value&() { return checked(); }
  explicit operator Value&&() { return static_cast<Value&&>(checked()); }
  type_caster<tally::Scalar> inner;
  bool given = false;
  Value value;
};

template <>
struct type_caster<tally::py::OperandArg> {
  NB_TYPE_CASTER(tally::py::OperandArg, const_name("Tensor | int | float | bool"))
  bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<tally::Tensor> tensor;
    if (tensor.from_python(src, flags & ~static_cast<uint32_t>(cast_flags::convert), cleanup)) {
      value.given = tensor.operator tally::Tensor*();
      return value.given != nullptr;
    }
    return tally::py::scalar_from_python(src.ptr(), value.number, value.too_large) ||
           tally::py::array_from_python(src.ptr(), value.made);
  }
};

}  // namespace nanobind::detail
