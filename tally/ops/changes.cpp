#include "tally/ops/changes.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/operands.h"
#include "tally/ops/overlap.h"
#include "tally/ops/where.h"

namespace tally {

void require_recordable(const char* op, const Tensor& x) {
  if (!x.requires_grad() || NoGrad::active()) return;
  if (x.node()->is_leaf())
    fail("{}: a leaf tensor that requires grad is being used in an in-place operation; use NoGrad or a copy", op);
  if (x.node()->views_leaf())
    fail(
        "{}: a view of a leaf tensor that requires grad is being used in an in-place operation; use NoGrad or change a "
        "copy",
        op);
}

void require_recorded_view(const char* op, const Tensor& x) {
  if (!x.requires_grad() && x.made_unrecorded())
    fail(
        "{}: a view was created in no_grad mode and is being modified inplace with grad mode enabled: shape {} of a "
        "tensor that requires grad; make the view with gradients on, or change it under NoGrad",
        op, str(x.sizes()));
}

namespace {

struct Span {
  int64_t first, length;
};

// The elements of a storage that both views lie in.
Span span_of(const Dims& x, const Dims& of_x, int64_t x_at, const Dims& c, const Dims& of_c, int64_t c_at) {
  int64_t x_end = x_at, c_end = c_at;
  for (int i = 0; i < x.rank; ++i) x_end += (x[i] - 1) * of_x[i];
  for (int i = 0; i < c.rank; ++i) c_end += (c[i] - 1) * of_c[i];
  const int64_t first = std::min(x_at, c_at);
  return {first, std::max(x_end, c_end) + 1 - first};
}

// Nothing of x lies outside of `changed`, whose elements lie apart.
bool within(const Tensor& x, const Tensor& changed) {
  const Dims none(1);
  const Span all =
      span_of(changed.sizes(), changed.strides(), changed.storage_offset(), none, none, changed.storage_offset());
  const Span both =
      span_of(x.sizes(), x.strides(), x.storage_offset(), changed.sizes(), changed.strides(), changed.storage_offset());
  return all.length == changed.numel() && both.first == all.first && both.length == all.length;
}

// x after the change: see Tensor::publish_change(). Neither is empty.
Tensor followed(const Tensor& x, const Tensor& changed) {
  const EnableGrad on;
  Tensor y = x.detach();
  if (within(x, changed)) {
    record(
        {y, "in-place view"}, {changed}, {},
        [](Backward& b, Dims of_c, int64_t c_at, Dims of_y, int64_t y_at) {
          add_from_memory(b, 0, of_c, c_at, of_y, y_at);
        },
        changed.strides(), changed.storage_offset(), x.strides(), x.storage_offset());
    return y;
  }
  record(
      {y, "in-place view"}, {x, changed}, {},
      [](Backward& b, Dims of_c, int64_t c_at, Dims of_y, int64_t y_at) {
        if (b.needs(1)) add_from_memory(b, 1, of_c, c_at, of_y, y_at);
        if (!b.needs(0)) return;
        const Dims& changed_size = b.input(1).size;
        const Tensor& g = b.grad();
        const Span s = span_of(g.sizes(), of_y, y_at, changed_size, of_c, c_at);
        Tensor gone = Tensor::empty(Dims(s.length), DType::kBool, g.device(), Category::kWorkspace);
        fill_(gone, 0);
        Tensor part = gone.alias(changed_size, of_c, c_at - s.first);
        fill_(part, 1);
        b.add(0, choose(gone.alias(g.sizes(), of_y, y_at - s.first), 0, g, g.dtype(), b.category(0)));
      },
      changed.strides(), changed.storage_offset(), x.strides(), x.storage_offset());
  return y;
}

}  // namespace

void publish(Tensor& x) { x.publish_change(followed); }

}  // namespace tally
