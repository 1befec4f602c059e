// einops: rearrange, reduce, repeat, pack, unpack, einsum. The package tally.einops shows them.
#include "python/bind.h"
#include "tally/ops/einops.h"
#include "tally/ops/einsum.h"

namespace tally::py {
namespace {

// Sizes by name, as keyword arguments give them; the names live in `held`.
struct Sizes {
  std::vector<std::string> held;
  AxisSizes all;
  explicit Sizes(const nb::kwargs& kwargs) {
    held.reserve(kwargs.size());
    for (const auto& [name, size] : kwargs) {
      int64_t n = 0;
      if (PyBool_Check(size.ptr()) || !nb::try_cast(size, n))
        fail_type("einops: the size {} is {}, not a whole number", nb::str(name).c_str(), nb::repr(size).c_str());
      held.emplace_back(nb::str(name).c_str());
      all.emplace_back(held.back(), n);
    }
  }
};

std::vector<Tensor> list_of(nb::handle x, const char* op) {
  std::vector<Tensor> all;
  if (!nb::try_cast(x, all)) fail_type("{}: takes a tensor or a list of tensors", op);
  return all;
}

Tensor python_rearrange(nb::handle x, const std::string& pattern, const nb::kwargs& kwargs) {
  const Sizes sizes(kwargs);
  if (nb::isinstance<Tensor>(x)) return rearrange(nb::cast<const Tensor&>(x), pattern, sizes.all);
  return rearrange(list_of(x, "rearrange"), pattern, sizes.all);
}

Tensor python_repeat(nb::handle x, const std::string& pattern, const nb::kwargs& kwargs) {
  const Sizes sizes(kwargs);
  if (nb::isinstance<Tensor>(x)) return repeat(nb::cast<const Tensor&>(x), pattern, sizes.all);
  return repeat(list_of(x, "repeat"), pattern, sizes.all);
}

Tensor python_reduce(nb::handle x, const std::string& pattern, nb::handle how, const nb::kwargs& kwargs) {
  const Sizes sizes(kwargs);
  if (nb::isinstance<nb::str>(how)) {
    const auto name = nb::cast<std::string>(how);
    if (nb::isinstance<Tensor>(x)) return reduce(nb::cast<const Tensor&>(x), pattern, name, sizes.all);
    return reduce(list_of(x, "reduce"), pattern, name, sizes.all);
  }
  if (!PyCallable_Check(how.ptr())) fail_type("reduce: takes the name of a reduction or a function(tensor, axes)");
  const auto call = [how](const Tensor& t, const Dims& axes) {
    return nb::cast<Tensor>(how(t, nb::tuple(nb::cast(axes))));
  };
  return reduce(nb::cast<const Tensor&>(x), pattern, ReduceFunction(call), sizes.all);
}

// einsum(x, w, "b i, i o -> b o"), einsum("bi,io->bo", x, w) and einsum("bi,io->bo", [x, w]).
Tensor python_einsum(const nb::args& args) {
  std::string pattern;
  std::vector<Tensor> operands;
  int patterns = 0;
  for (nb::handle a : args) {
    if (nb::isinstance<nb::str>(a)) {
      pattern = nb::cast<std::string>(a), ++patterns;
    } else if (nb::isinstance<Tensor>(a)) {
      operands.push_back(nb::cast<const Tensor&>(a));
    } else {
      for (const Tensor& t : list_of(a, "einsum")) operands.push_back(t);
    }
  }
  if (patterns != 1) fail_type("einsum: takes tensors and one pattern, first or last");
  const Unlocked free;
  return einsum(operands, pattern);
}

}  // namespace

void bind_einops(nb::module_& m) {
  m.def("rearrange", python_rearrange, "tensor"_a, "pattern"_a, "axes_lengths"_a,
        "rearrange(x, 'b t (h d) -> b h t d', h=4): axes in another order, composed or split; a view where strides "
        "allow.");
  m.def("einops_repeat", python_repeat, "tensor"_a, "pattern"_a, "axes_lengths"_a,
        "repeat(x, 'h w -> h w c', c=3): new axes, without memory where strides allow.");
  m.def("einops_reduce", python_reduce, "tensor"_a, "pattern"_a, "reduction"_a, "axes_lengths"_a,
        "reduce(x, 'b t d -> b d', 'mean'): axes that are not on the right are reduced by sum, mean, max, min, prod, "
        "any, all "
        "or a function(tensor, axes).");
  m.def(
      "einops_pack",
      [](const std::vector<Tensor>& tensors, const std::string& pattern) {
        Packed p = pack(tensors, pattern);
        return std::pair<Tensor, std::vector<Dims>>(p.tensor, p.shapes);
      },
      "tensors"_a, "pattern"_a, "pack(list, 'i * k') -> tensor and the shapes that * stood for.");
  m.def(
      "einops_unpack",
      [](const Tensor& x, const std::vector<Dims>& shapes, const std::string& pattern) {
        return unpack(x, shapes, pattern);
      },
      "tensor"_a, "packed_shapes"_a, "pattern"_a, "The inverse of pack(): views.");
  m.def("einsum", python_einsum, "args"_a,
        "einsum(x, w, 'batch seq hidden, hidden out -> batch seq out') or einsum('bsh,ho->bso', x, w): sums of "
        "products over "
        "named axes, in the cheapest order.");
}

}  // namespace tally::py
