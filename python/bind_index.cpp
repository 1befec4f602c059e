// x[...] and x[...] = value: Python's index expressions as those of ops/indexing.h.
#include "python/bind.h"
#include "tally/ops/arrange.h"
#include "tally/ops/indexing.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

std::optional<int64_t> bound(PyObject* o) {
  if (o == Py_None) return std::nullopt;
  if (!PyIndex_Check(o)) fail_type("index: a slice takes whole numbers, not {}", nb::repr(o).c_str());
  const Py_ssize_t v = PyNumber_AsSsize_t(o, nullptr);  // clipped
  if (v == -1 && PyErr_Occurred()) nb::raise_python_error();
  return v;
}

Index index_of(nb::handle o) {
  PyObject* p = o.ptr();
  if (PyBool_Check(p)) return Index(p == Py_True);
  if (PyLong_Check(p)) {
    const int64_t i = PyLong_AsLongLong(p);
    if (i == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      fail_index("index: {} is out of range", nb::repr(o).c_str());
    }
    return Index(i);
  }
  if (p == Py_None) return Index(kNone);
  if (p == Py_Ellipsis) return Index(kEllipsis);
  if (PySlice_Check(p)) {
    const auto* s = reinterpret_cast<PySliceObject*>(p);
    const int64_t step = bound(s->step).value_or(1);
    if (step < 1) fail_value("index: a slice of step {}; it must be at least 1 (flip() reverses an axis)", step);
    return Index(Slice(bound(s->start), bound(s->stop), step));
  }
  if (nb::isinstance<Tensor>(o)) return Index(nb::cast<const Tensor&>(o));
  if (PyUnicode_Check(p) || PyBytes_Check(p))
    fail_type("index: {} is no index; whole numbers, slices, None, ..., lists and tensors are", nb::repr(o).c_str());
  if (PyIndex_Check(p) && !nb::hasattr(o, "__len__")) return Index(nb::cast<int64_t>(nb::steal(PyNumber_Index(p))));
  if (!PySequence_Check(p) || PyDict_Check(p))
    fail_index("index: {} is no index; whole numbers, slices, None, ..., lists and tensors are", nb::repr(o).c_str());
  Tensor t = tensor_from_python(PyRange_Check(p) ? nb::list(o) : nb::borrow(o), std::nullopt, kCpu);
  if (t.numel() == 0 && is_floating(t.dtype())) t = Tensor::empty(t.sizes(), DType::kI64);
  return Index(t);
}

std::vector<Index> indices_of(nb::handle o) {
  std::vector<Index> all;
  if (!PyTuple_Check(o.ptr())) {
    all.push_back(index_of(o));
    return all;
  }
  const Py_ssize_t n = PyTuple_GET_SIZE(o.ptr());
  if (n > 64) fail_index("index: {} indices; a tensor has at most {} axes", n, kMaxRank);
  for (Py_ssize_t i = 0; i < n; ++i) all.push_back(index_of(PyTuple_GET_ITEM(o.ptr(), i)));
  return all;
}

Tensor get_item(const Tensor& x, nb::handle at) {
  const std::vector<Index> indices = indices_of(at);
  const Unlocked free;
  return index(x, indices);
}

void set_item(Tensor& x, nb::handle at, nb::handle value) {
  const std::vector<Index> indices = indices_of(at);
  if (PyFloat_Check(value.ptr()) || PyBool_Check(value.ptr())) {
    index_put_(x, indices,
               PyObject_IsTrue(value.ptr()) && PyBool_Check(value.ptr()) ? 1.0
               : PyFloat_Check(value.ptr())                              ? PyFloat_AS_DOUBLE(value.ptr())
                                                                         : 0.0);
    return;
  }
  const Tensor v =
      nb::isinstance<Tensor>(value) ? nb::cast<const Tensor&>(value) : tensor_from_python(value, x.dtype(), x.device());
  const Unlocked free;
  index_put_(x, indices, v);
}

}  // namespace

void bind_index(nb::module_&, TensorClass& c) {
  c.def("__getitem__", get_item, nb::arg().none(),
        "x[i], x[1:5:2], x[..., 0], x[None], x[mask], x[[0, 2]]: whole numbers, slices, None and ... give a view, "
        "lists, "
        "integer tensors and masks a copy. IndexError out of range.")
      .def("__setitem__", set_item, nb::arg().none(), nb::arg(),
           "Writes a number, nested lists or a tensor that broadcasts to x[at].")
      .def("__iter__",
           [](const Tensor& x) {
             if (x.dim() == 0) fail_type("iter: a tensor of no axes has no elements to go through");
             nb::list all;
             for (int64_t i = 0; i < x.sizes()[0]; ++i) all.append(index(x, {Index(i)}));
             return nb::iter(all);
           })
      .def("__reversed__", [](const Tensor& x) { return x.dim() == 0 ? x : flip(x, Dims(0)); });
}

}  // namespace tally::py
