// Rotary position embedding: a pair of a head's numbers is turned by an angle that grows with the position (Su et al.
// 2021). The table is made once a model; rope() has a gradient for x.
#pragma once

#include "tally/core/tensor.h"
#include "tally/ops/rope_kernels.h"

namespace tally {

// Table (positions, head_dim / 2, 2) f32 of (cos, sin) of position * theta^(-2i / head_dim), row 0 for first_position.
// Angles are computed in f64, so that position 131071 is as exact as position 1. Throws Error for an odd head_dim.
Tensor rope_table(int64_t positions, int64_t head_dim, double theta, int64_t first_position = 0, Device device = kCpu);

// x (B, T, H, D), any strides; position t of x uses row first_row + t of the table. `position`: first_row on the device
// (ops/cache.h), where there is one.
Tensor rope(const Tensor& x, const Tensor& table, int64_t first_row, RopeStyle style, const Tensor& position = {});

// The rows of the table for the positions of x from first_row on; not recorded. Throws Error where they do not fit.
Tensor rope_rows(const Tensor& x, const Tensor& table, int64_t first_row);

// x itself, or a copy when its last axis is not contiguous. Not recorded.
Tensor dense_rows(const Tensor& x);

}  // namespace tally
