#include "tally/ops/scatter.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/changes.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"
#include "tally/ops/view.h"

namespace tally {

void begin_change(const char* op, const Tensor& x) {
  if (!x.defined()) fail("{}: an input is missing", op);
  require_recordable(op, x);
  if (overlaps_itself(x))
    fail("{}: more than one element of the written-to tensor {} refers to a single memory location; clone it first", op,
         str(x.sizes()));
  bump_version(x);
}

namespace {

Tensor copied(const Tensor& x) {
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  copy_(y, x);
  return y;
}

// A number seen with one axis; not recorded.
Tensor with_an_axis(const Tensor& x) {
  return x.dim() > 0 ? x.detach() : x.alias(Dims(1), Dims(1), x.storage_offset());
}

// The first `size` places of every axis; not recorded.
Tensor corner(const Tensor& x, const Dims& size) { return x.alias(size, x.strides(), x.storage_offset()); }

// x's part that index may reach, and src's part that it uses.
Tensor lanes_of(const Tensor& x, int axis, Dims size) {
  size[axis] = x.sizes()[axis];
  return corner(x, size);
}

struct Places {
  int axis = 0;
  Tensor flat, index;  // index has an axis at least
};

Places places_of(const char* op, const Tensor& x, int axis, const Tensor& index, const Dims* src) {
  if (!x.defined()) fail("{}: an input is missing", op);
  require_index(op, index);
  if (x.device() != index.device())
    fail("{}: devices {} and {} differ", op, name_of(x.device()), name_of(index.device()));
  Places p;
  p.axis = normalize_axis(axis, std::max(x.dim(), 1), op);
  bool fits = index.dim() == x.dim() && (src == nullptr || src->rank == x.dim());
  if (!fits && index.numel() > 0)
    fail("{}: index {} and source must have as many axes as the input {}", op, str(index.sizes()), str(x.sizes()));
  for (int i = 0; i < x.dim() && fits; ++i)
    fits = (i == p.axis || index.sizes()[i] <= x.sizes()[i]) && (src == nullptr || index.sizes()[i] <= (*src)[i]);
  if (!fits && index.numel() > 0)
    fail("{}: expected index {} to be no larger than self {} apart from dimension {} and no larger than src {}", op,
         str(index.sizes()), str(x.sizes()), p.axis, src ? str(*src) : "");
  p.flat = flat_index(index);
  require_range(op, p.flat, x.dim() == 0 ? 1 : x.sizes()[p.axis]);
  Dims size = index.sizes();
  if (size.rank == 0) size = Dims(1);
  if (index.numel() > 0 || size.rank == std::max(x.dim(), 1)) {
    p.index = p.flat.alias(size, contiguous_strides(size), p.flat.storage_offset());
  } else {
    p.index = p.flat;  // nothing to do
  }
  return p;
}

void require_dtype(const char* op, const Tensor& x, const Tensor& src) {
  if (!src.defined()) fail("{}: an input is missing", op);
  if (x.dtype() != src.dtype())
    fail("{}: expected self.dtype {} to be equal to src.dtype {}", op, name_of(x.dtype()), name_of(src.dtype()));
  if (x.device() != src.device()) fail("{}: devices {} and {} differ", op, name_of(x.device()), name_of(src.device()));
}

// y's values by index; y holds x's already.
void put(const Tensor& y, const Places& p, const Tensor& src, bool add) {
  if (p.index.numel() == 0) return;
  scatter_views(lanes_of(with_an_axis(y), p.axis, p.index.sizes()), p.axis, p.index,
                corner(with_an_axis(src), p.index.sizes()), add);
}

// The gradient of src: what index reads of g, and zeros beyond.
void add_source_gradient(Backward& b, const Tensor& g, const Tensor& flat, int axis, const Dims& size) {
  if (!b.needs(1)) return;
  NoGrad quiet;
  Tensor d = gather(with_an_axis(g), axis, flat.alias(size, contiguous_strides(size), flat.storage_offset()));
  Tensor whole = b.empty(1);
  const Tensor seen = with_an_axis(whole);
  if (seen.sizes() != d.sizes()) fill_(whole, 0.0);
  copy_(corner(seen, d.sizes()), d);
  b.add(1, std::move(whole));
}

// d x = g with zeros where something was put; d src = g there.
void record_put(Tensor& y, const Tensor& x, const Tensor& src, const Places& p, bool add) {
  record(
      y, {x, src}, {p.flat},
      [](Backward& b, int axis, bool added, Dims size) {
        const Tensor flat = b.saved(0);
        Tensor g = b.take_grad();
        if (size.rank == std::max(g.dim(), 1)) {
          require_range("scatter", flat, with_an_axis(g).sizes()[axis]);  // the caller may have changed them since
          add_source_gradient(b, g, flat, axis, size);
          if (!added && b.needs(0)) {
            g = copied(g);
            const Tensor zero = Tensor::empty(Dims(1), g.dtype(), g.device(), Category::kWorkspace);
            Tensor z = zero;
            fill_(z, 0.0);
            Dims still;
            still.rank = size.rank;
            const Places at{axis, flat, flat.alias(size, contiguous_strides(size), flat.storage_offset())};
            put(g, at, zero.alias(size, still, 0), false);
          }
        }
        b.add(0, std::move(g));
      },
      p.axis, add, p.index.sizes());
}

Tensor number(const Tensor& like, const Dims& size, double value) {
  if (!like.defined()) fail("scatter: an input is missing");
  Tensor one = Tensor::empty(Dims(1), like.dtype(), like.device(), Category::kWorkspace);
  fill_(one, value);
  Dims still;
  still.rank = size.rank;
  return one.alias(size, still, 0);
}

Tensor& changed(const char* op, Tensor& x, int axis, const Tensor& index, const Tensor& src, bool add) {
  begin_change(op, x);
  require_dtype(op, x, src);
  const Places p = places_of(op, x, axis, index, &src.sizes());
  if (needs_grad({src})) require_recorded_view(op, x);
  put(x, p, src.shares_storage(x) ? copied(src) : src, add);
  record_put(x, x, src, p, add);
  if (needs_grad({x})) publish(x);
  return x;
}

Tensor fresh(const char* op, const Tensor& x, int axis, const Tensor& index, const Tensor& src, bool add) {
  require_dtype(op, x, src);
  const Places p = places_of(op, x, axis, index, &src.sizes());
  Tensor y = copied(x);
  put(y, p, src, add);
  record_put(y, x, src, p, add);
  return y;
}

// ids along `axis`, source's sizes.
Tensor spread_ids(const char* op, const Tensor& x, int axis, const Tensor& ids, const Tensor& source) {
  require_index(op, ids);
  axis = normalize_axis(axis, std::max(x.dim(), 1), op);
  if (ids.dim() > 1) fail("{}: takes indices in one axis, not {}", op, str(ids.sizes()));
  Dims size = x.dim() == 0 ? Dims(1) : x.sizes();
  size[axis] = ids.numel();
  const Dims given = source.dim() == 0 ? Dims(1) : source.sizes();
  if (given != size)
    fail("{}: a source of shape {} does not fit {} indices on axis {} of {}", op, str(source.sizes()), ids.numel(),
         axis, str(x.sizes()));
  return spread_index(flat_index(ids), given, axis);
}

Tensor scaled(const Tensor& source, double alpha) {
  if (alpha == 1) return source;
  if (!is_float(source.dtype())) fail("index_add: alpha {} takes floats, not {}", alpha, name_of(source.dtype()));
  return affine(source, static_cast<float>(alpha), 0);
}

}  // namespace

void scatter_views(const Tensor& out, int axis, const Tensor& index, const Tensor& src, bool add) {
  if (add && is_floating(out.dtype())) {
    if (out.dtype() == DType::kF32 || out.dtype() == DType::kF64)
      return launch(&Kernels::gather_backward, GatherBackwardArgs{src.raw(), index.raw(), out.raw(), axis, true});
    const Tensor wide = Tensor::empty(out.sizes(), DType::kF32, out.device(), Category::kWorkspace);
    copy_(wide, out);
    Tensor from = src;
    if (src.dtype() != DType::kBF16) {
      from = Tensor::empty(src.sizes(), DType::kF32, src.device(), Category::kWorkspace);
      copy_(from, src);
    }
    launch(&Kernels::gather_backward, GatherBackwardArgs{from.raw(), index.raw(), wide.raw(), axis, true});
    return copy_(out, wide);
  }
  if (add && out.dtype() == DType::kBool) fail("scatter_add: {} numbers cannot be added", name_of(out.dtype()));
  launch(&Kernels::scatter, ScatterArgs{src.raw(), index.raw(), out.raw(), axis, add});
}

Tensor scatter(const Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  return fresh("scatter", x, axis, index, src, false);
}
Tensor scatter(const Tensor& x, int axis, const Tensor& index, double value) {
  require_index("scatter", index);
  return fresh("scatter", x, axis, index, number(x, index.sizes(), value), false);
}
Tensor& scatter_(Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  return changed("scatter_", x, axis, index, src, false);
}
Tensor& scatter_(Tensor& x, int axis, const Tensor& index, double value) {
  require_index("scatter_", index);
  return changed("scatter_", x, axis, index, number(x, index.sizes(), value), false);
}
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  return fresh("scatter_add", x, axis, index, src, true);
}
Tensor& scatter_add_(Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  return changed("scatter_add_", x, axis, index, src, true);
}

namespace {

// index_add with the ids' strides of 0 kept: the index is read once a row.
Tensor& add_rows(const char* op, Tensor& y, const Tensor& x, int axis, const Tensor& ids, const Tensor& source,
                 double alpha) {
  require_dtype(op, x, source);
  if (ids.defined() && ids.device() != x.device())
    fail("{}: devices {} and {} differ", op, name_of(x.device()), name_of(ids.device()));
  const Tensor seen = spread_ids(op, x, axis, ids, source), flat = flat_index(ids);
  axis = normalize_axis(axis, std::max(x.dim(), 1), op);
  require_range(op, flat, x.dim() == 0 ? 1 : x.sizes()[axis]);
  const Tensor from = scaled(source, alpha);
  if (!y.defined()) y = copied(x);
  if (seen.numel() > 0)
    scatter_views(with_an_axis(y), axis, seen, with_an_axis(from.shares_storage(y) ? copied(from) : from), true);
  record(
      y, {x, from}, {flat},
      [](Backward& b, int along) {
        NoGrad quiet;
        const Tensor g = b.take_grad();
        if (b.needs(1)) b.add(1, reshape(index_select(with_an_axis(g), along, b.saved(0)), b.input(1).size));
        b.add(0, g);
      },
      axis);
  return y;
}

}  // namespace

Tensor index_add(const Tensor& x, int axis, const Tensor& ids, const Tensor& source, double alpha) {
  if (!x.defined()) fail("index_add: an input is missing");
  Tensor y;
  return add_rows("index_add", y, x, axis, ids, source, alpha);
}
Tensor& index_add_(Tensor& x, int axis, const Tensor& ids, const Tensor& source, double alpha) {
  begin_change("index_add_", x);
  if (needs_grad({source})) require_recorded_view("index_add_", x);
  add_rows("index_add_", x, x, axis, ids, source, alpha);
  if (needs_grad({x})) publish(x);
  return x;
}

Tensor one_hot(const Tensor& ids, int64_t classes) {
  require_index("one_hot", ids);
  if (ids.dim() == kMaxRank) fail("one_hot: ids of shape {} have too many axes", str(ids.sizes()));
  if (classes == -1) {
    if (ids.device().kind == DeviceKind::kMeta)
      fail("one_hot: the number of classes depends on the ids, which a {} tensor has not; give it",
           name_of(ids.device()));
    if (ids.numel() == 0) fail("one_hot: the number of classes cannot be inferred from no ids; give it");
    for (const double id : ids.to_vector()) classes = std::max(classes, static_cast<int64_t>(id) + 1);
  }
  if (classes < 1) fail("one_hot: {} classes; ids must not be negative", classes);
  const Tensor flat = flat_index(ids);
  if (const int64_t at = first_outside(flat, classes); at >= 0)
    fail("one_hot: class values must be non-negative and smaller than num_classes {}: {} at position {}", classes,
         index_value(flat, at), at);
  Dims size = ids.sizes();
  size[size.rank++] = classes;
  Tensor y = Tensor::empty(size, DType::kI64, ids.device());
  fill_(y, 0.0);
  const Dims pair(ids.numel(), 1), rows(ids.numel(), classes);
  if (ids.numel() > 0)
    scatter_views(y.alias(rows, contiguous_strides(rows), 0), 1,
                  flat.alias(pair, contiguous_strides(pair), flat.storage_offset()), number(y, pair, 1), false);
  return y;
}

}  // namespace tally
