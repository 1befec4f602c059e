// tokenizer_args.h: Python's texts, ids and special tokens.
#include "python/tokenizer_args.h"

#include <memory>

namespace tally::py {
namespace {

int32_t id_of(int64_t v) {
  if (v < INT32_MIN || v > INT32_MAX) fail("tokenizer: id {} is outside every vocabulary", v);
  return static_cast<int32_t>(v);
}

template <class T>
void copy_strided(const nb::ndarray<nb::ro>& a, Ids& out) {
  std::vector<size_t> index(a.ndim(), 0);
  for (size_t n = 0; n < a.size(); ++n) {
    int64_t offset = 0;
    for (size_t d = 0; d < a.ndim(); ++d) offset += static_cast<int64_t>(index[d]) * a.stride(d);
    out.push_back(id_of(static_cast<int64_t>(static_cast<const T*>(a.data())[offset])));
    for (size_t d = a.ndim(); d-- > 0 && ++index[d] == a.shape(d);) index[d] = 0;
  }
}

bool contiguous(const nb::ndarray<nb::ro>& a) {
  int64_t step = 1;
  for (size_t d = a.ndim(); d-- > 0; step *= static_cast<int64_t>(a.shape(d)))
    if (a.shape(d) > 1 && a.stride(d) != step) return false;
  return true;
}

void copy_array(const nb::ndarray<nb::ro>& a, Ids& out) {
  out.reserve(a.size());
  const auto type = a.dtype();
  const bool is_signed = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int);
  switch (type.bits) {
    case 8:
      return is_signed ? copy_strided<int8_t>(a, out) : copy_strided<uint8_t>(a, out);
    case 16:
      return is_signed ? copy_strided<int16_t>(a, out) : copy_strided<uint16_t>(a, out);
    case 32:
      return is_signed ? copy_strided<int32_t>(a, out) : copy_strided<uint32_t>(a, out);
    default:
      return copy_strided<int64_t>(a, out);
  }
}

// A text of names: "all" (true), or the names of a set, list or tuple.
bool is_all(const nb::object& names, const char* what) {
  if (!nb::isinstance<nb::str>(names)) return false;
  if (nb::cast<std::string>(names) != "all") fail_value("{}: \"all\", or the names of special tokens as a set", what);
  return true;
}
std::vector<std::string> names_of(const nb::object& names) {
  std::vector<std::string> all;
  if (names.is_valid() && !names.is_none())
    for (nb::handle name : names) all.push_back(nb::cast<std::string>(name));
  return all;
}

}  // namespace

TextArg::TextArg(nb::handle text) {
  if (PyBytes_Check(text.ptr())) {
    kept_ = nb::borrow(text);
  } else if (PyUnicode_Check(text.ptr())) {
    Py_ssize_t n = 0;
    if (const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &n)) {
      kept_ = nb::borrow(text), view_ = {data, static_cast<size_t>(n)};
      return;
    }
    PyErr_Clear();
    nb::object utf16 = text.attr("encode")("utf-16", "surrogatepass");
    kept_ = utf16.attr("decode")("utf-16", "replace").attr("encode")("utf-8");
  } else {
    fail_type("tokenizer: takes str or bytes, not {}", nb::repr(text.type()).c_str());
  }
  view_ = {PyBytes_AS_STRING(kept_.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(kept_.ptr()))};
}

IdsArg::IdsArg(nb::handle ids) {
  nb::object given = nb::borrow(ids);
  if (nb::isinstance<Tensor>(given)) {
    if (!is_integer(nb::cast<const Tensor&>(given).dtype()))
      fail_type("tokenizer: ids of dtype {}; they are integers", torch_name(nb::cast<const Tensor&>(given).dtype()));
    for (const double v : nb::cast<const Tensor&>(given).to_vector()) own_.push_back(id_of(static_cast<int64_t>(v)));
  } else if (PyBytes_Check(ids.ptr()) || PyList_Check(ids.ptr()) || PyTuple_Check(ids.ptr()) ||
             !nb::ndarray_check(ids)) {
    if (PyUnicode_Check(ids.ptr()) || PyBytes_Check(ids.ptr()) || !PyObject_HasAttrString(ids.ptr(), "__iter__"))
      fail_type("tokenizer: ids are a list of ints, an array or a tensor of integers, not {}",
                nb::repr(ids.type()).c_str());
    const nb::object fast = nb::steal(PySequence_Fast(ids.ptr(), "tokenizer: ids must be a list of ints"));
    if (!fast.is_valid()) nb::raise_python_error();
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(fast.ptr());
    own_.resize(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(fast.ptr(), i);
      if (!PyIndex_Check(item)) fail_type("tokenizer: id {} is not an int", nb::repr(item).c_str());
      const int64_t v = PyLong_Check(item) ? PyLong_AsLongLong(item) : PyNumber_AsSsize_t(item, PyExc_OverflowError);
      if (v == -1 && PyErr_Occurred()) nb::raise_python_error();
      own_[static_cast<size_t>(i)] = id_of(v);
    }
  } else {
    nb::ndarray<nb::ro> a;
    if (!nb::try_cast(given, a)) fail_type("tokenizer: ids must be an array of integers on the CPU");
    const auto code = a.dtype().code;
    if (code != static_cast<uint8_t>(nb::dlpack::dtype_code::Int) &&
        code != static_cast<uint8_t>(nb::dlpack::dtype_code::UInt))
      fail_type("tokenizer: ids are integers; the array holds another dtype");
    if (a.device_type() != nb::device::cpu::value) fail_type("tokenizer: the array of ids is not on the CPU");
    if (a.dtype().bits == 32 && contiguous(a)) {  // ids beyond 2^31 turn negative, which no vocabulary has
      kept_ = std::move(given), view_ = {static_cast<const int32_t*>(a.data()), a.size()};
      return;
    }
    copy_array(a, own_);
  }
  view_ = own_;
}

SpecialPolicy SpecialsArg::policy(const Tokenizer& t) const {
  if (allowed.is_none() && disallowed.is_none()) return allow_special ? Specials::kAllow : Specials::kAsText;
  const bool refuse_all = disallowed.is_none() || is_all(disallowed, "disallowed_special");
  if (!allowed.is_none() && is_all(allowed, "allowed_special")) return Specials::kAllow;
  std::vector<std::string> names;  // those of the tokenizer: others cannot stand in a text as special tokens
  for (std::string& name : names_of(allowed))
    if (t.special_id(name)) names.push_back(std::move(name));
  return {std::move(names), refuse_all ? Specials::kRefuse : Specials::kAsText};
}

void SpecialsArg::check(const Tokenizer& t, std::string_view text) const {
  if (disallowed.is_none() || is_all(disallowed, "disallowed_special")) return;
  for (const std::string& name : names_of(disallowed))
    if (const size_t at = text.find(name); !name.empty() && at != std::string_view::npos && t.special_id(name))
      fail_value(
          "the text holds the special token '{}' at byte {}; allow it with allowed_special, or have it as text with "
          "disallowed_special=()",
          name, at);
}

nb::list list_of(std::span<const int32_t> ids) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(ids.size()));
  if (!list) nb::raise_python_error();
  for (size_t i = 0; i < ids.size(); ++i) PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), PyLong_FromLong(ids[i]));
  return nb::steal<nb::list>(list);
}

nb::object array_of(Ids ids) {
  auto owned = std::make_unique<Ids>(std::move(ids));
  const size_t shape[] = {owned->size()};
  int32_t* data = owned->data();
  const nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<Ids*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, int32_t>(data, 1, shape, owner));
}

nb::object str_of(std::string_view bytes, const char* errors) {
  PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), errors);
  if (!text) nb::raise_python_error();
  return nb::steal(text);
}

}  // namespace tally::py
