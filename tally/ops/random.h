// Random tensors. Element i of the logical order of a draw is a function of (seed, stream, i) alone: the same on every
// device, dtype's rounding apart, for every layout and number of threads, bit for bit (random_math.h). Where no
// generator is given, draws are of the process's own (base/generator.h, manual_seed()). On meta a draw is counted and
// nothing is computed.
#pragma once

#include "tally/base/generator.h"
#include "tally/ops/creation.h"

namespace tally {

Tensor rand(const Dims& size, const TensorOptions& options = {}, Generator& generator = default_generator());
Tensor randn(const Dims& size, const TensorOptions& options = {}, Generator& generator = default_generator());
// Integers of [low, high); i64.
Tensor randint(int64_t low, int64_t high, const Dims& size, const TensorOptions& options = {},
               Generator& generator = default_generator());
inline Tensor randint(int64_t high, const Dims& size, const TensorOptions& options = {},
                      Generator& generator = default_generator()) {
  return randint(0, high, size, options, generator);
}
// The numbers 0 .. n - 1 in random order; every order is equally likely. Made on the host. i64.
Tensor randperm(int64_t n, const TensorOptions& options = {}, Generator& generator = default_generator());
Tensor normal(double mean, double std, const Dims& size, const TensorOptions& options = {},
              Generator& generator = default_generator());
// N(mean, std^2) given that it lies in [a, b], in which every value is, in every dtype.
Tensor trunc_normal(const Dims& size, double mean = 0, double std = 1, double a = -2, double b = 2,
                    const TensorOptions& options = {}, Generator& generator = default_generator());
// 1 with the probability in p (a float tensor), else 0; of p's shape and dtype.
Tensor bernoulli(const Tensor& p, Generator& generator = default_generator());

Tensor rand_like(const Tensor& x, const TensorOptions& options = {}, Generator& generator = default_generator());
Tensor randn_like(const Tensor& x, const TensorOptions& options = {}, Generator& generator = default_generator());
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& options = {},
                    Generator& generator = default_generator());

// One draw: element i is a function of these and i.
struct Draw {
  uint64_t seed, stream;
};
Draw next_draw(Generator& generator = default_generator());

// In place, not recorded; x may be any view.
void uniform_(const Tensor& x, double low, double high, Draw draw);  // [low, high)
void normal_(const Tensor& x, double mean, double std, Draw draw);
void trunc_normal_(const Tensor& x, double mean, double std, double a, double b, Draw draw);
void random_(const Tensor& x, int64_t low, int64_t high, Draw draw);  // integers of [low, high)
void bernoulli_(const Tensor& x, double p, Draw draw);
inline void uniform_(const Tensor& x, double low = 0, double high = 1, Generator& generator = default_generator()) {
  uniform_(x, low, high, next_draw(generator));
}
inline void normal_(const Tensor& x, double mean = 0, double std = 1, Generator& generator = default_generator()) {
  normal_(x, mean, std, next_draw(generator));
}
inline void trunc_normal_(const Tensor& x, double mean = 0, double std = 1, double a = -2, double b = 2,
                          Generator& generator = default_generator()) {
  trunc_normal_(x, mean, std, a, b, next_draw(generator));
}
inline void random_(const Tensor& x, int64_t low, int64_t high, Generator& generator = default_generator()) {
  random_(x, low, high, next_draw(generator));
}
inline void bernoulli_(const Tensor& x, double p = 0.5, Generator& generator = default_generator()) {
  bernoulli_(x, p, next_draw(generator));
}

}  // namespace tally
