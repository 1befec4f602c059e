// Numbers and "a tensor or a number" as arguments.
#pragma once

#include "python/bind.h"
#include "tally/core/promote.h"

namespace tally::py {

// Python's int, float or bool, or NumPy's.
inline bool scalar_from_python(PyObject* o, Scalar& value) {
  if (PyFloat_Check(o)) return value = Scalar(PyFloat_AS_DOUBLE(o)), true;
  if (PyBool_Check(o)) return value = Scalar(o == Py_True), true;
  if (PyLong_Check(o)) {
    int overflow = 0;
    const int64_t n = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow) return false;
    return value = Scalar(n), true;
  }
  if (PySequence_Check(o) || PyUnicode_Check(o) || PyType_Check(o)) return false;
  PyObject* number = PyIndex_Check(o) ? PyNumber_Index(o) : nullptr;
  if (!number && Py_TYPE(o)->tp_as_number && Py_TYPE(o)->tp_as_number->nb_float) {
    PyErr_Clear();
    number = PyNumber_Float(o);
  }
  if (!number) return PyErr_Clear(), false;
  const bool is = scalar_from_python(number, value);
  Py_DECREF(number);
  return is;
}

struct OperandArg {
  const Tensor* tensor = nullptr;
  Scalar number = 0;
  Operand get() const { return tensor ? Operand(*tensor) : Operand(number); }
};

// x.relu_(), x.add_(y): f changes x; the method returns the same Python object.
template <class... A, class F, class... Names>
void in_place(Ops& o, const char* name, F f, const Names&... names) {
  o.class_.def(
      name,
      [f](nb::handle_t<Tensor> self, A... arguments) {
        Tensor& x = nb::cast<Tensor&>(self);
        {
          nb::gil_scoped_release free;
          f(x, arguments...);
        }
        return nb::borrow(self);
      },
      names...);
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
    return !isinstance<tally::Tensor>(src) && tally::py::scalar_from_python(src.ptr(), value);
  }
  explicit operator Value*() { return &value; }
  explicit operator Value&() { return value; }
  explicit operator Value&&() { return static_cast<Value&&>(value); }
  Value value = 0;
};

template <>
struct type_caster<tally::py::OperandArg> {
  NB_TYPE_CASTER(tally::py::OperandArg, const_name("Tensor | int | float | bool"))
  bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<tally::Tensor> tensor;
    if (tensor.from_python(src, flags & ~static_cast<uint32_t>(cast_flags::convert), cleanup)) {
      value.tensor = tensor.operator tally::Tensor*();
      return value.tensor != nullptr;
    }
    return tally::py::scalar_from_python(src.ptr(), value.number);
  }
};

}  // namespace nanobind::detail
