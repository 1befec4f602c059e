#include "tally/ops/indexing.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/scatter.h"
#include "tally/ops/view.h"

namespace tally {

Index::Index(const std::vector<int64_t>& ids) : kind(Kind::kTensor) {
  tensor = Tensor::empty(Dims(static_cast<int64_t>(ids.size())), DType::kI64, kCpu, Category::kWorkspace);
  std::copy(ids.begin(), ids.end(), tensor.data<int64_t>());
}

namespace {

// A view of some storage in numbers.
struct Frame {
  Dims size, stride;
  int64_t offset = 0;
};
Frame frame_of(const Tensor& x) { return {x.sizes(), x.strides(), x.storage_offset()}; }
Frame dense_frame(const Dims& size) { return {size, contiguous_strides(size), 0}; }
Tensor seen(const Tensor& x, const Frame& f) { return x.alias(f.size, f.stride, f.offset); }

bool is_mask(const Tensor& t) { return t.dtype() == DType::kBool || t.dtype() == DType::kU8; }

void push(Dims& d, int64_t n) {
  if (d.rank == kMaxRank) fail_index("index: a result of more than {} axes", kMaxRank);
  d[d.rank++] = n;
}

// Ids for one axis of the basic view.
struct Array {
  int axis;
  Tensor ids;
};

// What an expression means for an x of some sizes: the steps of the basic view, then the arrays.
struct Step {
  Index::Kind kind;
  int64_t begin = 0, step = 1, length = 0;  // kInt: begin; kSlice: all three
};
struct Expression {
  std::vector<Step> steps;  // every axis of x, and new ones
  std::vector<Array> arrays;
};

// The basic view of a frame.
Frame stepped(const Frame& x, const std::vector<Step>& steps) {
  Frame y;
  y.offset = x.offset;
  int from = 0;
  for (const Step& s : steps) {
    if (s.kind == Index::Kind::kNone) {
      push(y.size, 1);
      push(y.stride, from < x.size.rank ? x.size[from] * x.stride[from] : 1);
      continue;
    }
    if (s.length > 0 || s.kind == Index::Kind::kInt) y.offset += s.begin * x.stride[from];
    if (s.kind == Index::Kind::kSlice) {
      push(y.size, s.length);
      push(y.stride, s.step * x.stride[from]);
    }
    ++from;
  }
  return y;
}

Step slice_step(const Slice& s, int64_t n) {
  if (s.step < 1) fail_value("index: slice step must be greater than zero, not {}", s.step);
  const auto bound = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t begin = bound(s.start.value_or(0)), end = bound(s.stop.value_or(n));
  return {Index::Kind::kSlice, begin, s.step, end > begin ? (end - begin - 1) / s.step + 1 : 0};
}

// How many axes of x an index takes.
int axes_taken(const Index& i) {
  switch (i.kind) {
    case Index::Kind::kInt:
    case Index::Kind::kSlice:
      return 1;
    case Index::Kind::kTensor:
      return is_mask(i.tensor) ? i.tensor.dim() : 1;
    default:
      return 0;
  }
}

Tensor on_device(const Tensor& t, Device device) {
  if (t.device() == device) return t.detach();
  if (t.device().kind == DeviceKind::kMeta)
    fail("index: a {} tensor of indices has no values for one on {}", name_of(t.device()), name_of(device));
  if (device.kind == DeviceKind::kMeta) return Tensor::empty(t.sizes(), t.dtype(), device, Category::kWorkspace);
  return to(t, device);
}

// A mask of the axes from `axis` on becomes an array for each.
void push_mask(Expression& e, const Tensor& mask, const Dims& size, int from, int axis, size_t place) {
  for (int i = 0; i < mask.dim(); ++i)
    if (from + i >= size.rank || mask.sizes()[i] != size[from + i])
      fail_index(
          "index: the shape of the mask {} at index {} does not match the shape of the indexed tensor {} at "
          "index {}",
          str(mask.sizes()), place, str(size), from + i);
  const Tensor places = nonzero(mask);  // (n, r)
  for (int i = 0; i < mask.dim(); ++i)
    e.arrays.push_back({axis + i, places.alias(Dims(places.size(0)), Dims(places.stride(0)),
                                               places.storage_offset() + i * places.stride(1))});
}

Expression parse(const Tensor& x, const std::vector<Index>& at) {
  if (!x.defined()) fail("index: an input is missing");
  const Dims& size = x.sizes();
  int taken = 0;
  for (const Index& i : at) {
    if (i.kind == Index::Kind::kTensor) {
      if (!i.tensor.defined()) fail_type("index: an index is missing");
      if (!is_mask(i.tensor) && i.tensor.dtype() != DType::kI64 && i.tensor.dtype() != DType::kI32)
        fail_index("index: tensors used as indices must be i32, i64 or bool tensors, not {}",
                   name_of(i.tensor.dtype()));
    }
    taken += axes_taken(i);
  }
  if (taken > size.rank)
    fail_index("index: too many indices for tensor of dimension {}: {} for shape {}", size.rank, taken, str(size));
  Expression e;
  int from = 0, axis = 0;  // of x; of the basic view
  bool rest_given = false;
  const auto keep = [&](int64_t begin, int64_t step, int64_t length) {
    e.steps.push_back({Index::Kind::kSlice, begin, step, length});
    ++from, ++axis;
  };
  const auto select = [&](int64_t i) {
    const int64_t n = size[from];
    if (i < -n || i >= n) fail_index("index: index {} is out of bounds for dimension {} with size {}", i, from, n);
    e.steps.push_back({Index::Kind::kInt, i < 0 ? i + n : i});
    ++from;
  };
  const auto new_axis = [&] {
    e.steps.push_back({Index::Kind::kNone});
    ++axis;
  };
  for (size_t place = 0; place < at.size(); ++place) {
    const Index& i = at[place];
    switch (i.kind) {
      case Index::Kind::kInt:
        select(i.integer);
        break;
      case Index::Kind::kSlice: {
        const Step s = slice_step(i.slice, size[from]);
        keep(s.begin, s.step, s.length);
        break;
      }
      case Index::Kind::kNone:
        new_axis();
        break;
      case Index::Kind::kEllipsis:
        for (int k = rest_given ? 0 : size.rank - taken; k > 0; --k) keep(0, 1, size[from]);
        rest_given = true;
        break;
      case Index::Kind::kBool: {
        const Index one(std::vector<int64_t>(static_cast<size_t>(i.integer), 0));
        e.arrays.push_back({axis, on_device(one.tensor, x.device())});
        new_axis();
        break;
      }
      case Index::Kind::kTensor: {
        const bool data = i.tensor.device().kind != DeviceKind::kMeta && x.device().kind != DeviceKind::kMeta;
        if (!is_mask(i.tensor) && i.tensor.dim() == 0 && data) {
          select(static_cast<int64_t>(i.tensor.item()));
          break;
        }
        const Tensor t = on_device(i.tensor, x.device());
        if (!is_mask(t)) {
          e.arrays.push_back({axis, t});
          keep(0, 1, size[from]);
          break;
        }
        if (t.dim() == 0) {
          const Index one(std::vector<int64_t>(t.device().kind == DeviceKind::kMeta ? 1 : t.item() != 0, 0));
          e.arrays.push_back({axis, on_device(one.tensor, x.device())});
          new_axis();
          break;
        }
        push_mask(e, t, size, from, axis, place);
        for (int k = 0; k < t.dim(); ++k) keep(0, 1, size[from]);
        break;
      }
    }
  }
  while (from < size.rank) keep(0, 1, size[from]);
  return e;
}

// ---- arrays

// The indexed axes of a frame as one, at `axis` of the others: ids * step count its elements.
struct Joint {
  Frame frame;
  int axis = 0;
  Dims step;
};

// Where the arrays stand and what shape they have together.
struct Arrays {
  std::vector<Array> all;
  Dims shape;            // of the arrays, broadcast
  int front = 0;         // axes of the result before them
  Dims size;             // of the indexed axes
  bool together = true;  // neighbours, in order
  Tensor flat;           // the joint ids for `step`
  Dims step;
};

Arrays arrays_of(const Expression& e, const Frame& x) {
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
    push(a.size, x.size[a.all[i].axis]);
    a.together = a.together && (i == 0 || a.all[i].axis == a.all[i - 1].axis + 1);
  }
  a.front = a.together ? a.all[0].axis : 0;
  return a;
}

bool indexed(const Arrays& a, int axis) {
  for (const Array& array : a.all)
    if (array.axis == axis) return true;
  return false;
}

// `middle` stands for the indexed axes.
Dims with_arrays(const Arrays& a, const Dims& size, const Dims& middle) {
  Dims out;
  for (int axis = 0; axis <= size.rank; ++axis) {
    if (out.rank == a.front && axis == (a.together ? a.all[0].axis : 0))
      for (int k = 0; k < middle.rank; ++k) push(out, middle[k]);
    if (axis < size.rank && !indexed(a, axis)) push(out, size[axis]);
  }
  return out;
}

Joint joint_of(const Arrays& a, const Frame& x) {
  Joint j;
  j.axis = a.front;
  const int count = static_cast<int>(a.all.size());
  bool merges = true;  // the indexed axes are one in memory
  for (int i = 0; i + 1 < count; ++i)
    merges = merges && x.stride[a.all[i].axis] == x.stride[a.all[i + 1].axis] * x.size[a.all[i + 1].axis];
  int64_t stride = 1, length = 1;
  if (merges) {
    stride = x.stride[a.all[count - 1].axis];
    for (int i = 0; i < count; ++i) length *= a.size[i];
  } else {
    for (int i = 0; i < count; ++i) length += (a.size[i] - 1) * x.stride[a.all[i].axis];
  }
  j.step.rank = count;
  int64_t step = 1;
  for (int i = count - 1; i >= 0; --i) {
    j.step[i] = merges ? step : x.stride[a.all[i].axis];
    step *= a.size[i];
  }
  if (step == 0) length = 0;
  j.frame = {with_arrays(a, x.size, Dims(length)), with_arrays(a, x.stride, Dims(stride)), x.offset};
  return j;
}

// The ids of all arrays as one, of a.shape.
Tensor joint_ids(const char* op, const Arrays& a, const Dims& step, Device device) {
  LinearIndexArgs args{};
  args.count = static_cast<int>(a.all.size());
  args.size = a.size, args.step = step;
  for (int i = 0; i < args.count; ++i) args.ids[i] = broadcast_to(a.all[static_cast<size_t>(i)].ids, a.shape).raw();
  const Tensor out = Tensor::empty(a.shape, DType::kI64, device);
  Tensor bad = Tensor::empty(Dims(1), DType::kI64, device, Category::kWorkspace);
  fill_(bad, static_cast<double>(out.numel()));
  args.out = out.raw(), args.bad = bad.raw();
  launch(&Kernels::linear_index, args);
  if (device.kind == DeviceKind::kMeta) return out;
  const auto first = static_cast<int64_t>(bad.item());
  if (first == out.numel()) return out;
  for (int i = 0; i < args.count; ++i) {
    const Array& array = a.all[static_cast<size_t>(i)];
    const double id = broadcast_to(array.ids, a.shape).to_vector()[static_cast<size_t>(first)];
    const int64_t n = a.size[i];
    if (id < static_cast<double>(-n) || id >= static_cast<double>(n))
      fail_index("{}: index {} is out of bounds for dimension {} with size {}", op, static_cast<int64_t>(id),
                 array.axis, n);
  }
  return out;
}

Tensor flattened(const Tensor& t) { return t.alias(Dims(t.numel()), Dims(1), t.storage_offset()); }

// Elements of `x` seen as the joint frame, in the shape of the result.
Tensor read(const Tensor& x, const Frame& joint, int axis, const Tensor& ids, Category category) {
  Dims size = joint.size, full;
  size[axis] = ids.numel();
  for (int i = 0; i < size.rank; ++i) {
    if (i != axis) push(full, size[i]);
    for (int k = 0; i == axis && k < ids.dim(); ++k) push(full, ids.sizes()[k]);
  }
  Tensor y = Tensor::empty(full, x.dtype(), x.device(), category);
  const Tensor flat = y.alias(size, contiguous_strides(size), 0);
  launch(&Kernels::gather,
         GatherArgs{seen(x, joint).raw(), spread_index(flattened(ids), size, axis).raw(), flat.raw(), axis});
  return y;
}

// The reverse: x's elements become value's, or value's are added. value has the result's shape, any strides.
void write(const Tensor& x, const Frame& joint, int axis, const Tensor& ids, const Tensor& value, bool add) {
  Dims size = joint.size;
  size[axis] = ids.numel();
  if (size.numel() == 0) return;
  bool one = true;  // a single number
  for (int i = 0; i < value.dim(); ++i) one = one && (value.sizes()[i] == 1 || value.strides()[i] == 0);
  Dims still;
  still.rank = size.rank;
  const Tensor from = one ? value.alias(size, still, value.storage_offset()) : reshape(value.detach(), size);
  scatter_views(seen(x, joint), axis, spread_index(flattened(ids), size, axis), from, add);
}

// d x of an indexing: zeros but for g at the ids.
void index_gradient(Backward& b, const Tensor& ids, const Frame& joint, int axis) {
  const InputMeta& m = b.input(0);
  const DType sums = m.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const bool narrow = b.gradient_dtype(0) != sums;
  Tensor dx = Tensor::empty(m.size, sums, m.device, narrow ? Category::kWorkspace : b.category(0));
  fill_(dx, 0.0);
  write(dx, joint, axis, ids, b.grad(), true);
  if (narrow) {
    Tensor rounded = b.empty(0);
    copy_(rounded, dx);
    dx = rounded;
  }
  b.add(0, std::move(dx));
}

Tensor basic(const Tensor& x, const std::vector<Step>& steps) {
  const Frame at = stepped(frame_of(x), steps), dense = stepped(dense_frame(x.sizes()), steps);
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
  return broadcast_to(value.alias(own, stride, value.storage_offset()), size);
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

void put_basic(Tensor& x, const std::vector<Step>& steps, const Tensor& value, bool accumulate) {
  const Frame dense = stepped(dense_frame(x.sizes()), steps);
  const Tensor part = seen(x, stepped(frame_of(x), steps)), from = fitted(value, part.sizes());
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
  const Frame at = stepped(frame_of(x), e.steps);
  const Arrays a = arrays_of(e, at);
  const Joint joint = joint_of(a, at), dense = joint_of(a, stepped(dense_frame(x.sizes()), e.steps));
  if (x.dtype() != value.dtype())
    fail(
        "index_put_: requires the source and destination dtypes match, got {} for the destination and {} for the "
        "source",
        name_of(x.dtype()), name_of(value.dtype()));
  const Tensor from = fitted(value, with_arrays(a, at.size, a.shape));
  const Tensor ids = joint_ids("index_put_", a, joint.step, x.device());
  Tensor saved;
  if (needs_grad({x, value}))
    saved = dense.step == joint.step ? ids : joint_ids("index_put_", a, dense.step, x.device());
  write(x, joint.frame, joint.axis, ids, from, accumulate);
  record(
      x, {x, value}, {saved},
      [](Backward& b, bool added, Dims size, Dims stride, int64_t offset, int axis) {
        NoGrad quiet;
        const Tensor g = contiguous(b.grad());
        Frame f{size, stride, g.storage_offset() + offset};
        if (b.needs(1)) add_value_gradient(b, read(g, f, axis, b.saved(0), Category::kActivation));
        if (added || !b.needs(0)) return b.add(0, g);
        const Tensor dx = dense_copy(g);
        f.offset = offset;
        Dims full = size;
        full[axis] = b.saved(0).numel();
        write(dx, f, axis, b.saved(0), broadcast_to(zero_like(dx), full), false);
        b.add(0, dx);
      },
      accumulate, dense.frame.size, dense.frame.stride, dense.frame.offset, dense.axis);
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Index>& at) {
  const Expression e = parse(x, at);
  if (e.arrays.empty()) return basic(x, e.steps);
  const Frame seen_as = stepped(frame_of(x), e.steps);
  const Arrays a = arrays_of(e, seen_as);
  const Joint joint = joint_of(a, seen_as), dense = joint_of(a, stepped(dense_frame(x.sizes()), e.steps));
  with_arrays(a, seen_as.size, a.shape);  // refuses too many axes
  const Tensor ids = joint_ids("index", a, joint.step, x.device());
  Tensor y = read(x, joint.frame, joint.axis, ids, Category::kActivation);
  if (!needs_grad({x})) return y;
  const Tensor saved = dense.step == joint.step ? ids : joint_ids("index", a, dense.step, x.device());
  record(
      y, {x}, {saved},
      [](Backward& b, Dims size, Dims stride, int64_t offset, int axis) {
        index_gradient(b, b.saved(0), {size, stride, offset}, axis);
      },
      dense.frame.size, dense.frame.stride, dense.frame.offset, dense.axis);
  return y;
}

Tensor& index_put_(Tensor& x, const std::vector<Index>& at, const Tensor& value, bool accumulate) {
  if (!value.defined()) fail("index_put_: an input is missing");
  const Expression e = parse(x, at);
  if (value.device() != x.device() && value.dim() > 0)
    fail("index_put_: devices {} and {} differ", name_of(x.device()), name_of(value.device()));
  begin_change("index_put_", x);
  Tensor from = value.device() == x.device() ? value : to(value, x.device());
  if (from.shares_storage(x)) {  // what is read must not be written before
    const Ref<Node> node = from.node();
    const int output = from.output_index();
    from = dense_copy(from);
    if (node) from.set_node(node, output);
  }
  if (e.arrays.empty()) {
    put_basic(x, e.steps, from, accumulate);
  } else {
    put_arrays(x, e, from, accumulate);
  }
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

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  if (!x.defined() || !mask.defined()) fail("masked_select: an input is missing");
  if (!is_mask(mask)) fail("masked_select: expected a bool mask, not {}", name_of(mask.dtype()));
  const Dims size = broadcast_shape("masked_select", x.sizes(), mask.sizes());
  if (size.rank == 0) return reshape(index(x, {Index(mask)}), Dims(-1));
  return index(x.sizes() == size ? x : expand(x, size), {Index(broadcast_to(mask, size))});
}

}  // namespace tally
