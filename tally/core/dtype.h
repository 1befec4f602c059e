// Names and limits of dtypes, names of devices, and the printing of shapes in errors.
#pragma once

#include <string>
#include <string_view>

#include "tally/core/view.h"

namespace tally {

const char* name_of(DType t);                  // "f32"
DType dtype_from_name(std::string_view name);  // throws Error listing the names

// Limits of a floating dtype, as torch.finfo names them. tiny: the smallest normal number. eps: from 1 to the next
// number. bits: of one number (4 for f4e2m1x2, whose byte holds two). Throws a TypeError for other dtypes.
struct FloatInfo {
  double max, min, tiny, eps, smallest_subnormal;
  int bits;
};
FloatInfo finfo(DType t);
// Limits of an integer dtype, as torch.iinfo; a TypeError for other dtypes.
struct IntInfo {
  int64_t max, min;
  int bits;
};
IntInfo iinfo(DType t);

std::string name_of(const Device& d);  // "cpu", "meta:cpu", "cuda:0"
Device device_from_name(std::string_view name);
std::string str(const Dims& d);  // "(4, 64, 128)"

// The axis in [0, rank); negative axes count from the end. Throws an IndexError naming `op`.
int normalize_axis(int axis, int rank, const char* op);

}  // namespace tally
