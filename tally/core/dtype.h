// Names of dtypes and devices, and the printing of shapes in errors.
#pragma once

#include <string>
#include <string_view>

#include "tally/core/view.h"

namespace tally {

const char* name_of(DType t);                  // "f32"
DType dtype_from_name(std::string_view name);  // throws Error listing the names
std::string name_of(const Device& d);          // "cpu", "meta:cpu", "cuda:0"
Device device_from_name(std::string_view name);
std::string str(const Dims& d);  // "(4, 64, 128)"

// The axis in [0, rank); negative axes count from the end. Throws Error naming `op`.
int normalize_axis(int axis, int rank, const char* op);

}  // namespace tally
