#include "tally/nn/init.h"

#include <cmath>
#include <numbers>

#include "tally/base/parallel.h"
#include "tally/base/rng.h"
#include "tally/core/tape.h"
#include "tally/nn/param.h"
#include "tally/ops/elementwise.h"

namespace tally {

int64_t parameter_count(const std::vector<Param>& params) {
  int64_t n = 0;
  for (const Param& p : params) n += p.tensor->numel();
  return n;
}

void normal_(const Tensor& x, double std, uint64_t seed, uint64_t stream) {
  if (x.device().kind == DeviceKind::kMeta) return;
  const bool here = x.device().kind == DeviceKind::kCpu && x.dtype() == DType::kF32 && x.is_contiguous();
  Tensor values = here ? x : Tensor::empty(x.sizes(), DType::kF32, kCpu, Category::kWorkspace);
  float* p = values.data<float>();
  parallel_for(values.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Random4 r = philox(seed, stream, static_cast<uint64_t>(i));
      const double u = (r.v[0] + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * (r.v[1] * 0x1p-32);
      p[i] = static_cast<float>(std * std::sqrt(-2 * std::log(u)) * std::cos(angle));
    }
  });
  if (!values.shares_storage(x)) copy_(x, values);
}

Tensor Init::make(const Dims& size) {
  Tensor t = Tensor::empty(size, dtype_, device_, Category::kParameter);
  t.set_requires_grad();
  return t;
}

Tensor Init::normal(const Dims& size, double std) {
  Tensor t = make(size);
  const uint64_t stream = static_cast<uint64_t>(RandomStream::kInit) + (next_++ << 8);
  if (values_) normal_(t, std, seed_, stream);
  return t;
}

Tensor Init::constant(const Dims& size, double value) {
  Tensor t = make(size);
  ++next_;
  NoGrad quiet;
  if (values_) fill_(t, value);
  return t;
}

}  // namespace tally
