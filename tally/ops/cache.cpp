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

void cache_write(const Tensor& keys, const Tensor& values, const Tensor& k, const Tensor& v, int64_t first,
                 const Tensor& position) {
  for (const Tensor* t : {&values, &k, &v}) require_same("cache_write", keys, *t);
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
  launch(&Kernels::cache_write, CacheWriteArgs{dense_rows(k).raw(), dense_rows(v).raw(), keys.raw(), values.raw(),
                                               position_view("cache_write", position, keys.device()), first});
}

void cache_advance(const Tensor& position, int64_t by) {
  if (!position.defined()) fail("cache_advance: the position is missing");
  launch(&Kernels::cache_advance, CacheAdvanceArgs{position_view("cache_advance", position, position.device()), by});
}

}  // namespace tally
