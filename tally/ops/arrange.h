// Tensors put together and taken apart: functions that copy elements to other places, with gradients. Any dtype.
#pragma once

#include <vector>

#include "tally/core/tensor.h"

namespace tally {

// Tensors of one shape along a new axis.
Tensor stack(const std::vector<Tensor>& parts, int axis = 0);
// The order of elements reversed along each of `axes`; a copy.
Tensor flip(const Tensor& x, const Dims& axes);
// Elements moved on by `shifts` along `axes`, the last ones to the front. Without axes: in row-major order as one axis.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& axes = {});

// By `amounts`, two for an axis, (before, after), of the last axis first; a negative amount leaves elements out.
// kReflect does not repeat the edge and takes less than the axis; kReplicate repeats it; kCircular goes round.
enum class PadMode : uint8_t { kConstant, kReflect, kReplicate, kCircular };
Tensor pad(const Tensor& x, const std::vector<int64_t>& amounts, PadMode mode = PadMode::kConstant, double value = 0);
PadMode pad_mode_from_name(const std::string& name);  // "constant", "reflect", "replicate", "circular"

// x many times behind itself: repeats[i] times along axis i; x gets axes of size 1 in front where there are more
// repeats than axes, and for tile() repeats of 1 in front where there are fewer.
Tensor repeat(const Tensor& x, const Dims& repeats);
Tensor tile(const Tensor& x, const Dims& repeats);
// Each element `times` times along the axis; or ids[i] times element i of it (i32 or i64 on the CPU, not on meta).
Tensor repeat_interleave(const Tensor& x, int64_t times, int axis);
Tensor repeat_interleave(const Tensor& x, const Tensor& times, int axis);

// Vectors as the axes of a grid: result i is vector i along axis i (indexing "ij"), expanded; views.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& vectors);

}  // namespace tally
