// dtype, device, Size and finfo: small values with PyTorch's names. A dtype has one object, so `x.dtype is float32`.
#include <limits>

#include "python/bind.h"
#include "tally/core/device.h"
#include "tally/core/number.h"
#include "tally/core/promote.h"

namespace tally::py {

PyObject* dtype_objects[kDTypes];
PyObject* size_type;
PyObject* values_indices_type;

namespace {

// PyTorch's name of each dtype, in the order of DType; those it also goes by stand below.
constexpr const char* kTorchNames[kDTypes] = {"float64",
                                              "float32",
                                              "bfloat16",
                                              "float16",
                                              "float8_e4m3fn",
                                              "float8_e5m2",
                                              "float8_e8m0fnu",
                                              "float4_e2m1fn_x2",
                                              "int64",
                                              "int32",
                                              "int16",
                                              "uint16",
                                              "int8",
                                              "uint8",
                                              "bool"};
constexpr std::pair<const char*, DType> kOtherNames[] = {{"float", DType::kF32}, {"double", DType::kF64},
                                                         {"half", DType::kF16},  {"long", DType::kI64},
                                                         {"int", DType::kI32},   {"short", DType::kI16}};

Device parse_device(const std::string& text) { return device_from_name(text); }

std::string device_type(Device d) {
  return d.kind == DeviceKind::kCpu ? "cpu" : d.kind == DeviceKind::kCuda ? "cuda" : "meta";
}

std::string device_repr(Device d) {
  if (d.kind == DeviceKind::kCuda) return fmt::format("device(type='cuda', index={})", d.index);
  if (d == kMetaCuda) return "device(type='meta:cuda')";
  return fmt::format("device(type='{}')", device_type(d));
}

}  // namespace

const char* torch_name(DType t) { return kTorchNames[static_cast<size_t>(t)]; }
PyObject* python_dtype(DType t) { return dtype_objects[static_cast<size_t>(t)]; }

bool dtype_from_python(PyObject* o, DType& value) {
  for (int i = 0; i < kDTypes; ++i)
    if (o == dtype_objects[i]) {
      value = static_cast<DType>(i);
      return true;
    }
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return value = DType::kF64, true;
  if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return value = DType::kI64, true;
  if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return value = DType::kBool, true;
  return false;
}

PyObject* python_size(const Dims& d) {
  PyObject* sizes = PyTuple_New(d.rank);
  for (int i = 0; sizes && i < d.rank; ++i) PyTuple_SET_ITEM(sizes, i, PyLong_FromLongLong(d[i]));
  if (!sizes) return nullptr;
  PyObject* size = PyObject_CallOneArg(size_type, sizes);
  Py_DECREF(sizes);
  return size;
}

namespace {

// A whole number that fits; a Python error is cleared. bool counts as in Python, float does not.
bool integer(PyObject* o, int64_t& value) {
  if (PyFloat_Check(o) || !PyIndex_Check(o) || PyList_Check(o)) return false;
  value = PyLong_Check(o) ? PyLong_AsLongLong(o) : PyNumber_AsSsize_t(o, PyExc_OverflowError);
  if (value != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

}  // namespace

bool dims_from_python(PyObject* o, Dims& value) {
  value = {};
  if (o == Py_None) return true;
  if (PyLong_Check(o)) return value.rank = 1, integer(o, value.v[0]);
  if (PyTuple_Check(o) || PyList_Check(o)) {
    const Py_ssize_t n = PySequence_Size(o);
    if (n > kMaxRank) return false;
    value.rank = static_cast<int32_t>(n);
    for (Py_ssize_t i = 0; i < n; ++i)
      if (!integer(PySequence_Fast_GET_ITEM(o, i), value.v[i])) return false;
    return true;
  }
  return false;
}

Dims dims_of(const nb::args& args, const char* op) {
  PyObject* sizes = args.ptr();
  if (args.size() == 1 && (PyTuple_Check(args[0].ptr()) || PyList_Check(args[0].ptr())))
    sizes = nb::handle(args[0]).ptr();
  const Py_ssize_t n = PySequence_Size(sizes);
  if (n > kMaxRank) fail_value("{}: {} sizes; a tensor has at most {} axes", op, n, kMaxRank);
  Dims d;
  if (!dims_from_python(sizes, d))
    fail_type("{}: takes whole numbers or one sequence of them, not {}", op, nb::repr(sizes).c_str());
  return d;
}

Device DeviceArg::get(Device otherwise) const {
  if (!given()) return otherwise;
  const Device d = PyUnicode_Check(object) ? parse_device(nb::cast<std::string>(nb::handle(object)))
                                           : nb::cast<Device>(nb::handle(object));
  if (d.kind == DeviceKind::kCuda) require_device(d);
  return d;
}

Device card_of(int index) {
  const Device d = parse_device(fmt::format("cuda:{}", index));
  require_device(d);
  return d;
}

void bind_types(nb::module_& m) {
  nb::class_<DTypeObject>(m, "dtype", "What a tensor's elements are: tally.float32, tally.bfloat16, tally.int64 ...")
      .def_prop_ro(
          "itemsize", [](const DTypeObject& d) { return item_size(d.value); }, "Bytes of an element.")
      .def_prop_ro(
          "is_floating_point", [](const DTypeObject& d) { return is_floating(d.value); }, "Whether it is of floats.")
      .def_prop_ro(
          "is_complex", [](const DTypeObject&) { return false; }, "False: there are no complex dtypes.")
      .def_prop_ro(
          "short_name", [](const DTypeObject& d) { return name_of(d.value); }, "As the program says it: f32.")
      .def("__repr__", [](const DTypeObject& d) { return std::string("tally.") + torch_name(d.value); })
      .def("__reduce__", [](const DTypeObject& d) {
        return nb::make_tuple(nb::module_::import_("tally._size").attr("dtype_by_name"),
                              nb::make_tuple(torch_name(d.value)));
      });
  for (int i = 0; i < kDTypes; ++i) {
    nb::object object = nb::cast(DTypeObject{static_cast<DType>(i)});
    dtype_objects[i] = object.ptr();
    m.attr(kTorchNames[i]) = object;
    object.release();  // lives as long as the process
  }
  for (const auto& [name, t] : kOtherNames) m.attr(name) = nb::handle(python_dtype(t));

  nb::class_<Device>(m, "device",
                     "Where a tensor is: device('cpu'), device('cuda', 0), device('cuda:0'), device('meta').")
      .def(
          "__init__",
          [](Device* self, const std::string& type, std::optional<int> index) {
            new (self) Device(parse_device(index ? fmt::format("{}:{}", type, *index) : type));
          },
          "type"_a, "index"_a = nb::none(), "'cpu', 'cuda', 'cuda:0' or 'meta', and a card's number.")
      .def(
          "__init__", [](Device* self, const Device& other) { new (self) Device(other); }, "other"_a)
      .def_prop_ro("type", device_type)
      .def_prop_ro("index",
                   [](Device d) { return d.kind == DeviceKind::kCuda ? std::optional<int>(d.index) : std::nullopt; })
      .def("__repr__", device_repr)
      .def("__str__", [](Device d) { return d == kMetaCpu ? std::string("meta") : name_of(d); })
      .def("__hash__",
           [](Device d) { return (static_cast<int>(d.kind) * 4 + static_cast<int>(d.target)) * 64 + d.index; })
      .def(
          "__eq__", [](Device a, nb::handle b) { return nb::isinstance<Device>(b) && nb::cast<Device>(b) == a; },
          nb::arg().none())
      .def("__reduce__", [](Device d) {
        return nb::make_tuple(nb::type<Device>(), nb::make_tuple(d == kMetaCpu ? std::string("meta") : name_of(d)));
      });

  nb::class_<FloatInfo>(m, "FloatInfo", "Limits of a dtype of floats.")
      .def_ro("max", &FloatInfo::max)
      .def_ro("min", &FloatInfo::min)
      .def_ro("tiny", &FloatInfo::tiny)
      .def_ro("smallest_normal", &FloatInfo::tiny)
      .def_ro("smallest_subnormal", &FloatInfo::smallest_subnormal)
      .def_ro("eps", &FloatInfo::eps)
      .def_ro("bits", &FloatInfo::bits)
      .def("__repr__", [](const FloatInfo& i) {
        return fmt::format("finfo(max={:g}, min={:g}, tiny={:g}, eps={:g}, bits={})", i.max, i.min, i.tiny, i.eps,
                           i.bits);
      });
  nb::class_<IntInfo>(m, "IntInfo", "Limits of an integer dtype.")
      .def_ro("max", &IntInfo::max)
      .def_ro("min", &IntInfo::min)
      .def_ro("bits", &IntInfo::bits)
      .def("__repr__",
           [](const IntInfo& i) { return fmt::format("iinfo(max={}, min={}, bits={})", i.max, i.min, i.bits); });
  m.def(
      "get_default_dtype", [] { return kDefaultFloat; }, "The dtype of Python's floats: float32.");
  m.def("promote_types", promote_types, "type1"_a, "type2"_a,
        "The smallest dtype that both convert to, by PyTorch's rules; a TypeError where there is none.");
  m.def("can_cast", can_cast, "from_"_a, "to"_a,
        "Whether an in-place op may write the one dtype into the other: floats never into integers.");
  m.def("finfo", finfo, "dtype"_a = DType::kF32,
        "max, min, tiny, eps, smallest_subnormal and bits of a dtype of floats; else a TypeError.");
  m.def("iinfo", iinfo, "dtype"_a, "max, min and bits of an integer dtype; else a TypeError.");
}

}  // namespace tally::py
