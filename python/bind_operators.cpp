// Python's operators on tensors and numbers. They are the hottest calls of the module: each is one or two overloads
// with positional arguments, tried in the order in which they are used.
#include "python/bind.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"

namespace tally::py {

void bind_operators(nb::module_&, TensorClass& c) {
  const auto pair = [&c](const char* name, Tensor (*f)(const Tensor&, const Tensor&)) {
    c.def(name, f, Release(), nb::is_operator());
  };
  pair("__add__", add), pair("__sub__", sub), pair("__mul__", mul), pair("__truediv__", div);
  pair("__matmul__", matmul);
  c.def("__neg__", neg, Release()).def("__pos__", [](const Tensor& x) { return x; });
}

}  // namespace tally::py
