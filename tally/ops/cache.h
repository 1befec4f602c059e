// Writing into a cache of keys and values, and its position on the device (cache_kernels.h says what that is for).
// Nothing here is recorded.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/rope_kernels.h"

namespace tally {

// keys[:, first + i] = k[:, i] and values[:, first + i] = v[:, i] for k and v (B, t, H, D), keys and values (B,
// capacity, H, D) of one dtype and device, D contiguous in keys and values. `position` is undefined or an i32 of one
// element that equals `first`. Throws Error for other shapes or beyond the capacity.
void cache_write(const Tensor& keys, const Tensor& values, const Tensor& k, const Tensor& v, int64_t first,
                 const Tensor& position = {});

// cache_write() of rope(k) (rope.h) and v; returns rope(q), for q (B, t, Hq, D). On CUDA one launch.
Tensor rope_cache_write(const Tensor& keys, const Tensor& values, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& table, RopeStyle style, int64_t first, const Tensor& position = {});

void cache_advance(const Tensor& position, int64_t by);  // in place

// What kernels are given for a position: rank 0 for an undefined one. Throws Error when it is not one i32 on `device`.
View position_view(const char* op, const Tensor& position, Device device);

}  // namespace tally
