// Numbers of 8 and 4 bits with scales, and shapes stated and checked (ops/quantize.h, ops/expect.h).
#include "python/bind.h"
#include "tally/ops/expect.h"
#include "tally/ops/quantize.h"

namespace tally::py {
namespace {

nb::dict sizes_of(const Shapes& s) {
  nb::dict all;
  for (const auto& [name, size] : s.all()) all[name.c_str()] = size;
  return all;
}

Tensor values(const Quantized& q, std::optional<DType> dtype) { return dequantize(q, dtype.value_or(DType::kF32)); }

void bind_expect(nb::module_& m) {
  nb::class_<Shapes>(m, "Shapes", "What the names of axes stand for, over several tensors.")
      .def(nb::init<>())
      .def(
          "expect",
          [](nb::handle self, const Tensor& x, const std::string& pattern, const std::string& name) {
            nb::cast<Shapes&>(self).expect(x, pattern, name);
            return nb::borrow(self);
          },
          "input"_a, "pattern"_a, "name"_a = "tensor",
          "Checks the shape, binds new names and returns itself; ValueError, and nothing bound, where it is another.")
      .def(
          "__getitem__",
          [](const Shapes& s, const std::string& axis) {
            if (!s.has(axis)) throw nb::key_error(axis.c_str());
            return s[axis];
          },
          "axis"_a, "The size that a name stands for.")
      .def("__contains__", [](const Shapes& s, const std::string& axis) { return s.has(axis); })
      .def("__len__", [](const Shapes& s) { return s.all().size(); })
      .def("sizes", sizes_of, "{name: size} in order of first use.")
      .def("__repr__", [](const Shapes& s) { return fmt::format("Shapes({})", nb::repr(sizes_of(s)).c_str()); });
  m.def(
      "expect",
      [](const Tensor& x, const std::string& pattern, const std::string& name) {
        return sizes_of(expect(x, pattern, name));
      },
      "input"_a, "pattern"_a, "name"_a = "tensor",
      "Checks a shape such as 'batch seq 64' and gives {name: size}. A pattern has a name, a number, _ (any size) or "
      "once "
      "... (any axes) for each axis. ValueError, which names tensor, pattern and shape, where it is another. Several "
      "tensors of common names: Shapes(), or @shapes of tally.typing.");
}

}  // namespace

void bind_quantize(nb::module_& m) {
  nb::class_<Quantized>(m, "Quantized", "What quantize() gives: codes and their scales.")
      .def_ro("codes", &Quantized::codes, "The codes; two in a byte where they have 4 bits.")
      .def_prop_ro(
          "scales", [](const Quantized& q) { return tensor_or_none(q.scales); },
          "A scale a block of the last axis; None where the tensor has one scale.")
      .def_prop_ro(
          "tensor_scale", [](const Quantized& q) { return tensor_or_none(q.tensor_scale); },
          "The scale of all, float32; None in MX formats.")
      .def_prop_ro(
          "format", [](const Quantized& q) { return name_of(q.format); }, "The format's name.")
      .def_prop_ro(
          "shape", [](const Quantized& q) { return q.size; }, "Sizes of the values' axes.")
      .def_prop_ro("nbytes", &Quantized::bytes, "Bytes of codes and scales.")
      .def("dequantize", values, "dtype"_a = nb::none(), Release(), "The values, float32 unless dtype says another.")
      .def("__repr__", [](const Quantized& q) {
        return fmt::format("Quantized(format='{}', shape={}, nbytes={})", name_of(q.format), str(q.size), q.bytes());
      });
  m.def(
      "quantize",
      [](const Tensor& x, const std::string& format) {
        const QuantFormat f = quant_format_from_name(format);
        const Unlocked free;
        return quantize(x, f);
      },
      "input"_a, "format"_a,
      "Numbers of 8 or 4 bits with scales, by format: 'f8e4m3' and 'f8e5m2' (one scale a tensor), 'mxfp8_e4m3', "
      "'mxfp8_e5m2' and 'mxfp4' (blocks of 32 values, scales of powers of two), 'nvfp4' (blocks of 16, e4m3 scales, "
      "one "
      "float32 scale a tensor). ValueError for a last axis that is no multiple of the block. Source: OCP Microscaling "
      "Formats 1.0; NVIDIA's NVFP4. No gradient flows.");
  m.def("dequantize", values, "quantized"_a, "dtype"_a = nb::none(), Release(), "The values of what quantize() gave.");
  bind_expect(m);
}

}  // namespace tally::py
