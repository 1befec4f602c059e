// Initial values by counter: parameter number k of a model draws from (seed, stream kInit + k), so they are the same on
// every device and thread count. On meta only shapes are made.
#pragma once

#include "tally/core/tensor.h"

namespace tally {

class Init {
 public:
  // Without `values` tensors keep what their memory holds: for parameters that are loaded.
  Init(uint64_t seed, Device device, DType dtype = DType::kF32, bool values = true)
      : seed_(seed), device_(device), dtype_(dtype), values_(values) {}

  Tensor normal(const Dims& size, double std);  // mean 0
  Tensor constant(const Dims& size, double value);
  Device device() const { return device_; }
  DType dtype() const { return dtype_; }

 private:
  Tensor make(const Dims& size);
  uint64_t seed_;
  Device device_;
  DType dtype_;
  bool values_;
  uint64_t next_ = 0;
};

// Fills with N(0, std^2): Box-Muller on the counter generator. Not recorded.
void normal_(const Tensor& x, double std, uint64_t seed, uint64_t stream);

}  // namespace tally
