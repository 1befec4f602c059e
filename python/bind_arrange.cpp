// Ops that take elements by index, put them to places, or copy them in another order: one line an op, as in
// bind_ops.cpp.
#include "python/bind.h"
#include "python/operand.h"
#include "tally/ops/arrange.h"
#include "tally/ops/gather.h"
#include "tally/ops/indexing.h"
#include "tally/ops/scatter.h"

namespace tally::py {
namespace {

nb::object nonzero_of(const Tensor& x, bool as_tuple) {
  std::vector<Tensor> all;
  {
    const nb::gil_scoped_release free;
    all = as_tuple ? nonzero_tuple(x) : std::vector<Tensor>{nonzero(x)};
  }
  return as_tuple ? nb::object(nb::tuple(nb::cast(all))) : nb::cast(all[0]);
}

void index_ops(Ops& o) {
  o.both("gather", gather, "out[.., j, ..] = x[.., index[.., j, ..], ..] with j on dim.", "dim"_a, "index"_a);
  o.both(
      "take_along_dim", [](const Tensor& x, const Tensor& i, int dim) { return take_along_axis(x, i, dim); },
      "gather() with the arguments in another order.", "indices"_a, "dim"_a);
  o.both("index_select", index_select, "The elements of dim at the numbers of a vector.", "dim"_a, "index"_a);
  o.both(
      "scatter", [](const Tensor& x, int dim, const Tensor& i, const Tensor& src) { return scatter(x, dim, i, src); },
      "x, with src put to the places of index along dim.", "dim"_a, "index"_a, "src"_a);
  o.both(
      "scatter", [](const Tensor& x, int dim, const Tensor& i, double value) { return scatter(x, dim, i, value); },
      "x, with a number put to the places of index along dim.", "dim"_a, "index"_a, "value"_a);
  o.both("scatter_add", scatter_add, "x, with src added at the places of index along dim.", "dim"_a, "index"_a,
         "src"_a);
  o.both("index_add", index_add, "x, with the slices of source added at the numbers of a vector.", "dim"_a, "index"_a,
         "source"_a, "alpha"_a = 1.0);
  const char* where_not_zero = "The coordinates of what is not 0: (n, axes) int64, or a tuple of a vector an axis.";
  o.module_.def("nonzero", nonzero_of, where_not_zero, "input"_a, nb::kw_only(), "as_tuple"_a = false);
  o.class_.def("nonzero", nonzero_of, where_not_zero, nb::kw_only(), "as_tuple"_a = false);
  o.both("argwhere", argwhere, "nonzero().");
  o.both("masked_select", masked_select, "The elements where mask is true, in one axis.", "mask"_a);
  o.function("one_hot", one_hot, "(..) -> (.., num_classes) int64 with a 1 at each id.", "tensor"_a,
             "num_classes"_a = -1);
}

void in_place_ops(Ops& o) {
  in_place<int, const Tensor&, const Tensor&>(
      o, "scatter_add_",
      [](Tensor& x, int dim, const Tensor& index, const Tensor& src) { scatter_add_(x, dim, index, src); }, "dim"_a,
      "index"_a, "src"_a);
  in_place<int, const Tensor&, const Tensor&>(
      o, "scatter_", [](Tensor& x, int dim, const Tensor& index, const Tensor& src) { scatter_(x, dim, index, src); },
      "dim"_a, "index"_a, "src"_a);
  in_place<int, const Tensor&, double>(
      o, "scatter_", [](Tensor& x, int dim, const Tensor& index, double value) { scatter_(x, dim, index, value); },
      "dim"_a, "index"_a, "value"_a);
  in_place<int, const Tensor&, const Tensor&>(
      o, "index_add_",
      [](Tensor& x, int dim, const Tensor& index, const Tensor& src) { index_add_(x, dim, index, src); }, "dim"_a,
      "index"_a, "source"_a);
}

void arrange_ops(Ops& o) {
  o.function(
      "cat", [](const std::vector<Tensor>& all, int dim) { return cat(all, dim); },
      "Tensors one behind the other along dim.", "tensors"_a, "dim"_a = 0);
  o.function(
      "concat", [](const std::vector<Tensor>& all, int dim) { return cat(all, dim); }, "cat().", "tensors"_a,
      "dim"_a = 0);
  o.function("stack", stack, "Tensors of one shape along a new axis.", "tensors"_a, "dim"_a = 0);
  o.both("flip", flip, "The order reversed along dims; a copy.", "dims"_a);
  o.both("roll", roll, "Elements moved on by shifts along dims, the last to the front.", "shifts"_a, "dims"_a = Dims());
  o.both("tile", tile, "Repeated so many times along each axis.", "dims"_a);
  o.both(
      "repeat_interleave", [](const Tensor& x, int64_t times, int dim) { return repeat_interleave(x, times, dim); },
      "Each element so many times along dim.", "repeats"_a, "dim"_a);
  o.class_.def(
      "repeat", [](const Tensor& x, const nb::args& sizes) { return repeat(x, dims_of(sizes, "repeat")); }, "repeats"_a,
      "Repeated so many times along each axis.");
  o.function(
      "meshgrid",
      [](const std::vector<Tensor>& all, const std::string& indexing) {
        if (indexing != "ij") fail_value("meshgrid: indexing '{}'; it is 'ij', and transpose() gives 'xy'", indexing);
        return meshgrid(all);
      },
      "Vectors as the axes of a grid.", "tensors"_a, "indexing"_a = "ij");
}

}  // namespace

void bind_arrange(Ops& o) {
  index_ops(o);
  in_place_ops(o);
  arrange_ops(o);
}

}  // namespace tally::py
