// The class Tensor: what it is, its conversions, its gradient. Values stand in bind_values.cpp, ops stand in
// bind_ops.cpp and bind_views.cpp, operators in bind_operators.cpp.
#include "python/bind.h"
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

Tensor convert(const Tensor& x, std::optional<DType> dtype, DeviceArg device, bool non_blocking, bool copy) {
  const Device d = device.get(x.device());
  const DType t = dtype.value_or(x.dtype());
  const Unlocked free;
  Tensor y = t == x.dtype() ? x : to(x, t);
  if (d != x.device()) y = to(y, d, non_blocking);
  return copy && y.shares_storage(x) ? copied(x) : y;
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
  if (!x.requires_grad() || !x.is_leaf()) fail("grad: can be set on a leaf tensor that requires a gradient only");
  x.set_grad(g ? g->detach() : Tensor{});
}

// x.data = y: other values, of another dtype, shape or device if need be, for the same leaf.
void set_data(Tensor& x, const Tensor& values) {
  const bool requires_grad = x.requires_grad();
  if (!x.is_leaf()) fail("data: can be set on a leaf tensor only");
  x = values.detach();
  if (requires_grad) x.set_requires_grad();
}

void bind_facts(TensorClass& c) {
  c.def_prop_ro(
       "shape", [](const Tensor& x) { return x.sizes(); }, "Sizes of the axes: a Size, which is a tuple.")
      .def_prop_ro(
          "dtype", [](const Tensor& x) { return x.dtype(); }, "What the elements are.")
      .def_prop_ro(
          "device", [](const Tensor& x) { return x.device(); }, "Where they are.")
      .def_prop_ro("ndim", &Tensor::dim, "The number of axes.")
      .def_prop_ro("itemsize", &Tensor::element_size, "Bytes of an element.")
      .def_prop_ro(
          "nbytes", [](const Tensor& x) { return x.nbytes(); }, "numel() * element_size().")
      .def_prop_ro(
          "is_cuda", [](const Tensor& x) { return x.device().kind == DeviceKind::kCuda; }, "Whether it is on a card.")
      .def_prop_ro(
          "is_meta", [](const Tensor& x) { return x.device().kind == DeviceKind::kMeta; },
          "Whether it has shapes only.")
      .def_prop_ro("is_leaf", &Tensor::is_leaf, "No op made it, or none that is recorded.")
      .def("dim", &Tensor::dim, "The number of axes.")
      .def(
          "size", [](const Tensor& x) { return x.sizes(); }, "Sizes of the axes, or of one (negative: from the end).")
      .def(
          "size", [](const Tensor& x, int dim) { return x.size(dim); }, "dim"_a, "The size of one axis.")
      .def(
          "stride", [](const Tensor& x) { return nb::tuple(nb::cast(x.strides())); },
          "Elements from one to the next along each axis, or along one.")
      .def(
          "stride", [](const Tensor& x, int dim) { return x.stride(dim); }, "dim"_a, "The stride of one axis.")
      .def("storage_offset", &Tensor::storage_offset, "Elements of the storage before this tensor's first.")
      .def("numel", &Tensor::numel, "The number of elements.")
      .def("nelement", &Tensor::numel, "numel().")
      .def("ndimension", &Tensor::dim, "dim().")
      .def("element_size", &Tensor::element_size, "Bytes of an element.")
      .def("data_ptr", address, "Address of the first element; 0 where there is no memory.")
      .def(
          "untyped_storage", [](const Tensor& x) { return StorageView{x.alias(Dims(0), Dims(1), 0)}; },
          "The memory this is a view of.")
      .def("same_storage", &Tensor::shares_storage, "other"_a, "Both are views of one storage.")
      .def("is_contiguous", &Tensor::is_contiguous, "Elements lie in order, without gaps.")
      .def("is_pinned", &Tensor::is_pinned, "In page-locked memory.")
      .def(
          "is_floating_point", [](const Tensor& x) { return is_floating(x.dtype()); },
          "Whether its dtype is of floats.")
      .def(
          "is_complex", [](const Tensor&) { return false; }, "False: there are no complex dtypes.");
}

void bind_conversions(TensorClass& c) {
  c.def("to", to_any, "args"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "non_blocking"_a = false,
        "copy"_a = false,
        "This tensor with another dtype, on another device, or both: to(tally.bfloat16), to('cuda:0'), to(other). "
        "Itself "
        "where nothing changes.")
      .def("pin_memory", pin_memory, Release(), "A copy in page-locked memory; itself when it is there already.")
      .def(
          "type_as", [](const Tensor& x, const Tensor& other) { return to(x, other.dtype()); }, "other"_a,
          "This tensor with another's dtype.")
      .def(
          "type",
          [](const Tensor& x, std::optional<DType> t) {
            return t ? nb::cast(to(x, *t)) : nb::cast(std::string("tally.") + torch_name(x.dtype()));
          },
          "dtype"_a = nb::none(), "to() a dtype; without one the name of the tensor's own.")
      .def(
          "cpu", [](const Tensor& x) { return to(x, kCpu); }, Release(),
          "This tensor in the host's memory; itself where it is there.")
      .def(
          "cuda", [](const Tensor& x, int device) { return to(x, card_of(device)); }, "device"_a = 0, Release(),
          "This tensor on a card. RuntimeError where there is none.");
  constexpr std::pair<const char*, DType> kTypes[] = {
      {"float", DType::kF32}, {"double", DType::kF64}, {"half", DType::kF16},  {"bfloat16", DType::kBF16},
      {"long", DType::kI64},  {"int", DType::kI32},    {"short", DType::kI16}, {"bool", DType::kBool},
      {"char", DType::kI8},   {"byte", DType::kU8}};
  for (const auto& [name, t] : kTypes)
    c.def(
        name, [t = t](const Tensor& x) { return to(x, t); }, Release(),
        (std::string("to(tally.") + torch_name(t) + ").").c_str());
}

}  // namespace

Tensor copied(const Tensor& x) {
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  copy_(y, x);
  record(y, {x}, {}, [](Backward& b) { b.add(0, b.take_grad()); });
  return y;
}

void bind_tensor(nb::module_& m, TensorClass& c) {
  nb::class_<StorageView>(m, "UntypedStorage", "The memory that tensors are views of.")
      .def(
          "data_ptr", [](const StorageView& s) { return address(s.start); }, "Its address.")
      .def("__eq__", &StorageView::same, nb::is_operator())
      .def(
          "nbytes", [](const StorageView& s) { return s.start.storage_bytes(); }, "Its bytes.");
  c.def(
      "__init__", [](Tensor* self, const Tensor& data) { new (self) Tensor(data.detach()); }, "data"_a,
      "A tensor over the same storage, which no op made; values become tensors by tally.tensor().");
  c.attr("__array_priority__") = 1000;  // NumPy's numbers leave operators to tensors
  bind_facts(c);
  bind_conversions(c);
  c.def_prop_rw(
       "requires_grad", &Tensor::requires_grad, [](Tensor& x, bool on) { x.set_requires_grad(on); },
       "Whether ops on it are recorded for backward().")
      .def(
          "requires_grad_",
          [](nb::handle_t<Tensor> self, bool on) -> Self {
            nb::cast<Tensor&>(self).set_requires_grad(on);
            return nb::borrow(self);
          },
          "requires_grad"_a = true, "Sets requires_grad; this same tensor.")
      .def_prop_rw(
          "grad", [](const Tensor& x) { return tensor_or_none(x.grad()); }, set_grad, nb::arg().none(),
          nb::for_getter(nb::sig("def grad(self) -> Tensor | None")),
          nb::for_setter(nb::sig("def grad(self, gradient: Tensor | None, /) -> None")),
          "The gradient that backward() left here; None before, and on tensors that ops made unless retain_grad() was "
          "called.")
      .def_prop_rw("data", &Tensor::detach, set_data, "The same values without their history.");
}

}  // namespace tally::py
