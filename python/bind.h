// What the files of the Python module share: how Python's values become Tally's and back, and the lists of ops.
// Conversions of arguments (type casters) must not throw; what needs an error of its own is kept as given and
// converted inside the function (DeviceArg, dims_of).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "tally/base/error.h"
#include "tally/core/dtype.h"
#include "tally/core/tensor.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "dim"_a

namespace tally::py {

// The Python side of a DType; there is one object a dtype (tally.float32), so that they may be compared by `is`.
struct DTypeObject {
  DType value;
};
extern PyObject* dtype_objects[kDTypes];
extern PyObject* size_type;            // tally.Size
extern PyObject* values_indices_type;  // a named tuple (values, indices)

PyObject* python_dtype(DType t);                     // borrowed
bool dtype_from_python(PyObject* o, DType& value);   // a dtype, or Python's float, int, bool; false: none of them
const char* torch_name(DType t);                     // "float32"
PyObject* python_size(const Dims& d);                // new reference, or null with an error set
bool dims_from_python(PyObject* o, Dims& value);     // an int or a sequence of ints; no more than kMaxRank
Dims dims_of(const nb::args& args, const char* op);  // f(2, 3) and f((2, 3)) alike; errors name op

// A device as given: None, "cuda:0" or a device.
struct DeviceArg {
  PyObject* object = nullptr;
  bool given() const { return object != nullptr && object != Py_None; }
  Device get(Device otherwise = kCpu) const;  // throws Error for what is no device or is not here
};

// Card number `index`; throws Error where it is not here.
Device card_of(int index);

// Arguments that may be None.
inline const Tensor& or_none(const Tensor* t) {
  static const Tensor none;
  return t ? *t : none;
}
inline nb::object tensor_or_none(Tensor t) { return t.defined() ? nb::cast(std::move(t)) : nb::none(); }

// Without Python's lock. How many threads are so is counted under the lock, so that the number stands still while
// Python's collector looks at tensors (bind_collect.cpp): it must not look while another thread may change a graph.
class Unlocked {
 public:
  Unlocked() {
    ++threads;
    state_ = PyEval_SaveThread();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {  // how a daemon thread ends when the interpreter has: it waits here for the process to
      for (;;) pause();
    }
    --threads;
  }
  static inline int threads = 0;

 private:
  PyThreadState* state_;
};

// A Python object that a tape holds, which may let go of it without the lock.
class Held {
 public:
  explicit Held(nb::object object);
  nb::handle get() const;
  // That node is the one that keeps it: what Python's collector may then follow.
  void keep_in(const Node* node) const;

 private:
  struct Object;
  std::shared_ptr<Object> object_;
};
// bind_collect.cpp: the slots by which Python's collector finds cycles through tensors.
PyType_Slot* tensor_slots();

// The same Python object again, for stubs a Tensor.
using Self = nb::typed<nb::object, Tensor>;

using Release = nb::call_guard<Unlocked>;
using TensorClass = nb::class_<Tensor>;

// One line an op: a function of the module and, with the first argument as self, a method.
class Ops {
 public:
  Ops(nb::module_& m, TensorClass& c) : module_(m), class_(c) {}
  template <class F, class... A>
  void both(const char* name, F f, const char* doc, const A&... arguments) {
    function(name, f, doc, "input"_a, arguments...);
    method(name, f, doc, arguments...);
  }
  template <class F, class... A>
  void function(const char* name, F f, const char* doc, const A&... arguments) {
    module_.def(name, f, Release(), doc, arguments...);
  }
  template <class F, class... A>
  void method(const char* name, F f, const char* doc, const A&... arguments) {
    class_.def(name, f, Release(), doc, arguments...);
  }
  nb::module_& module_;
  TensorClass& class_;
};

// The parts of the module, each in its file.
void bind_types(nb::module_& m);
void bind_tensor(nb::module_& m, TensorClass& c);
void bind_values(nb::module_& m, TensorClass& c);
void bind_create(nb::module_& m, TensorClass& c);
void bind_operators(nb::module_& m, TensorClass& c);
void bind_index(nb::module_& m, TensorClass& c);
void bind_dlpack(nb::module_& m, TensorClass& c);
void bind_ledger(nb::module_& m);
void bind_quantize(nb::module_& m);
void bind_new(nb::module_& m, TensorClass& c);
void bind_ops(Ops& ops);
void bind_arrange(Ops& ops);
void bind_conv(Ops& ops);
void bind_reduce(Ops& ops);
void bind_views(Ops& ops);
void bind_nn(Ops& ops);
void bind_einops(nb::module_& m);
void bind_autograd(nb::module_& m, TensorClass& c);
void bind_device(nb::module_& m);
void bind_io(nb::module_& m);
void bind_text(nb::module_& m);
void bind_tokenizer(nb::module_& m);
void bind_train(nb::module_& m);
void bind_errors(nb::module_& m);

// bind_create.cpp: a number, nested lists of them, or an array, as a new tensor.
Tensor tensor_from_python(nb::handle data, std::optional<DType> dtype, Device device);
// bind_tensor.cpp: a copy through which gradients flow.
Tensor copied(const Tensor& x);
// bind_values.cpp: values as nested lists of Python's numbers.
nb::object tolist(const Tensor& x);

}  // namespace tally::py

namespace nanobind::detail {

template <>
struct type_caster<tally::Dims> {
  NB_TYPE_CASTER(tally::Dims, io_name("int | collections.abc.Sequence[int]", "Size"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    return tally::py::dims_from_python(src.ptr(), value);
  }
  static handle from_cpp(const tally::Dims& d, rv_policy, cleanup_list*) noexcept { return tally::py::python_size(d); }
};

template <>
struct type_caster<tally::DType> {
  NB_TYPE_CASTER(tally::DType, const_name("dtype"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    return tally::py::dtype_from_python(src.ptr(), value);
  }
  static handle from_cpp(tally::DType t, rv_policy, cleanup_list*) noexcept {
    return handle(tally::py::python_dtype(t)).inc_ref();
  }
};

template <>
struct type_caster<tally::py::DeviceArg> {
  NB_TYPE_CASTER(tally::py::DeviceArg, const_name("device | str"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    value.object = src.ptr();
    return src.is_none() || PyUnicode_Check(src.ptr()) || isinstance<tally::Device>(src);
  }
};

}  // namespace nanobind::detail
