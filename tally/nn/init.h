// Initial values by counter: parameter number k of a model draws from (seed, stream kInit + k), so they are the same on
// every device and thread count. On meta only shapes are made.
#pragma once

#include <concepts>
#include <string>

#include "tally/base/generator.h"
#include "tally/core/tensor.h"

namespace tally {

class Init {
 public:
  // Without `values` tensors keep what their memory holds: for parameters that are loaded.
  Init(uint64_t seed, Device device, DType dtype = DType::kF32, bool values = true)
      : seed_(seed), device_(device), dtype_(dtype), values_(values) {}

  Tensor normal(const Dims& size, double std);  // mean 0
  Tensor constant(const Dims& size, double value);
  // fill(parameter, seed, stream) gives the values: init.filled({out, in}, [](auto&... a) { xavier_uniform_(a...); })
  template <std::invocable<const Tensor&, uint64_t, uint64_t> F>
  Tensor filled(const Dims& size, F fill) {
    const Tensor t = make(size);
    const uint64_t stream = next_stream();
    if (values_) fill(t.detach(), seed_, stream);
    return t;
  }
  Device device() const { return device_; }
  DType dtype() const { return dtype_; }

 private:
  Tensor make(const Dims& size);
  uint64_t next_stream();
  uint64_t seed_;
  Device device_;
  DType dtype_;
  bool values_;
  uint64_t next_ = 0;
};

// All fill x, of a float dtype, with draws number 0, 1 ... of (seed, stream) in x's contiguous order: the same on every
// device. Not recorded; nothing on meta. Names and meaning as in torch.nn.init.
void normal_(const Tensor& x, double std, uint64_t seed, uint64_t stream);                // N(0, std^2): Box-Muller
void uniform_(const Tensor& x, double low, double high, uint64_t seed, uint64_t stream);  // [low, high)
// N(mean, std^2) of what lies in [a, b], which are values and not multiples of std: the inverse of the distribution.
void trunc_normal_(const Tensor& x, double mean, double std, double a, double b, uint64_t seed, uint64_t stream);
// Cut at 3 standard deviations, as weights are: mean 0, std 0.98658 * std.
void trunc_normal_3_(const Tensor& x, double std, uint64_t seed, uint64_t stream);

// Inputs and outputs of one unit of a weight (out, in, ...): the axes beyond two are a receptive field.
struct Fans {
  int64_t in, out;
};
Fans fans_of(const Dims& size);  // ValueError below two axes
enum class Fan { kIn, kOut };
// What an activation does to a spread, to be made up for: linear 1, sigmoid 1, tanh 5/3, relu sqrt(2), selu 3/4,
// leaky_relu sqrt(2 / (1 + slope^2)). ValueError for another name.
double gain_of(const std::string& nonlinearity, double slope = 0.01);

// Glorot and Bengio 2010: std = gain * sqrt(2 / (in + out)), normal, or uniform within +-sqrt(3) * std.
void xavier_normal_(const Tensor& x, uint64_t seed, uint64_t stream, double gain = 1);
void xavier_uniform_(const Tensor& x, uint64_t seed, uint64_t stream, double gain = 1);
// He et al. 2015: std = gain / sqrt(fan).
void kaiming_normal_(const Tensor& x, uint64_t seed, uint64_t stream, double gain, Fan fan = Fan::kIn);
void kaiming_uniform_(const Tensor& x, uint64_t seed, uint64_t stream, double gain, Fan fan = Fan::kIn);
// The same by a draw of a generator.
inline void xavier_normal_(const Tensor& x, double gain = 1, Generator& g = default_generator()) {
  xavier_normal_(x, g.initial_seed(), g.next_stream(), gain);
}
inline void xavier_uniform_(const Tensor& x, double gain = 1, Generator& g = default_generator()) {
  xavier_uniform_(x, g.initial_seed(), g.next_stream(), gain);
}
inline void kaiming_normal_(const Tensor& x, double gain, Fan fan = Fan::kIn, Generator& g = default_generator()) {
  kaiming_normal_(x, g.initial_seed(), g.next_stream(), gain, fan);
}
inline void kaiming_uniform_(const Tensor& x, double gain, Fan fan = Fan::kIn, Generator& g = default_generator()) {
  kaiming_uniform_(x, g.initial_seed(), g.next_stream(), gain, fan);
}
// The std of a projection that adds to a residual stream of `layers` layers with two such each (GPT-2).
double residual_std(double std, int64_t layers);

}  // namespace tally
