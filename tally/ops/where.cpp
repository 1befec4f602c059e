#include "tally/ops/where.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/number.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/operands.h"

namespace tally {

namespace {

uint64_t bits_of(Scalar value, DType dtype) {
  if (is_integer(dtype)) return static_cast<uint64_t>(value.whole());  // the low bits are the number's
  return number_bits(dtype, value.real());
}

void require_mask(const char* op, const Tensor& mask, const Tensor& x) {
  if (!mask.defined() || !x.defined()) fail("{}: an input is missing", op);
  if (mask.dtype() != DType::kBool)
    fail_type("{}: the condition is {}, not bool; compare first: ne(mask, 0)", op, name_of(mask.dtype()));
  if (mask.device() != x.device())
    fail("{}: devices {} and {} differ; move one with to()", op, name_of(mask.device()), name_of(x.device()));
}

// Gradients of where: each operand's is 0 where the other was taken.
void where_backward(Backward& t, bool a_is_tensor, bool b_is_tensor) {
  int i = 0;
  for (const bool first : {true, false}) {
    if (!(first ? a_is_tensor : b_is_tensor)) continue;
    if (t.needs(i)) {
      const DType dtype = t.grad().dtype();
      const Tensor g = first ? choose(t.saved(0), t.grad(), 0, dtype, t.category(i))
                             : choose(t.saved(0), 0, t.grad(), dtype, t.category(i));
      t.add(i, sum_to(g, t.input(i).size, t.category(i), t.gradient_dtype(i)));
    }
    ++i;
  }
}

}  // namespace

Tensor choose(const Tensor& condition, const Operand& a, const Operand& b, DType dtype, Category category,
              const Tensor* into) {
  Dims size = condition.sizes();
  for (const Operand* o : {&a, &b})
    if (o->is_tensor()) size = broadcast_shape("where", size, o->tensor().sizes());
  Tensor out = into != nullptr ? into->detach() : Tensor::empty(size, dtype, condition.device(), category);
  const View mask = broadcast_raw(condition, size);
  View views[4] = {out.raw(), mask, a.is_tensor() ? broadcast_raw(a.tensor(), size) : mask,
                   b.is_tensor() ? broadcast_raw(b.tensor(), size) : mask};
  order_axes(views);
  launch(&Kernels::where,
         WhereArgs{views[1], views[2], views[3], views[0], !a.is_tensor(), !b.is_tensor(),
                   a.is_tensor() ? 0 : bits_of(a.number(), dtype), b.is_tensor() ? 0 : bits_of(b.number(), dtype)});
  return out;
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  require_mask("where", condition, a.is_tensor() ? a.tensor() : b.is_tensor() ? b.tensor() : condition);
  const DType dtype = a.is_tensor() || b.is_tensor() ? common_type("where", {a, b}) : result_type({a, b});
  const Tensor x = a.is_tensor() ? converted(a.tensor(), dtype) : Tensor();
  const Tensor y = b.is_tensor() ? converted(b.tensor(), dtype) : Tensor();
  const Operand p = a.is_tensor() ? Operand(x) : a, q = b.is_tensor() ? Operand(y) : b;
  Tensor out = choose(condition, p, q, dtype, Category::kActivation);
  if (a.is_tensor() && b.is_tensor()) {
    record(out, {x, y}, {condition}, [](Backward& t) { where_backward(t, true, true); });
  } else if (a.is_tensor()) {
    record(out, {x}, {condition}, [](Backward& t) { where_backward(t, true, false); });
  } else if (b.is_tensor()) {
    record(out, {y}, {condition}, [](Backward& t) { where_backward(t, false, true); });
  }
  return out;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value) {
  require_mask("masked_fill", mask, x);
  if (!value.is_tensor()) {
    Tensor out = choose(mask, value, x, x.dtype(), Category::kActivation);
    record(out, {x}, {mask}, [](Backward& t) { where_backward(t, false, true); });
    return out;
  }
  if (value.tensor().dim() != 0)
    fail("masked_fill: the value is a number or a tensor of rank 0, not of shape {}; use where",
         str(value.tensor().sizes()));
  return where(mask, converted(value.tensor(), x.dtype()), x);
}

namespace {

Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool upper) {
  if (!x.defined()) fail("{}: an input is missing", op);
  if (x.dim() < 2) fail("{}: needs at least 2 axes, not the shape {}", op, str(x.sizes()));
  constexpr int64_t kFar = int64_t{1} << 62;  // outside any matrix
  diagonal = std::clamp(diagonal, -kFar, kFar);
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), x.device());
  launch(&Kernels::triangle, TriangleArgs{x.raw(), y.raw(), diagonal, upper});
  record(
      y, {x}, {},
      [](Backward& t, int64_t d, bool u) {
        Tensor dx = t.empty(0);
        launch(&Kernels::triangle, TriangleArgs{t.grad().raw(), dx.raw(), d, u});
        t.add(0, dx);
      },
      diagonal, upper);
  return y;
}

}  // namespace

Tensor triu(const Tensor& x, int64_t diagonal) { return triangle("triu", x, diagonal, true); }
Tensor tril(const Tensor& x, int64_t diagonal) { return triangle("tril", x, diagonal, false); }

}  // namespace tally
