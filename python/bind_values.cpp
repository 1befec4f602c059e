// A tensor's values as Python's: numbers, lists, NumPy arrays, text, pickles.
#include <nanobind/ndarray.h>

#include <cstring>

#include "python/bind.h"
#include "python/operand.h"
#include "tally/core/number.h"
#include "tally/core/print.h"
#include "tally/ops/compare.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/reduce_plain.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

// On the CPU and contiguous, for reading values.
Tensor readable(const Tensor& x) {
  if (x.device().kind == DeviceKind::kMeta) fail("a {} tensor has no values to read", name_of(x.device()));
  return contiguous(to(x.detach(), kCpu));
}

PyObject* element(const void* data, DType t, int64_t i) {
  if (t == DType::kI64) return PyLong_FromLongLong(static_cast<const int64_t*>(data)[i]);
  const double v = read_number(data, t, i);
  if (t == DType::kBool) return PyBool_FromLong(v != 0);
  return is_integer(t) || t == DType::kF4E2M1x2 ? PyLong_FromDouble(v) : PyFloat_FromDouble(v);
}

nb::object nested(const Tensor& x, int axis, int64_t& at) {
  if (axis == x.dim()) return nb::steal(element(x.raw().data, x.dtype(), at++));
  const int64_t n = x.sizes()[axis];
  nb::object list = nb::steal(PyList_New(n));
  if (!list.is_valid()) nb::raise_python_error();
  for (int64_t i = 0; i < n; ++i) PyList_SET_ITEM(list.ptr(), i, nested(x, axis + 1, at).release().ptr());
  return list;
}

// What Python prints: its own names of dtypes and devices.
std::string text(const Tensor& x) {
  PrintOptions o;
  o.dtype_name = [](DType t) { return std::string("tally.") + torch_name(t); };
  o.device_name = [](const Device& d) { return d == kMetaCpu ? std::string("meta") : name_of(d); };
  return str(x, o);
}

nb::object item(const Tensor& x) {
  if (x.numel() != 1)
    fail("item: a tensor of shape {} has {} elements; only one of one element becomes a number", str(x.sizes()),
         x.numel());
  return nb::steal(element(readable(x).raw().data, x.dtype(), 0));
}

// float(x), int(x), complex(x).
nb::object number(const Tensor& x) {
  if (x.numel() != 1)
    fail_value("a tensor of shape {} has {} elements; only one of one element becomes a number", str(x.sizes()),
               x.numel());
  return item(x);
}

// value in x: whether one element is equal to it.
bool contains(const Tensor& x, nb::handle value) {
  OperandArg v;
  if (!nb::try_cast(value, v))
    fail("in: a {} is looked for in a tensor; numbers and tensors can be", nb::str(value.type()).c_str());
  const Unlocked free;
  return any(eq(x.detach(), v.get()), Dims(), false).item() != 0;
}

bool truth(const Tensor& x) {
  if (x.numel() != 1)
    fail("bool: a tensor of shape {} has {} elements, so whether it is true is ambiguous; use any() or all()",
         str(x.sizes()), x.numel());
  return readable(x).item() != 0;
}

// A NumPy array over the same memory; it keeps the storage.
nb::object numpy(const Tensor& x) {
  if (x.requires_grad()) fail("numpy: this tensor requires a gradient; use detach().numpy()");
  if (x.device().kind != DeviceKind::kCpu)
    fail_type("numpy: a tensor on {} is not in the host's memory; use cpu().numpy()", name_of(x.device()));
  const DType t = x.dtype();
  if (is_floating(t) && t != DType::kF64 && t != DType::kF32 && t != DType::kF16)
    fail_type("numpy: has no {}; use float().numpy()", torch_name(t));
  nb::dlpack::dtype code{};
  code.code = static_cast<uint8_t>(t == DType::kBool                     ? nb::dlpack::dtype_code::Bool
                                   : is_floating(t)                      ? nb::dlpack::dtype_code::Float
                                   : t == DType::kU16 || t == DType::kU8 ? nb::dlpack::dtype_code::UInt
                                                                         : nb::dlpack::dtype_code::Int);
  code.bits = static_cast<uint8_t>(8 * item_size(t));
  code.lanes = 1;
  size_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  for (int i = 0; i < x.dim(); ++i) shape[i] = static_cast<size_t>(x.sizes()[i]), strides[i] = x.strides()[i];
  nb::capsule owner(new Tensor(x.detach()), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  static double none;  // where there is no element there is no memory
  void* data = x.raw().data ? x.raw().data : &none;
  return nb::cast(nb::ndarray<nb::numpy>(data, static_cast<size_t>(x.dim()), shape, owner, strides, code));
}

}  // namespace

nb::object tolist(const Tensor& x) {
  const Tensor values = readable(x);
  int64_t at = 0;
  return nested(values, 0, at);
}

void bind_values(nb::module_& m, TensorClass& c) {
  c.def("item", item, nb::sig("def item(self) -> int | float | bool"),
        "The value of a tensor of one element, as a Python number.")
      .def("tolist", tolist, nb::sig("def tolist(self) -> list"), "The values as nested lists of Python numbers.")
      .def(
          "numpy",
          [](const Tensor& x, bool force) {
            if (!force) return numpy(x);
            const Tensor here = to(x.detach(), kCpu);
            const DType t = here.dtype();
            return numpy(is_floating(t) && t != DType::kF64 && t != DType::kF16 ? to(here, DType::kF32) : here);
          },
          nb::kw_only(), "force"_a = false, nb::sig("def numpy(self, *, force: bool = False) -> typing.Any"),
          "A NumPy array over the same memory (CPU). TypeError for dtypes NumPy lacks (bfloat16, float8) and for "
          "tensors of a card; RuntimeError where a gradient is required. With force whatever can be had: detached, on "
          "the "
          "CPU, float32 for a float dtype that NumPy lacks.")
      .def(
          "__array__",
          [](const Tensor& x, nb::handle dtype, nb::handle copy) {
            nb::object a = numpy(x);
            if (!dtype.is_none()) return nb::object(a.attr("astype")(dtype, nb::arg("copy") = copy.ptr() == Py_True));
            return copy.ptr() == Py_True ? nb::object(a.attr("copy")()) : a;
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none(), "What NumPy's functions make of a tensor: numpy().")
      .def(
          "__array_wrap__",
          [](nb::handle, nb::handle array, nb::handle, bool) { return tensor_from_python(array, std::nullopt, kCpu); },
          "array"_a, "context"_a = nb::none(), "return_scalar"_a = false,
          "What NumPy's functions of numbers make of their result: a tensor.")
      .def("__bool__", truth)
      .def("__float__", [](const Tensor& x) { return nb::steal(PyNumber_Float(number(x).ptr())); })
      .def("__int__", [](const Tensor& x) { return nb::steal(PyNumber_Long(number(x).ptr())); })
      .def("__complex__",
           [](const Tensor& x) { return nb::steal(PyComplex_FromDoubles(PyFloat_AsDouble(number(x).ptr()), 0)); })
      .def("__index__",
           [](const Tensor& x) {
             if (is_floating(x.dtype()) || x.numel() != 1)
               fail_type("index: only an integer tensor of one element is an index, not {} of shape {}",
                         torch_name(x.dtype()), str(x.sizes()));
             return nb::steal(PyNumber_Long(item(x).ptr()));
           })
      .def("__len__",
           [](const Tensor& x) {
             if (x.dim() == 0) fail_type("len: a tensor of no axes has no length");
             return x.sizes()[0];
           })
      .def("__contains__", contains, nb::arg().none())
      .def("__format__",
           [](nb::handle self, const std::string& spec) {
             const Tensor& x = nb::cast<const Tensor&>(self);
             if (spec.empty() && x.dim() > 0) return nb::object(nb::str(self));
             if (x.numel() != 1)
               fail_type("format: '{}' formats one number; this tensor of shape {} has {}", spec, str(x.sizes()),
                         x.numel());
             return nb::steal(PyObject_Format(item(x).ptr(), nb::str(spec.c_str()).ptr()));
           })
      .def("__repr__", text)
      .def("__copy__", [](const Tensor& x) { return x; })
      .def("__reduce_ex__",
           [](nb::handle self, int) {  // as bytes, with what says how to read them
             const Tensor& x = nb::cast<const Tensor&>(self);
             const Tensor values = readable(x);
             const nb::bytes bytes(values.raw().data, static_cast<size_t>(values.nbytes()));
             return nb::make_tuple(nb::module_::import_("tally._size").attr("tensor_from_bytes"),
                                   nb::make_tuple(bytes, x.dtype(), x.sizes(), x.requires_grad()));
           })
      .def(
          "__deepcopy__",
          [](const Tensor& x, nb::handle) {
            if (!x.is_leaf())
              fail("deepcopy: only a leaf can be copied with what surrounds it; use clone() or detach()");
            Tensor y = copied(x.detach());
            if (x.requires_grad()) y.set_requires_grad();
            if (x.requires_grad() && x.grad().defined()) y.set_grad(copied(x.grad().detach()));
            return y;
          },
          "memo"_a)
      .def("__hash__", [](nb::handle self) { return reinterpret_cast<Py_ssize_t>(self.ptr()) >> 4; });
  m.def(
      "tensor_from_bytes",
      [](const nb::bytes& bytes, DType t, const Dims& size, bool requires_grad) {
        Tensor x = Tensor::empty(size, t);
        if (static_cast<int64_t>(bytes.size()) != x.nbytes())
          fail("tensor_from_bytes: {} bytes for a tensor of shape {} and {}", bytes.size(), str(size), torch_name(t));
        if (x.numel() > 0) std::memcpy(x.raw().data, bytes.c_str(), bytes.size());
        if (requires_grad) x.set_requires_grad();
        return x;
      },
      "bytes"_a, "dtype"_a, "size"_a, "requires_grad"_a, "What a pickle of a tensor calls.");
}

}  // namespace tally::py
