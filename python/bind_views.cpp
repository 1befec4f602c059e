// Views: no data moves but where contiguous(), reshape() and flatten() must copy.
#include "python/bind.h"
#include "tally/ops/creation.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/view.h"

namespace tally::py {
namespace {

void axes(Ops& o) {
  o.both("transpose", transpose, "The axes dim0 and dim1 exchanged; a view.", "dim0"_a, "dim1"_a);
  o.both("swapaxes", swapaxes, "transpose().", "axis0"_a, "axis1"_a);
  o.both("t", t, "A matrix's transpose; a view.");
  o.both(
      "movedim", [](const Tensor& x, const Dims& from, const Dims& to) { return movedim(x, from, to); },
      "The axes source at the places destination; a view.", "source"_a, "destination"_a);
  o.function("permute", permute, "The axes in another order; a view.", "input"_a, "dims"_a);
  o.class_.def(
      "permute", [](const Tensor& x, const nb::args& dims) { return permute(x, dims_of(dims, "permute")); }, "dims"_a,
      "The axes in another order: permute(2, 0, 1) or permute((2, 0, 1)); a view.");
  o.both(
      "squeeze", [](const Tensor& x) { return squeeze(x); }, "Without axes of size 1; a view.");
  o.both(
      "squeeze", [](const Tensor& x, const Dims& dim) { return squeeze(x, dim); },
      "Without those of the axes dim that are of size 1; a view.", "dim"_a);
  o.both("unsqueeze", unsqueeze, "With an axis of size 1 before dim; a view.", "dim"_a);
  o.class_.def(
      "expand", [](const Tensor& x, const nb::args& size) { return expand(x, dims_of(size, "expand")); }, "size"_a,
      "Axes of size 1, and new ones in front, repeated without memory; -1 keeps an axis.");
  o.class_.def("expand_as", expand_as, "other"_a, "expand() to another tensor's shape.");
  o.both("broadcast_to", broadcast_to, "expand() as a function.", "size"_a);
  o.class_.def_prop_ro(
      "T",
      [](const Tensor& x) {
        Dims order = x.sizes();
        for (int i = 0; i < x.dim(); ++i) order[i] = x.dim() - 1 - i;
        return permute(x, order);
      },
      "The axes in reverse order; a view.");
  o.class_.def_prop_ro("mT", mT, "The last two axes exchanged; a view.");
}

void shapes(Ops& o) {
  o.class_.def(
      "view", [](const Tensor& x, DType t) { return view(x, t); }, "dtype"_a, "The same bytes as another dtype.");
  o.class_.def(
      "view", [](const Tensor& x, const nb::args& size) { return view(x, dims_of(size, "view")); }, "size"_a,
      "The same elements in another shape without a copy; one size may be -1. RuntimeError where the strides do "
      "not allow it.");
  o.class_.def(
      "view_as", [](const Tensor& x, const Tensor& other) { return view(x, other.sizes()); }, "other"_a,
      "view() in another tensor's shape.");
  o.class_.def(
      "reshape", [](const Tensor& x, const nb::args& size) { return reshape(x, dims_of(size, "reshape")); }, "size"_a,
      "view() where it can, else a copy.");
  o.function("reshape", reshape, "view() where it can, else a copy.", "input"_a, "shape"_a);
  o.both("flatten", flatten, "The axes start_dim to end_dim, both included, as one.", "start_dim"_a = 0,
         "end_dim"_a = -1);
  o.both("unflatten", unflatten, "One axis as several; one size may be -1.", "dim"_a, "sizes"_a);
  o.method("contiguous", contiguous, "The same elements in order without gaps: itself, or a copy.");
  o.both("clone", copied, "A copy, through which gradients flow.");
}

void parts(Ops& o) {
  o.both("select", select, "x[.., index, ..] along dim; a view.", "dim"_a, "index"_a);
  o.both("narrow", narrow, "length elements of dim from start on; a view.", "dim"_a, "start"_a, "length"_a);
  o.both(
      "split", [](const Tensor& x, int64_t size, int dim) { return split(x, size, dim); },
      "Parts of a size along dim, the last one maybe smaller; views.", "split_size"_a, "dim"_a = 0);
  o.both(
      "split", [](const Tensor& x, const std::vector<int64_t>& sizes, int dim) { return split(x, sizes, dim); },
      "Parts of the given sizes along dim; views.", "split_size"_a, "dim"_a = 0);
  o.both("chunk", chunk, "At most so many parts of one size along dim; views.", "chunks"_a, "dim"_a = 0);
  o.both(
      "unbind",
      [](const Tensor& x, int dim) {
        std::vector<Tensor> all;
        for (int64_t i = 0, n = x.size(dim); i < n; ++i) all.push_back(select(x, dim, i));
        return all;
      },
      "All slices along dim; views.", "dim"_a = 0);
  o.both("diagonal", diagonal, "The diagonals of two axes as a last one; a view.", "offset"_a = 0, "dim1"_a = 0,
         "dim2"_a = 1);
  o.class_.def("unfold", unfold, "dimension"_a, "size"_a, "step"_a, Release(),
               "All windows along an axis, their elements as a last axis; a view.");
  o.both(
      "as_strided",
      [](const Tensor& x, const Dims& size, const Dims& stride, std::optional<int64_t> offset) {
        return as_strided(x, size, stride, offset.value_or(x.storage_offset()));
      },
      "The storage at offset + sum of index * stride. RuntimeError for what reaches outside it.", "size"_a, "stride"_a,
      "storage_offset"_a = nb::none());
}

}  // namespace

void bind_views(Ops& o) {
  axes(o);
  shapes(o);
  parts(o);
}

}  // namespace tally::py
