#include "tally/ops/indexing.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/changes.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/index_expression.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"
#include "tally/ops/scatter.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// The arrays of an expression: their shape together, and where it stands.
struct Arrays {
  std::vector<IndexArray> all;
  Dims shape;            // broadcast
  bool together = true;  // their axes are neighbours
  int front = 0;         // axes of the result before them
  Dims size, steps;      // of the indexed axes; what an id counts in their joint axis
  int count() const { return size.rank; }
};

Arrays arrays_of(const Expression& e, const Dims& x) {
  Arrays a;
  a.all = e.arrays;
  for (size_t i = 0; i < a.all.size(); ++i) {
    const Dims& other = a.all[i].ids.sizes();
    Dims joined = other.rank > a.shape.rank ? other : a.shape;
    for (int k = 1; k <= joined.rank; ++k) {
      const int64_t p = k <= a.shape.rank ? a.shape[a.shape.rank - k] : 1,
                    q = k <= other.rank ? other[other.rank - k] : 1;
      if (p != q && p != 1 && q != 1)
        fail_index("index: shape mismatch: indexing tensors could not be broadcast together with shapes {}, {}",
                   str(a.shape), str(other));
      joined[joined.rank - k] = p == 1 ? q : p;
    }
    a.shape = joined;
    push_axis(a.size, x[a.all[i].axis]);
    a.together = a.together && (i == 0 || a.all[i].axis == a.all[i - 1].axis + 1);
  }
  a.front = a.together ? a.all[0].axis : 0;
  a.steps = contiguous_strides(a.size);
  return a;
}

// The axes in the result's order, those that are indexed at `front`, one behind the other.
Frame arranged(const Arrays& a, const Frame& x) {
  Frame y;
  y.offset = x.offset;
  const auto push = [&](int axis) { push_axis(y.size, x.size[axis]), push_axis(y.stride, x.stride[axis]); };
  const auto rest = [&](int from) {  // what no array indexes, `front` axes at first
    for (int axis = from; axis < x.size.rank; ++axis) {
      bool indexed = false;
      for (const IndexArray& array : a.all) indexed = indexed || array.axis == axis;
      if (!indexed) push(axis);
      if (from == 0 && a.together && axis + 1 == a.front) return;
    }
  };
  if (a.front > 0) rest(0);
  for (const IndexArray& array : a.all) push(array.axis);
  rest(a.front);
  return y;
}

// `count` axes from `at` on become those of `middle`.
Dims replaced(const Dims& size, int at, int count, const Dims& middle) {
  Dims out;
  for (int i = 0; i < at; ++i) push_axis(out, size[i]);
  for (int i = 0; i < middle.rank; ++i) push_axis(out, middle[i]);
  for (int i = at + count; i < size.rank; ++i) push_axis(out, size[i]);
  return out;
}

// True when `count` axes from `at` on are one in memory.
bool merges(const Frame& f, int at, int count) {
  bool all = true;
  for (int i = at; i + 1 < at + count; ++i) all = all && f.stride[i] == f.stride[i + 1] * f.size[i + 1];
  return all;
}

// Those axes as one, which ids with the steps of Arrays count, ...
Frame joint(const Frame& f, int at, int count) {
  int64_t n = 1;
  for (int i = at; i < at + count; ++i) n *= f.size[i];
  return {replaced(f.size, at, count, Dims(n)), replaced(f.stride, at, count, Dims(f.stride[at + count - 1])),
          f.offset};
}
// ... or as the stretch of memory that they lie in, which ids that are offsets count. For reading only: elements of the
// view lie in it more than once.
Frame stretch(const Frame& f, int at, int count) {
  int64_t n = f.size.numel() == 0 ? 0 : 1;
  for (int i = at; i < at + count && n > 0; ++i) n += (f.size[i] - 1) * f.stride[i];
  return {replaced(f.size, at, count, Dims(n)), replaced(f.stride, at, count, Dims(1)), f.offset};
}

// The ids of all arrays as one, of a.shape: sums of id * step.
Tensor joint_ids(const char* op, const Arrays& a, const Dims& step, Device device) {
  LinearIndexArgs args{};
  args.count = a.count();
  args.size = a.size, args.step = step;
  for (int i = 0; i < args.count; ++i) args.ids[i] = broadcast_view(a.all[static_cast<size_t>(i)].ids, a.shape).raw();
  const Tensor out = Tensor::empty(a.shape, DType::kI64, device);
  Tensor bad = Tensor::empty(Dims(1), DType::kI64, device, Category::kWorkspace);
  fill_(bad, static_cast<double>(out.numel()));
  args.out = out.raw(), args.bad = bad.raw();
  launch(&Kernels::linear_index, args);
  if (device.kind == DeviceKind::kMeta) return out;
  const auto first = static_cast<int64_t>(bad.item());
  if (first == out.numel()) return out;
  for (int i = 0; i < args.count; ++i) {
    const IndexArray& array = a.all[static_cast<size_t>(i)];
    const double id = broadcast_view(array.ids, a.shape).to_vector()[static_cast<size_t>(first)];
    const int64_t n = a.size[i];
    if (id < static_cast<double>(-n) || id >= static_cast<double>(n))
      fail_index("{}: index {} is out of bounds for dimension {} with size {}", op, static_cast<int64_t>(id),
                 array.axis, n);
  }
  return out;
}

Tensor flattened(const Tensor& t) { return t.alias(Dims(t.numel()), Dims(1), t.storage_offset()); }

// Elements of x seen as `f`, whose axis `at` the ids count; ids' shape takes the axis' place.
Tensor read(const Tensor& x, const Frame& f, int at, const Tensor& ids) {
  Dims size = f.size;
  size[at] = ids.numel();
  Tensor y = Tensor::empty(replaced(f.size, at, 1, ids.sizes()), x.dtype(), x.device());
  const Tensor flat = y.alias(size, contiguous_strides(size), 0);
  launch(&Kernels::gather, GatherArgs{seen(x, f).raw(), spread_index(flattened(ids), size, at).raw(), flat.raw(), at});
  return y;
}

// The reverse, for `count` axes from `at` on: x's elements become value's, or value's are added. value has the shape
// that read() gives, any strides. Axes that are not one in memory are changed in a copy.
void write(const Tensor& x, const Frame& f, int at, int count, const Tensor& ids, const Tensor& value, bool add) {
  if (value.numel() == 0) return;
  if (!merges(f, at, count)) {
    const Tensor copy = Tensor::empty(f.size, x.dtype(), x.device(), Category::kWorkspace);
    copy_(copy, seen(x, f));
    write(copy, dense_frame(f.size), at, count, ids, value, add);
    return copy_(seen(x, f), copy);
  }
  const Frame all = joint(f, at, count);
  Dims size = all.size;
  size[at] = ids.numel();
  bool one = true;  // a single number
  for (int i = 0; i < value.dim(); ++i) one = one && (value.sizes()[i] == 1 || value.strides()[i] == 0);
  Dims still;
  still.rank = size.rank;
  const Tensor from = one ? value.alias(size, still, value.storage_offset()) : reshape(value.detach(), size);
  scatter_views(seen(x, all), at, spread_index(flattened(ids), size, at), from, add);
}

// d x of an indexing: zeros but for g at the ids. f: as x's gradient is seen.
void index_gradient(Backward& b, const Tensor& ids, const Frame& f, int at, int count) {
  NoGrad quiet;
  const InputMeta& m = b.input(0);
  const DType sums = m.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const bool narrow = b.gradient_dtype(0) != sums;
  Tensor dx = Tensor::empty(m.size, sums, m.device, narrow ? Category::kWorkspace : b.category(0));
  fill_(dx, 0.0);
  write(dx, f, at, count, ids, b.grad(), true);
  if (narrow) {
    Tensor rounded = b.empty(0);
    copy_(rounded, dx);
    dx = rounded;
  }
  b.add(0, std::move(dx));
}

Tensor basic(const Tensor& x, const std::vector<IndexStep>& steps) {
  const Frame at = basic_view(frame_of(x), steps), dense = basic_view(dense_frame(x.sizes()), steps);
  Tensor y = seen(x, at);
  record(
      y, {x}, {},
      [](Backward& b, Dims size, Dims stride, int64_t offset) {
        bool accumulate;
        Tensor dx = b.target(0, accumulate);
        if (!accumulate && size != dx.sizes()) fill_(dx, 0.0);
        Tensor part = dx.alias(size, stride, offset);
        if (accumulate) {
          add_(part, b.grad());
        } else {
          copy_(part, b.grad());
        }
        part = {};
        b.add(0, std::move(dx), accumulate);
      },
      dense.size, dense.stride, dense.offset);
  return y;
}

// ---- assignment

// value as PyTorch broadcasts it: leading axes of size 1 that the place has not do not count.
Tensor fitted(const Tensor& value, const Dims& size) {
  Dims own = value.sizes(), stride = value.strides();
  while (own.rank > size.rank && own[0] == 1) {
    for (int i = 0; i + 1 < own.rank; ++i) own[i] = own[i + 1], stride[i] = stride[i + 1];
    own[own.rank - 1] = stride[own.rank - 1] = 0;
    --own.rank, --stride.rank;
  }
  bool fits = own.rank <= size.rank;
  for (int i = 1; i <= own.rank && fits; ++i) fits = own[own.rank - i] == 1 || own[own.rank - i] == size[size.rank - i];
  if (!fits)
    fail("index_put_: shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {}",
         str(value.sizes()), str(size));
  return broadcast_view(value.alias(own, stride, value.storage_offset()), size);
}

Tensor zero_like(const Tensor& x) {
  Tensor z = Tensor::empty(Dims(1), x.dtype(), x.device(), Category::kWorkspace);
  fill_(z, 0.0);
  return z;
}

Tensor dense_copy(const Tensor& g) {
  Tensor copy = Tensor::empty(g.sizes(), g.dtype(), g.device());
  copy_(copy, g);
  return copy;
}

void add_value_gradient(Backward& b, const Tensor& part) {
  const Dims& wanted = b.input(1).size;
  Dims size = wanted;  // without leading axes that the place has not
  while (size.rank > part.dim()) {
    for (int i = 0; i + 1 < size.rank; ++i) size[i] = size[i + 1];
    size[--size.rank] = 0;
  }
  Tensor d = sum_to(part, size, b.category(1), b.gradient_dtype(1));
  if (d.shares_storage(b.grad())) d = dense_copy(d);
  b.add(1, reshape(d, wanted));
}

void put_basic(Tensor& x, const std::vector<IndexStep>& steps, const Tensor& value, bool accumulate) {
  const Frame dense = basic_view(dense_frame(x.sizes()), steps);
  Tensor part = seen(x, basic_view(frame_of(x), steps));
  const Tensor from = fitted(value, part.sizes());
  begin_change("index_put_", x);
  if (accumulate) {
    add_(part, from);
  } else {
    copy_(part, from);
  }
  record(
      x, {x, value}, {},
      [](Backward& b, bool added, Dims size, Dims stride, int64_t offset) {
        NoGrad quiet;
        const Tensor g = contiguous(b.grad());
        if (b.needs(1)) add_value_gradient(b, g.alias(size, stride, g.storage_offset() + offset));
        if (added || !b.needs(0)) return b.add(0, g);
        const Tensor dx = dense_copy(g);
        Tensor gone = dx.alias(size, stride, offset);
        fill_(gone, 0.0);
        gone = {};
        b.add(0, dx);
      },
      accumulate, dense.size, dense.stride, dense.offset);
}

void put_arrays(Tensor& x, const Expression& e, const Tensor& value, bool accumulate) {
  const Frame view = basic_view(frame_of(x), e.steps);
  const Arrays a = arrays_of(e, view.size);
  const Frame at = arranged(a, view), dense = arranged(a, basic_view(dense_frame(x.sizes()), e.steps));
  if (x.dtype() != value.dtype())
    fail(
        "index_put_: requires the source and destination dtypes match, got {} for the destination and {} for the "
        "source",
        name_of(x.dtype()), name_of(value.dtype()));
  const Tensor from = fitted(value, replaced(at.size, a.front, a.count(), a.shape));
  const Tensor ids = joint_ids("index_put_", a, a.steps, x.device());
  begin_change("index_put_", x);
  write(x, at, a.front, a.count(), ids, from, accumulate);
  record(
      x, {x, value}, {ids},
      [](Backward& b, bool added, Dims size, Dims stride, int64_t offset, int front, int count) {
        NoGrad quiet;
        const Tensor g = contiguous(b.grad());
        const Frame f{size, stride, offset};
        if (b.needs(1)) {
          const Tensor part = g.alias(size, stride, g.storage_offset() + offset);
          const Tensor one = merges(f, front, count) ? part : contiguous(part);
          add_value_gradient(b, read(one, joint(frame_of(one), front, count), front, b.saved(0)));
        }
        if (added || !b.needs(0)) return b.add(0, g);
        const Tensor dx = dense_copy(g), zero = zero_like(dx);
        write(dx, f, front, count, b.saved(0), broadcast_view(zero, replaced(size, front, count, b.saved(0).sizes())),
              false);
        b.add(0, dx);
      },
      accumulate, dense.size, dense.stride, dense.offset, a.front, a.count());
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Index>& at) {
  const Expression e = parse_index(x, at);
  if (e.arrays.empty()) return basic(x, e.steps);
  const Frame view = basic_view(frame_of(x), e.steps);
  const Arrays a = arrays_of(e, view.size);
  const Frame f = arranged(a, view), dense = arranged(a, basic_view(dense_frame(x.sizes()), e.steps));
  replaced(f.size, a.front, a.count(), a.shape);  // refuses too many axes
  const bool one = merges(f, a.front, a.count());
  Dims offsets;
  for (int i = 0; i < a.count(); ++i) push_axis(offsets, f.stride[a.front + i]);
  const Tensor ids = joint_ids("index", a, one ? a.steps : offsets, x.device());
  Tensor y = read(x, one ? joint(f, a.front, a.count()) : stretch(f, a.front, a.count()), a.front, ids);
  if (!needs_grad({x})) return y;
  const Tensor saved = one ? ids : joint_ids("index", a, a.steps, x.device());
  record(
      y, {x}, {saved},
      [](Backward& b, Dims size, Dims stride, int64_t offset, int front, int count) {
        index_gradient(b, b.saved(0), {size, stride, offset}, front, count);
      },
      dense.size, dense.stride, dense.offset, a.front, a.count());
  return y;
}

Tensor& index_put_(Tensor& x, const std::vector<Index>& at, const Tensor& value, bool accumulate) {
  if (!value.defined()) fail("index_put_: an input is missing");
  const Expression e = parse_index(x, at);
  if (value.device() != x.device() && value.dim() > 0)
    fail("index_put_: devices {} and {} differ", name_of(x.device()), name_of(value.device()));
  Tensor from = value.device() == x.device() ? value : to(value, x.device());
  if (from.shares_storage(x)) {  // what is read must not be written before
    const Ref<Node> node = from.node();
    const int output = from.output_index();
    from = dense_copy(from);
    if (node) from.set_node(node, output);
  }
  if (needs_grad({from})) require_recorded_view("index_put_", x);
  if (e.arrays.empty()) {
    put_basic(x, e.steps, from, accumulate);
  } else {
    put_arrays(x, e, from, accumulate);
  }
  if (needs_grad({x})) publish(x);
  return x;
}

Tensor& index_put_(Tensor& x, const std::vector<Index>& at, double value, bool accumulate) {
  if (!x.defined()) fail("index_put_: an input is missing");
  Tensor number = Tensor::empty({}, x.dtype(), x.device(), Category::kWorkspace);
  fill_(number, value);
  return index_put_(x, at, number, accumulate);
}

Tensor nonzero(const Tensor& x) {
  if (!x.defined()) fail("nonzero: an input is missing");
  if (x.device().kind == DeviceKind::kMeta)
    fail("nonzero: the result's size depends on values, which a {} tensor has not", name_of(x.device()));
  NoGrad quiet;
  const Tensor dense = contiguous(x.detach());
  const int64_t pieces = (x.numel() + Nonzero::kPiece - 1) / Nonzero::kPiece;
  const Tensor counts = Tensor::empty(Dims(pieces), DType::kI64, x.device(), Category::kWorkspace);
  launch(&Kernels::nonzero_count, NonzeroCountArgs{dense.raw(), counts.raw()});
  const std::vector<double> n = counts.to_vector();
  const Tensor host = Tensor::empty(Dims(pieces), DType::kI64, kCpu, Category::kWorkspace);
  int64_t total = 0;
  for (int64_t p = 0; p < pieces; ++p) {
    host.data<int64_t>()[p] = total;
    total += static_cast<int64_t>(n[static_cast<size_t>(p)]);
  }
  const Tensor begins = to(host, x.device());
  const Tensor out = Tensor::empty(Dims(total, x.dim()), DType::kI64, x.device());
  launch(&Kernels::nonzero, NonzeroArgs{dense.raw(), begins.raw(), out.raw()});
  return out;
}

std::vector<Tensor> nonzero_tuple(const Tensor& x) {
  if (!x.defined()) fail("nonzero: an input is missing");
  const Tensor at = nonzero(x.dim() == 0 ? x.alias(Dims(1), Dims(1), x.storage_offset()) : x);
  std::vector<Tensor> axes;
  for (int i = 0; i < at.sizes()[1]; ++i) axes.push_back(select(at, 1, i));
  return axes;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  if (!x.defined() || !mask.defined()) fail("masked_select: an input is missing");
  if (!is_mask(mask)) fail("masked_select: expected a bool mask, not {}", name_of(mask.dtype()));
  const Dims size = broadcast_shape("masked_select", x.sizes(), mask.sizes());
  if (size.rank == 0) return reshape(index(x, {Index(mask)}), Dims(-1));
  return index(x.sizes() == size ? x : expand(x, size), {Index(broadcast_view(mask, size))});
}

}  // namespace tally
