// DLPack both ways (core/dlpack.h), and NumPy arrays without a copy. Memory is shared; whoever is last frees it.
#include <nanobind/ndarray.h>

#include "python/bind.h"
#include "tally/core/device.h"
#include "tally/core/dlpack.h"
#include "tally/ops/creation.h"

namespace tally::py {
namespace {

template <class Managed>
struct Capsule;
template <>
struct Capsule<dlpack::DLManagedTensor> {
  static constexpr const char *kName = "dltensor", *kUsed = "used_dltensor";
};
template <>
struct Capsule<dlpack::DLManagedTensorVersioned> {
  static constexpr const char *kName = "dltensor_versioned", *kUsed = "used_dltensor_versioned";
};

// A capsule that calls the deleter unless a consumer took the struct, which it shows by the capsule's new name.
template <class Managed>
nb::object capsule_of(Managed* managed) {
  PyObject* c = PyCapsule_New(managed, Capsule<Managed>::kName, [](PyObject* self) {
    if (!PyCapsule_IsValid(self, Capsule<Managed>::kName)) return;
    auto* m = static_cast<Managed*>(PyCapsule_GetPointer(self, Capsule<Managed>::kName));
    if (m && m->deleter) m->deleter(m);
  });
  if (!c) {
    managed->deleter(managed);
    nb::raise_python_error();
  }
  return nb::steal(c);
}

nb::object to_capsule(const Tensor& x, nb::handle stream, nb::handle max_version, nb::handle dl_device,
                      nb::handle copy) {
  const dlpack::DLDevice here = dlpack::device_of(x);
  if (!dl_device.is_none()) {
    const auto wanted = nb::cast<std::pair<int, int>>(dl_device);
    if (wanted.first != here.device_type || wanted.second != here.device_id)
      throw nb::buffer_error("__dlpack__: the tensor is on another device; move it with to() first");
  }
  const Tensor given = !copy.is_none() && nb::cast<bool>(copy) ? copied(x.detach()) : x;
  const bool no_wait = PyLong_Check(stream.ptr()) && PyLong_AsLong(stream.ptr()) == -1;
  PyErr_Clear();
  if (x.device().kind == DeviceKind::kCuda && !no_wait) {
    const Unlocked free;
    synchronize(x.device());
  }
  const bool versioned =
      PyTuple_Check(max_version.ptr()) && PyTuple_Size(max_version.ptr()) > 0 && nb::cast<int>(max_version[0]) >= 1;
  return versioned ? capsule_of(dlpack::to_dlpack_versioned(given)) : capsule_of(dlpack::to_dlpack(given));
}

template <class Managed>
bool take(nb::handle capsule, Tensor& x) {
  if (!PyCapsule_IsValid(capsule.ptr(), Capsule<Managed>::kName)) return false;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), Capsule<Managed>::kName));
  x = dlpack::from_dlpack(managed);
  PyCapsule_SetName(capsule.ptr(), Capsule<Managed>::kUsed);
  return true;
}

nb::object capsule_from(nb::handle source) {
  if (PyCapsule_CheckExact(source.ptr())) return nb::borrow(source);
  if (!nb::hasattr(source, "__dlpack__"))
    fail_type("from_dlpack: takes an object with __dlpack__ or a capsule, not a {}", nb::str(source.type()).c_str());
  nb::dict options;
  if (nb::hasattr(source, "__dlpack_device__")) {
    const auto device = nb::cast<std::pair<int, int>>(source.attr("__dlpack_device__")());
    if (device.first == dlpack::kDLCUDA) {
      require_device(cuda_device(device.second));
      options["stream"] = reinterpret_cast<intptr_t>(detail::device_stream(device.second));
    }
  }
  nb::object give = source.attr("__dlpack__");
  try {
    return give(nb::arg("max_version") = nb::make_tuple(1, 1), **options);
  } catch (nb::python_error& e) {  // an older producer
    if (!e.matches(PyExc_TypeError)) throw;
  }
  return give(**options);
}

Tensor from_dlpack(nb::handle source) {
  Tensor x;
  const nb::object capsule = capsule_from(source);
  if (!take<dlpack::DLManagedTensorVersioned>(capsule, x) && !take<dlpack::DLManagedTensor>(capsule, x))
    fail("from_dlpack: the capsule holds no tensor, or was used before");
  return x;
}

}  // namespace

void bind_dlpack(nb::module_& m, TensorClass& c) {
  c.def("__dlpack__", to_capsule, nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
        "dl_device"_a = nb::none(), "copy"_a = nb::none(),
        "A capsule over the same memory, for another library's from_dlpack().")
      .def("__dlpack_device__", [](const Tensor& x) {
        const dlpack::DLDevice d = dlpack::device_of(x);
        return std::pair<int, int>(d.device_type, d.device_id);
      });
  m.def(
      "from_dlpack", from_dlpack, "source"_a,
      "A tensor over the memory of a NumPy array, a PyTorch tensor or whatever has __dlpack__. RuntimeError for memory "
      "that is read-only and for layouts that tensors here do not have.");
  m.def(
      "from_numpy",
      [](nb::handle array) {
        if (!nb::hasattr(array, "__array_interface__"))
          fail_type("from_numpy: takes a NumPy array, not a {}", nb::str(array.type()).c_str());
        return from_dlpack(array);
      },
      "array"_a, "A tensor over the memory of a NumPy array.");
}

}  // namespace tally::py
