// Tensors as text, as PyTorch prints them: tensor([[1., 2.], [3., 4.]]) with aligned columns, a common format for all
// numbers, "..." in the middle of axes when there are more than `threshold` numbers, and dtype, device and
// requires_grad where they are not the usual ones. Source of the rules: torch/_tensor_str.py of PyTorch 2.
#pragma once

#include <ostream>
#include <string>

#include "tally/core/tensor.h"

namespace tally {

struct PrintOptions {
  int precision = 4;         // digits behind the point
  int64_t threshold = 1000;  // numbers above which axes are cut ...
  int64_t edgeitems = 3;     // ... to this many at each end
  int linewidth = 80;
  // What dtypes and devices are called: Python has names of its own.
  std::string (*dtype_name)(DType) = [](DType t) { return std::string(name_of(t)); };
  std::string (*device_name)(const Device&) = name_of;
};

// Only what is printed is read from a card.
std::string str(const Tensor& x, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace tally
