#include "tally/ops/cache.h"

#include "tally/base/error.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/rope.h"

namespace tally {

View position_view(const char* op, const Tensor& position, Device device) {
  if (!position.defined()) return {};
  if (position.dtype() != DType::kI32 || position.sizes() != Dims(1))
    fail("{}: a position is an i32 of shape (1,), not {} of shape {}", op, name_of(position.dtype()),
         str(position.sizes()));
  if (position.device() != device)
    fail("{}: the position is on {}, the rest on {}", op, name_of(position.device()), name_of(device));
  return position.raw();
}

namespace {

CacheWriteArgs write_args(const Tensor& keys, const Tensor& values, const Tensor& k, const Tensor& v, int64_t first,
                          const Tensor& position) {
  for (const Tensor* t : {&values, &k, &v}) require_same("cache_write", keys, *t);
  refuse_f16("cache_write", keys);
  for (const Tensor* t : {&keys, &k})
    if (t->dim() != 4) fail("cache_write: shape {} is not (B, T, H, D)", str(t->sizes()));
  if (keys.sizes() != values.sizes() || k.sizes() != v.sizes())
    fail("cache_write: shapes {} and {} of the cache, or {} and {} of k and v, differ", str(keys.sizes()),
         str(values.sizes()), str(k.sizes()), str(v.sizes()));
  for (const int axis : {0, 2, 3})
    if (keys.size(axis) != k.size(axis))
      fail("cache_write: k {} does not fit into a cache of {}", str(k.sizes()), str(keys.sizes()));
  if (first < 0 || first > keys.size(1) || k.size(1) > keys.size(1) - first)
    fail("cache_write: {} positions from {} on are beyond the capacity of {}", k.size(1), first, keys.size(1));
  if (keys.size(3) > 1 && (keys.stride(3) != 1 || values.stride(3) != 1))
    fail("cache_write: the cache's last axis is not contiguous");
  return {k.raw(), v.raw(), keys.raw(), values.raw(), position_view("cache_write", position, keys.device()), first};
}

}  // namespace

void cache_write(const Tensor& keys, const Tensor& values, const Tensor& k, const Tensor& v, int64_t first,
                 const Tensor& position) {
  const Tensor dense_k = dense_rows(k), dense_v = dense_rows(v);
  bump_version(keys), bump_version(values);
  launch(&Kernels::cache_write, write_args(keys, values, dense_k, dense_v, first, position));
}

Tensor rope_cache_write(const Tensor& keys, const Tensor& values, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& table, RopeStyle style, int64_t first, const Tensor& position) {
  if (target_of(q.device()) != DeviceKind::kCuda || q.dtype() == DType::kF64) {
    Tensor turned = rope(q, table, first, style, position);
    cache_write(keys, values, rope(k, table, first, style, position), v, first, position);
    return turned;
  }
  require_same("cache_write", keys, q);
  const Tensor rows = rope_rows(k, table, first);
  if (q.dim() != 4 || k.dim() != 4 || q.size(0) != k.size(0) || q.size(1) != k.size(1) || q.size(3) != k.size(3))
    fail("cache_write: q {} does not fit k {}", str(q.sizes()), str(k.sizes()));
  const Tensor dense_q = dense_rows(q), dense_k = dense_rows(k), dense_v = dense_rows(v);
  Tensor turned = Tensor::empty(q.sizes(), q.dtype(), q.device());
  CacheWriteArgs args = write_args(keys, values, dense_k, dense_v, first, position);
  args.q = dense_q.raw(), args.turned = turned.raw(), args.table = rows.raw(), args.style = style;
  bump_version(keys), bump_version(values);
  launch(&Kernels::cache_write, args);
  return turned;
}

void cache_advance(const Tensor& position, int64_t by) {
  if (!position.defined()) fail("cache_advance: the position is missing");
  bump_version(position);
  launch(&Kernels::cache_advance, CacheAdvanceArgs{position_view("cache_advance", position, position.device()), by});
}

}  // namespace tally
