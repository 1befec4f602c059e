// Axes are of four kinds: batch (in both, kept), inner (in both, summed), rows (of a alone), columns (of b alone).
// Without inner axes the pair is an element-wise product of broadcast views. Else a is seen as (B, M, K) and b as
// (B, K, N), every kind merged to one axis: a view where its axes lie one behind the other in memory, else a copy. A
// batch that does not merge in both stays several axes, which matmul() walks over.
// a and b may name batch and inner axes in different orders: all four combinations are tried, and that with the fewest
// elements to copy, were both contiguous, is taken. So the order of every sum, and with it every bit of results and
// gradients, depends on pattern and shapes alone, never on strides.
#include "tally/ops/einsum_pair.h"

#include "tally/base/error.h"
#include "tally/ops/einops_move.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

AxisMask Labelled::mask() const {
  AxisMask m = 0;
  for (int i = 0; i < axes.rank; ++i) m |= AxisMask{1} << axes[i];
  return m;
}

int Labelled::place(int64_t axis) const {
  for (int i = 0; i < axes.rank; ++i)
    if (axes[i] == axis) return i;
  return -1;
}

namespace {

bool holds(AxisMask mask, int64_t axis) { return (mask >> axis & 1) != 0; }

int64_t size_of(const Labelled& x, int64_t axis) { return x.tensor.sizes()[x.place(axis)]; }

// x's axes in `which`, in x's order.
Dims those(const Labelled& x, AxisMask which) {
  Dims order;
  for (int i = 0; i < x.axes.rank; ++i)
    if (holds(which, x.axes[i])) order[order.rank++] = x.axes[i];
  return order;
}

// How many of the last axes of `order` would lie one behind the other if x were contiguous.
int mergeable(const Labelled& x, const Dims& order) {
  const Dims strides = contiguous_strides(x.tensor.sizes());
  int64_t next = -1;  // the stride that an axis further out must have
  for (int i = order.rank - 1; i >= 0; --i) {
    const int64_t n = size_of(x, order[i]), stride = strides[x.place(order[i])];
    if (n == 1) continue;
    if (next >= 0 && stride != next) return order.rank - 1 - i;
    next = n * stride;
  }
  return order.rank;
}
bool merges(const Labelled& x, const Dims& order) { return mergeable(x, order) == order.rank; }

double elements(const Labelled& x, const Dims& axes) {
  double n = 1;
  for (int i = 0; i < axes.rank; ++i) n *= static_cast<double>(size_of(x, axes[i]));
  return n;
}

Dims joined(const Dims& a, const Dims& b) {
  Dims all = a;
  if (a.rank + b.rank > kMaxRank)
    fail_value("einsum: a product of two operands has {} axes; at most {}", a.rank + b.rank, kMaxRank);
  for (int i = 0; i < b.rank; ++i) all[all.rank++] = b[i];
  return all;
}

// How many axes each axis of a batch of matrices is made of; apart: of the batch, one.
Dims parts_of(int batch, int rows, int columns, bool apart) {
  if (!apart) return batch == 0 ? Dims(rows, columns) : Dims(batch, rows, columns);
  Dims parts;
  for (int i = 0; i < batch; ++i) parts[parts.rank++] = 1;
  parts[parts.rank++] = rows, parts[parts.rank++] = columns;
  return parts;
}

// x with axes `first`, `second`, `third` merged to one axis each, or `first` left as it is; without it where it is
// none.
Tensor merged(const Labelled& x, const Dims& first, const Dims& second, const Dims& third, bool apart) {
  AxisMove move;
  move.split = x.tensor.sizes();
  move.parts.rank = x.axes.rank;
  for (int i = 0; i < x.axes.rank; ++i) move.parts[i] = 1;
  const Dims order = joined(joined(first, second), third);
  move.from.rank = move.full.rank = order.rank;
  for (int i = 0; i < order.rank; ++i) {
    move.from[i] = x.place(order[i]);
    move.full[i] = size_of(x, order[i]);
  }
  move.merged = parts_of(first.rank, second.rank, third.rank, apart);
  const Tensor y = move_axes(x.tensor, move);
  if (target_of(y.device()) != DeviceKind::kCuda) return y;
  // cuBLASLt takes matrices with one contiguous axis and rows apart; others would go to a slow kernel.
  const int n = y.dim();
  const auto dense = [&](int outer, int inner) {
    return (y.size(inner) == 1 || y.stride(inner) == 1) && (y.size(outer) == 1 || y.stride(outer) >= y.size(inner));
  };
  return dense(n - 2, n - 1) || dense(n - 1, n - 2) ? y : contiguous(y);
}

struct Order {
  Dims batch, rows, inner, columns;
  bool lifted_a = false, lifted_b = false;  // the batch is of b's (a's) axes alone; the other is the same for all
};

// Columns of b that cannot be one axis: the outer ones become a batch with a the same for all, where that reads a no
// more often than b and the result together have elements. Likewise rows of a.
void lift(Order& o, const Labelled& a, const Labelled& b) {
  const auto cut = [](Dims& from, Dims& into, int keep) {
    into.rank = from.rank - keep;
    for (int i = 0; i < into.rank; ++i) into[i] = from[i];
    for (int i = 0; i < keep; ++i) from[i] = from[into.rank + i];
    from.rank = keep;
  };
  if (o.batch.rank > 0) return;
  const double result = elements(a, o.rows) * elements(b, o.columns);
  Order trial = o;
  cut(trial.columns, trial.batch, mergeable(b, o.columns));
  if (trial.batch.rank > 0 && merges(b, trial.batch) && merges(b, o.inner) &&
      elements(a, a.axes) * elements(b, trial.batch) <= elements(b, b.axes) + result) {
    o = trial, o.lifted_b = true;
    return;
  }
  trial = o;
  cut(trial.rows, trial.batch, mergeable(a, o.rows));
  if (trial.batch.rank > 0 && merges(a, trial.batch) && merges(a, o.inner) &&
      elements(b, b.axes) * elements(a, trial.batch) <= elements(a, a.axes) + result)
    o = trial, o.lifted_a = true;
}

Order choose_order(const Labelled& a, const Labelled& b, AxisMask keep) {
  const AxisMask both = a.mask() & b.mask();
  Order best;
  int64_t least = -1;
  const Dims rows = those(a, a.mask() & ~both), columns = those(b, b.mask() & ~both);
  for (int way = 0; way < 4 && least != 0; ++way) {
    const Order o{those(way & 1 ? b : a, both & keep), rows, those(way & 2 ? b : a, both & ~keep), columns};
    int64_t copied = 0;
    if (!merges(a, o.batch) || !merges(a, o.rows) || !merges(a, o.inner)) copied += a.tensor.numel();
    if (!merges(b, o.batch) || !merges(b, o.inner) || !merges(b, o.columns)) copied += b.tensor.numel();
    if (least < 0 || copied < least) least = copied, best = o;
  }
  if (least > 0) lift(best, a, b);
  return best;
}

// x with its axes as in `order`, axes of size 1 for those it does not have.
Tensor spread(const Labelled& x, const Dims& order) {
  AxisMove move;
  move.split = x.tensor.sizes();
  move.parts.rank = x.axes.rank;
  for (int i = 0; i < x.axes.rank; ++i) move.parts[i] = 1;
  move.merged.rank = order.rank;
  for (int i = 0; i < order.rank; ++i) {
    const int at = x.place(order[i]);
    move.merged[i] = at >= 0;
    if (at < 0) continue;
    move.from[move.from.rank++] = at;
    move.full[move.full.rank++] = x.tensor.sizes()[at];
  }
  return move_axes(x.tensor, move);
}

// One sum for each of the batch: products of one row and one column would be all overhead. What is narrower than f32
// is multiplied in f32, as products of matrices are.
Labelled dots(const Labelled& a, const Labelled& b, AxisMask batch, const Dims& order) {
  const Dims& axes = a.axes;  // of b too
  const DType dtype = a.tensor.dtype();
  const bool narrow = is_floating(dtype) && item_size(dtype) < 4;
  const auto wide = [&](const Labelled& x) {
    return spread(narrow ? Labelled{to(x.tensor, DType::kF32), x.axes} : x, axes);
  };
  Dims summed, left;
  for (int i = 0; i < axes.rank; ++i) {
    if (holds(batch, axes[i]))
      left[left.rank++] = axes[i];
    else
      summed[summed.rank++] = i;
  }
  Tensor y = sum(mul(wide(a), wide(b)), summed);
  if (narrow) y = to(y, dtype);
  return {in_order({y, left}, order), order};
}

bool names_exactly(const Dims& order, AxisMask mask) {
  AxisMask named = 0;
  for (int i = 0; i < order.rank; ++i) named |= AxisMask{1} << order[i];
  return named == mask;
}

}  // namespace

Tensor in_order(const Labelled& x, const Dims& order) { return spread(x, order); }

Labelled contract(const Labelled& a, const Labelled& b, AxisMask keep, const Dims& order) {
  const AxisMask both = a.mask() & b.mask(), left = (a.mask() | b.mask()) & ~(both & ~keep);
  const bool ordered = names_exactly(order, left);
  if ((both & ~keep) == 0) {
    const Dims axes = ordered ? order : joined(those(a, a.mask()), those(b, b.mask() & ~both));
    return {mul(spread(a, axes), spread(b, axes)), axes};
  }
  const bool rows = (a.mask() & ~both) != 0, columns = (b.mask() & ~both) != 0;
  if (!rows && !columns) return dots(a, b, both & keep, ordered ? order : those(a, both & keep));
  // A vector is the rows, where the product of a matrix and a vector is fast. Of two matrices columns are what the
  // result ends with, so that it is contiguous.
  const bool ends_with_rows = ordered && !holds(b.mask(), order[order.rank - 1]);
  if (!columns || (rows && ends_with_rows)) return contract(b, a, keep, order);

  const Order o = choose_order(a, b, keep);
  const Dims none;
  const bool apart =
      !o.lifted_a && !o.lifted_b && (!merges(a, o.batch) || !merges(b, o.batch)) && o.batch.rank + 2 <= kMaxRank;
  const Tensor x = merged(a, o.lifted_b ? none : o.batch, o.rows, o.inner, apart);
  const Tensor y = merged(b, o.lifted_a ? none : o.batch, o.inner, o.columns, apart);
  const Tensor product = matmul(x, y);  // (B, M, N)
  const Labelled& batch_of = o.lifted_b ? b : a;

  const Dims axes = joined(joined(o.batch, o.rows), o.columns);
  const Dims wanted = ordered ? order : axes;
  AxisMove move;
  move.split.rank = axes.rank;
  for (int i = 0; i < axes.rank; ++i)
    move.split[i] = size_of(i < o.batch.rank ? batch_of : i < o.batch.rank + o.rows.rank ? a : b, axes[i]);
  move.parts = parts_of(o.batch.rank, o.rows.rank, o.columns.rank, apart);
  move.from.rank = move.full.rank = move.merged.rank = axes.rank;
  const Labelled made{product, axes};
  for (int i = 0; i < axes.rank; ++i) {
    const int at = made.place(wanted[i]);
    move.from[i] = at, move.full[i] = move.split[at], move.merged[i] = 1;
  }
  return {move_axes(product, move), wanted};
}

}  // namespace tally
