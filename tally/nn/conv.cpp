#include "tally/nn/conv.h"

#include <cmath>

#include "tally/base/error.h"

namespace tally {

namespace {

struct Made {
  Tensor weight, bias;
};

Made made(const char* name, Init& init, int64_t in, int64_t groups, const Dims& size, bool with_bias) {
  if (groups < 1 || in % groups != 0 || size[0] % groups != 0)
    fail_value("{}: {} groups do not divide {} channels in and {} out", name, groups, in, size[0]);
  const int64_t fan = size[0] == 0 ? 0 : size.numel() / size[0];
  const double bound = fan > 0 ? 1 / std::sqrt(static_cast<double>(fan)) : 0;
  const auto within = [bound](const Tensor& x, uint64_t seed, uint64_t stream) {
    uniform_(x, -bound, bound, seed, stream);
  };
  Made m{init.filled(size, within), {}};
  if (with_bias) m.bias = init.filled(Dims(size[0]), within);
  return m;
}

int64_t share(int64_t in, int64_t groups) { return groups > 0 ? in / groups : 0; }

}  // namespace

Conv1d::Conv1d(Init& init, int64_t in, int64_t out, int64_t kernel, const How& with) : how(with) {
  Made m = made("Conv1d", init, in, how.groups, Dims(out, share(in, how.groups), kernel), how.bias);
  weight = std::move(m.weight), bias = std::move(m.bias);
}

Conv2d::Conv2d(Init& init, int64_t in, int64_t out, Pair kernel, const How& with) : how(with) {
  Made m = made("Conv2d", init, in, how.groups, Dims(out, share(in, how.groups), kernel.h, kernel.w), how.bias);
  weight = std::move(m.weight), bias = std::move(m.bias);
}

}  // namespace tally
