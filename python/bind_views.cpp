// Views: no data moves but where contiguous() and reshape() must copy.
#include "python/bind.h"
#include "tally/ops/view.h"

namespace tally::py {

void bind_views(Ops& o) {
  o.both("transpose", transpose, "The axes dim0 and dim1 exchanged; a view.", "dim0"_a, "dim1"_a);
  o.both("squeeze", squeeze, "Without the axis dim if its size is 1; a view.", "dim"_a);
  o.both("unsqueeze", unsqueeze, "With an axis of size 1 before dim; a view.", "dim"_a);
  o.method("contiguous", contiguous, "The same elements in order without gaps: itself, or a copy.");
  o.class_.def(
      "view", [](const Tensor& x, const nb::args& size) { return view(x, dims_of(size, "view")); }, "size"_a,
      "The same elements in another shape without a copy; one size may be -1. RuntimeError where the strides do "
      "not allow it.");
  o.class_.def(
      "reshape", [](const Tensor& x, const nb::args& size) { return reshape(x, dims_of(size, "reshape")); }, "size"_a,
      "view() where it can, else a copy.");
  o.class_.def(
      "expand", [](const Tensor& x, const nb::args& size) { return expand(x, dims_of(size, "expand")); }, "size"_a,
      "Axes of size 1 repeated without memory; -1 keeps an axis.");
  o.class_.def_prop_ro("T", [](const Tensor& x) { return x.dim() < 2 ? x : transpose(x, 0, 1); });
}

}  // namespace tally::py
