// matmul() and its relatives: leading axes are joined, or the batch becomes rows, or a few launches walk over what does
// not join, before anything is copied.
#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/matmul.h"
#include "tally/ops/operands.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

Dims batch_part(const Dims& d) {
  Dims b = d;
  b.rank = d.rank - 2;
  for (int i = b.rank; i < kMaxRank; ++i) b[i] = 0;
  return b;
}

Dims with_matrix(Dims batch, int64_t rows, int64_t columns) {
  if (batch.rank + 2 > kMaxRank) fail("matmul: more than {} axes", kMaxRank);
  batch[batch.rank++] = rows;
  batch[batch.rank++] = columns;
  return batch;
}

// c = a b (+ c): rank 3.
void product(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  if (is_floating(c.dtype())) return matmul_(c, a, b, accumulate);
  TALLY_ASSERT(!accumulate);
  launch(&Kernels::matmul_int, MatmulIntArgs{a.raw(), b.raw(), c.raw()});
}

// The leading axes of c, a and b, joined where they lie alike in all three; axes of size 1 are left out.
struct Batch {
  Dims size, stride[3];
};

Batch joined_batch(const Tensor* const (&all)[3]) {
  Batch j;
  for (int axis = 0; axis + 2 < all[0]->dim(); ++axis) {
    const int64_t n = all[0]->sizes()[axis];
    if (n == 1) continue;
    const int top = j.size.rank - 1;
    bool joins = top >= 0;
    for (int k = 0; k < 3 && joins; ++k) joins = j.stride[k][top] == n * all[k]->strides()[axis];
    const int into = joins ? top : j.size.rank++;
    j.size[into] = joins ? j.size[into] * n : n;
    for (int k = 0; k < 3; ++k) j.stride[k][into] = all[k]->strides()[axis];
  }
  return j;
}

// One batch axis of `n` with `stride`, the matrices of t, `offset` from its begin.
Tensor matrices(const Tensor& t, int64_t n, int64_t stride, int64_t offset) {
  const int r = t.dim();
  return t.alias(Dims(n, t.sizes()[r - 2], t.sizes()[r - 1]), Dims(stride, t.strides()[r - 2], t.strides()[r - 1]),
                 t.storage_offset() + offset);
}

// Whether the batch of `t` is rows of one matrix: every leading axis goes on where the next ends.
bool stacks(const Tensor& t) {
  for (int i = t.dim() - 3; i >= 0; --i)
    if (t.sizes()[i] != 1) {
      int next = i + 1;
      while (next < t.dim() - 1 && t.sizes()[next] == 1) ++next;
      if (next < t.dim() - 1 && t.strides()[i] != t.sizes()[next] * t.strides()[next]) return false;
    }
  return true;
}

Tensor stacked(const Tensor& t) {
  const int r = t.dim();
  int64_t rows = 1;
  for (int i = 0; i + 1 < r; ++i) rows *= t.sizes()[i];
  int64_t step = t.strides()[r - 2];
  for (int i = r - 2; i >= 0; --i)
    if (t.sizes()[i] != 1) {
      step = t.strides()[i];
      break;
    }
  return t.alias(Dims(1, rows, t.sizes()[r - 1]), Dims(0, step, t.strides()[r - 1]), t.storage_offset());
}

Tensor dense(const Tensor& x) {
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device(), Category::kWorkspace);
  copy_(y, x);
  return y;
}

// c = a b (+ c) of one batch shape, broadcast axes with strides of 0.
void multiply(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  if (c.numel() == 0) return;
  bool one_b = true;
  for (int i = 0; i + 2 < b.dim(); ++i) one_b = one_b && (b.sizes()[i] == 1 || b.strides()[i] == 0);
  if (one_b && stacks(a) && stacks(c)) return product(stacked(c), stacked(a), matrices(b, 1, 0, 0), accumulate);
  const Batch j = joined_batch({&c, &a, &b});
  if (j.size.rank <= 1) {
    const int64_t n = j.size.rank == 0 ? 1 : j.size[0];
    return product(matrices(c, n, j.stride[0][0], 0), matrices(a, n, j.stride[1][0], 0),
                   matrices(b, n, j.stride[2][0], 0), accumulate);
  }
  int inner = 0;  // the longest axis stays in the launch
  for (int i = 1; i < j.size.rank; ++i)
    if (j.size[i] >= j.size[inner]) inner = i;
  const int64_t launches = j.size.numel() / j.size[inner];
  constexpr int64_t kFew = 32, kWork = int64_t{1} << 22;  // multiply-adds that are worth a launch
  const int64_t work = c.numel() / launches * a.size(-1);
  if (launches > kFew && work < kWork && c.is_contiguous()) {
    const Tensor whole_a = a.is_contiguous() ? a : dense(a), whole_b = b.is_contiguous() ? b : dense(b);
    return multiply(c, whole_a, whole_b, accumulate);
  }
  for (int64_t i = 0; i < launches; ++i) {
    int64_t at[3] = {}, rest = i;
    for (int axis = j.size.rank - 1; axis >= 0; --axis) {
      if (axis == inner) continue;
      for (int k = 0; k < 3; ++k) at[k] += rest % j.size[axis] * j.stride[k][axis];
      rest /= j.size[axis];
    }
    const int64_t n = j.size[inner];
    product(matrices(c, n, j.stride[0][inner], at[0]), matrices(a, n, j.stride[1][inner], at[1]),
            matrices(b, n, j.stride[2][inner], at[2]), accumulate);
  }
}

Tensor flipped(const Tensor& x) { return transpose(x, -1, -2); }

// The gradient x y of an input in its broadcast shape, summed to the input's own.
void add_product(Backward& t, int input, const Tensor& x, const Tensor& y, const Dims& full) {
  const Dims wanted = t.input(input).size;
  if (full == wanted) {
    bool accumulate;
    Tensor out = t.target(input, accumulate);
    multiply(out, x, y, accumulate);
    return t.add(input, out, accumulate);
  }
  const Tensor out = Tensor::empty(full, t.gradient_dtype(input), t.input(input).device);
  multiply(out, x, y, false);
  t.add(input, sum_to(out, wanted, t.category(input), out.dtype()));
}

// The gradient of one matrix b that all rows of a are multiplied by: a^T g over all rows at once.
void add_shared(Backward& t, const Tensor& a, const Tensor& g) {
  const int64_t k = a.size(-1), n = g.size(-1);
  const Tensor rows = stacked(stacks(a) ? a : contiguous(a.detach())),
               grads = stacked(stacks(g) ? g : contiguous(g.detach()));
  bool accumulate;
  const Tensor db = t.target(1, accumulate);
  matmul_(db.alias(Dims(1, k, n), Dims(0, n, 1), db.storage_offset()), flipped(rows), grads, accumulate);
  t.add(1, db, accumulate);
}

void require_products(const char* op, const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) fail("{}: an input is missing", op);
  if (a.dtype() != b.dtype())
    fail("{}: expected m1 and m2 to have the same dtype, not {} and {}", op, name_of(a.dtype()), name_of(b.dtype()));
  if (!is_integer(a.dtype())) return require_same(op, a, b);  // float, one device
  if (a.device() != b.device()) fail("{}: devices {} and {} differ", op, name_of(a.device()), name_of(b.device()));
}

Tensor matmul_matrices(const char* op, const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  if (b.size(-2) != k)
    fail("{}: mat1 and mat2 shapes cannot be multiplied: {} and {}", op, str(a.sizes()), str(b.sizes()));
  const Dims batch = broadcast_shape(op, batch_part(a.sizes()), batch_part(b.sizes()));
  Tensor y = Tensor::empty(with_matrix(batch, m, n), a.dtype(), a.device());
  multiply(y, broadcast_view(a, with_matrix(batch, m, k)), broadcast_view(b, with_matrix(batch, k, n)), false);
  if (is_integer(a.dtype())) return y;
  record(y, {a, b}, {a, b}, [](Backward& t) {
    NoGrad quiet;
    const Tensor g = t.grad(), x = t.saved(0), w = t.saved(1);
    const Dims part = batch_part(g.sizes());
    const int64_t rows = g.size(-2), columns = g.size(-1), inner = x.size(-1);
    const Dims da = with_matrix(part, rows, inner), db = with_matrix(part, inner, columns);
    if (t.needs(0)) add_product(t, 0, g, flipped(broadcast_view(w, db)), da);
    if (!t.needs(1)) return;
    if (batch_part(w.sizes()).numel() == 1 && batch_part(x.sizes()) == part) return add_shared(t, x, g);
    add_product(t, 1, flipped(broadcast_view(x, da)), g, db);
  });
  return y;
}

}  // namespace

void matmul_batched_(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  multiply(c, a, b, accumulate);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  require_products("matmul", a, b);
  if (a.dim() == 0 || b.dim() == 0)
    fail("matmul: both arguments need to be at least 1D, but they are {} and {}", str(a.sizes()), str(b.sizes()));
  if (a.dim() == 1 && b.dim() == 1 && a.size(0) != b.size(0))
    fail("matmul: inconsistent sizes: {} and {}", str(a.sizes()), str(b.sizes()));
  Tensor y = matmul_matrices("matmul", a.dim() == 1 ? unsqueeze(a, 0) : a, b.dim() == 1 ? unsqueeze(b, 1) : b);
  if (b.dim() == 1) y = squeeze(y, -1);
  return a.dim() == 1 ? squeeze(y, b.dim() == 1 ? -1 : -2) : y;
}

Tensor mm(const Tensor& a, const Tensor& b) {
  require_products("mm", a, b);
  if (a.dim() != 2 || b.dim() != 2) fail("mm: takes two matrices, not {} and {}", str(a.sizes()), str(b.sizes()));
  return matmul_matrices("mm", a, b);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  require_products("bmm", a, b);
  if (a.dim() != 3 || b.dim() != 3 || a.sizes()[0] != b.sizes()[0] || a.sizes()[2] != b.sizes()[1])
    fail("bmm: takes (B, M, K) and (B, K, N), not {} and {}", str(a.sizes()), str(b.sizes()));
  return matmul_matrices("bmm", a, b);
}

Tensor mv(const Tensor& a, const Tensor& x) {
  require_products("mv", a, x);
  if (a.dim() != 2 || x.dim() != 1 || a.sizes()[1] != x.sizes()[0])
    fail("mv: takes a matrix (M, K) and a vector (K), not {} and {}", str(a.sizes()), str(x.sizes()));
  return matmul(a, x);
}

Tensor dot(const Tensor& a, const Tensor& b) {
  require_products("dot", a, b);
  if (a.dim() != 1 || b.dim() != 1 || a.sizes() != b.sizes())
    fail("dot: takes two vectors of one size, not {} and {}", str(a.sizes()), str(b.sizes()));
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  require_products("outer", a, b);
  if (a.dim() != 1 || b.dim() != 1) fail("outer: takes two vectors, not {} and {}", str(a.sizes()), str(b.sizes()));
  return matmul_matrices("outer", unsqueeze(a, 1), unsqueeze(b, 0));
}

Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  require_same("baddbmm", input, a);
  Tensor y = bmm(a, b);
  if (broadcast_shape("baddbmm", input.sizes(), y.sizes()) != y.sizes())
    fail("baddbmm: input {} does not broadcast to {}", str(input.sizes()), str(y.sizes()));
  if (alpha != 1) y = affine(y, static_cast<float>(alpha), 0);
  if (beta == 0) return y;  // what input holds, NaN too, does not count
  return add(beta == 1 ? input : affine(input, static_cast<float>(beta), 0), y);
}

}  // namespace tally
