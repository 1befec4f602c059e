// The class Tensor: what it is, its values as Python's, its conversions. Ops stand in bind_ops.cpp and bind_views.cpp,
// operators in bind_operators.cpp.
#include <nanobind/ndarray.h>

#include "python/bind.h"
#include "tally/core/number.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

// The memory that a tensor is a view of.
struct StorageView {
  Tensor start;  // no elements, at its begin
  bool same(const StorageView& other) const { return start.shares_storage(other.start); }
};

int64_t address(const Tensor& x) { return reinterpret_cast<int64_t>(x.raw().data); }

bool is_leaf(const Tensor& x) { return !x.node() || x.node()->is_leaf(); }

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

nb::object item(const Tensor& x) {
  if (x.numel() != 1)
    fail("item: a tensor of shape {} has {} elements; only one of one element becomes a number", str(x.sizes()),
         x.numel());
  return nb::steal(element(readable(x).raw().data, x.dtype(), 0));
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

Tensor convert(const Tensor& x, std::optional<DType> dtype, DeviceArg device, bool non_blocking, bool copy) {
  const Device d = device.get(x.device());
  const DType t = dtype.value_or(x.dtype());
  nb::gil_scoped_release free;
  Tensor y = t == x.dtype() ? x : to(x, t);
  if (d != x.device()) y = to(y, d, non_blocking);
  if (copy && y.shares_storage(x)) {
    y = Tensor::empty(x.sizes(), x.dtype(), x.device());
    copy_(y, x);
  }
  return y;
}

// to("cuda:0"), to(float16), to(other), to(device, dtype), and each by name.
Tensor to_any(const Tensor& x, const nb::args& args, std::optional<DType> dtype, DeviceArg device, bool non_blocking,
              bool copy) {
  for (nb::handle a : args) {
    DType t;
    DeviceArg as_device;
    if (dtype_from_python(a.ptr(), t)) {
      dtype = t;
    } else if (nb::try_cast(a, as_device)) {
      device = as_device;
    } else if (nb::isinstance<Tensor>(a)) {
      const Tensor& other = nb::cast<const Tensor&>(a);
      dtype = other.dtype();
      if (other.device() != x.device()) return to(convert(x, dtype, {}, false, copy), other.device());
    } else if (PyBool_Check(a.ptr())) {
      non_blocking = a.ptr() == Py_True;
    } else {
      fail_type("to: takes a dtype, a device or a tensor, not {}", nb::repr(a).c_str());
    }
  }
  return convert(x, dtype, device, non_blocking, copy);
}

void set_grad(Tensor& x, const Tensor* g) {
  if (g && g->sizes() != x.sizes())
    fail("grad: a gradient of shape {} for a tensor of shape {}", str(g->sizes()), str(x.sizes()));
  if (!g && !x.requires_grad()) return;
  if (!x.requires_grad() || !is_leaf(x)) fail("grad: can be set on a leaf tensor that requires a gradient only");
  x.set_grad(g ? g->detach() : Tensor{});
}

// x.data = y: other values, of another dtype, shape or device if need be, for the same leaf.
void set_data(Tensor& x, const Tensor& values) {
  const bool requires_grad = x.requires_grad();
  if (!is_leaf(x)) fail("data: can be set on a leaf tensor only");
  x = values.detach();
  if (requires_grad) x.set_requires_grad();
}

void bind_facts(TensorClass& c) {
  c.def_prop_ro(
       "shape", [](const Tensor& x) { return x.sizes(); }, "Sizes of the axes: a Size, which is a tuple.")
      .def_prop_ro("dtype", [](const Tensor& x) { return x.dtype(); })
      .def_prop_ro("device", [](const Tensor& x) { return x.device(); })
      .def_prop_ro("ndim", &Tensor::dim)
      .def_prop_ro("itemsize", &Tensor::element_size)
      .def_prop_ro(
          "nbytes", [](const Tensor& x) { return x.numel() * x.element_size(); }, "numel() * element_size().")
      .def_prop_ro("is_cuda", [](const Tensor& x) { return x.device().kind == DeviceKind::kCuda; })
      .def_prop_ro("is_meta", [](const Tensor& x) { return x.device().kind == DeviceKind::kMeta; })
      .def_prop_ro("is_leaf", is_leaf, "No op made it, or none that is recorded.")
      .def("dim", &Tensor::dim, "The number of axes.")
      .def(
          "size", [](const Tensor& x) { return x.sizes(); }, "Sizes of the axes, or of one (negative: from the end).")
      .def(
          "size", [](const Tensor& x, int dim) { return x.size(dim); }, "dim"_a)
      .def(
          "stride", [](const Tensor& x) { return nb::tuple(nb::cast(x.strides())); },
          "Elements from one to the next along each axis, or along one.")
      .def(
          "stride", [](const Tensor& x, int dim) { return x.stride(dim); }, "dim"_a)
      .def("storage_offset", &Tensor::storage_offset, "Elements of the storage before this tensor's first.")
      .def("numel", &Tensor::numel, "The number of elements.")
      .def("nelement", &Tensor::numel)
      .def("element_size", &Tensor::element_size, "Bytes of an element.")
      .def("data_ptr", address, "Address of the first element; 0 where there is no memory.")
      .def(
          "untyped_storage", [](const Tensor& x) { return StorageView{x.alias(Dims(0), Dims(1), 0)}; },
          "The memory this is a view of.")
      .def("same_storage", &Tensor::shares_storage, "other"_a, "Both are views of one storage.")
      .def("is_contiguous", &Tensor::is_contiguous, "Elements lie in order, without gaps.")
      .def("is_pinned", &Tensor::is_pinned, "In page-locked memory.")
      .def("is_floating_point", [](const Tensor& x) { return is_floating(x.dtype()); });
}

void bind_values(TensorClass& c) {
  c.def("item", item, "The value of a tensor of one element, as a Python number.")
      .def("tolist", tolist, "The values as nested lists of Python numbers.")
      .def("numpy", numpy,
           "A NumPy array over the same memory (CPU). TypeError for dtypes NumPy lacks (bfloat16, float8) and for "
           "tensors "
           "of a card; RuntimeError where a gradient is required.")
      .def(
          "__array__",
          [](const Tensor& x, nb::handle dtype, nb::handle) {
            nb::object a = numpy(x);
            return dtype.is_none() ? a : a.attr("astype")(dtype);
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none())
      .def("__bool__", truth)
      .def("__float__", [](const Tensor& x) { return nb::steal(PyNumber_Float(item(x).ptr())); })
      .def("__int__", [](const Tensor& x) { return nb::steal(PyNumber_Long(item(x).ptr())); })
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
      .def("__contains__",
           [](const Tensor& x, nb::handle value) {
             for (nb::handle v : nb::list(tolist(reshape(x.detach(), Dims(-1)))))
               if (v.equal(value)) return true;
             return false;
           })
      .def("__format__",
           [](nb::handle self, const std::string& spec) {
             const Tensor& x = nb::cast<const Tensor&>(self);
             if (spec.empty()) return nb::object(nb::str(self));
             return nb::steal(PyObject_Format(item(x).ptr(), nb::str(spec.c_str()).ptr()));
           })
      .def("__hash__", [](nb::handle self) { return reinterpret_cast<Py_ssize_t>(self.ptr()) >> 4; });
}

void bind_conversions(TensorClass& c) {
  c.def("to", to_any, "args"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "non_blocking"_a = false,
        "copy"_a = false,
        "This tensor with another dtype, on another device, or both: to(tally.bfloat16), to('cuda:0'), to(other). "
        "Itself "
        "where nothing changes.")
      .def(
          "cpu", [](const Tensor& x) { return to(x, kCpu); }, Release())
      .def(
          "cuda", [](const Tensor& x, int device) { return to(x, cuda_device(device)); }, "device"_a = 0, Release());
  constexpr std::pair<const char*, DType> kTypes[] = {
      {"float", DType::kF32}, {"double", DType::kF64}, {"half", DType::kF16},  {"bfloat16", DType::kBF16},
      {"long", DType::kI64},  {"int", DType::kI32},    {"short", DType::kI16}, {"bool", DType::kBool}};
  for (const auto& [name, t] : kTypes)
    c.def(
        name, [t = t](const Tensor& x) { return x.dtype() == t ? x : to(x, t); }, Release());
}

}  // namespace

nb::object tolist(const Tensor& x) {
  const Tensor values = readable(x);
  int64_t at = 0;
  return nested(values, 0, at);
}

void bind_tensor(nb::module_& m, TensorClass& c) {
  nb::class_<StorageView>(m, "UntypedStorage", "The memory that tensors are views of.")
      .def(
          "data_ptr", [](const StorageView& s) { return address(s.start); }, "Its address.")
      .def("__eq__", &StorageView::same);
  c.def(
      "__init__", [](Tensor* self, const Tensor& data) { new (self) Tensor(data.detach()); }, "data"_a,
      "A tensor over the same storage, which no op made; values become tensors by tally.tensor().");
  bind_facts(c);
  bind_values(c);
  bind_conversions(c);
  c.def_prop_rw(
       "requires_grad", &Tensor::requires_grad, [](Tensor& x, bool on) { x.set_requires_grad(on); },
       "Whether ops on it are recorded for backward().")
      .def(
          "requires_grad_",
          [](nb::handle self, bool on) {
            nb::cast<Tensor&>(self).set_requires_grad(on);
            return nb::borrow(self);
          },
          "requires_grad"_a = true)
      .def_prop_rw(
          "grad", [](const Tensor& x) { return tensor_or_none(x.grad()); }, set_grad, nb::arg().none(),
          "The gradient that backward() left here; None before, and on tensors that ops made unless retain_grad() was "
          "called.")
      .def_prop_rw("data", &Tensor::detach, set_data, "The same values without their history.");
}

}  // namespace tally::py
