#include "tally/train/step.h"

#include <cmath>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/optim_step.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// One number from the device; 0 on meta, where there is none.
double value_of(const Tensor& x) { return x.device().kind == DeviceKind::kMeta ? 0 : x.item(); }

double micro_batch(const RunConfig& config, TrainState& state, int64_t index) {
  ForwardContext context;
  context.training = true;
  context.seed = static_cast<uint64_t>(config.train.seed);
  context.step = index;
  Tensor loss;
  {
    PhaseGuard phase("forward");
    loss = state.model->loss(state.ids, state.targets, context);
  }
  Tensor share = Tensor::empty(loss.sizes(), loss.dtype(), loss.device());
  {
    PhaseGuard phase("backward");
    ScopeGuard scope("loss");
    fill_(share, 1.0 / static_cast<double>(config.train.accumulate));
  }
  const double value = value_of(loss);
  backward(loss, share);
  return value;
}

[[noreturn]] void stop_run(TrainState& state, const std::string& what) {
  const std::string bad = first_bad_tensor(state.params);
  clear_grads(state.params);
  fail_run("step {}: {} is not finite; first bad tensor: {}", state.step + 1, what,
           bad.empty() ? "none of the parameters and gradients (an activation overflowed)" : bad);
}

double checked_norm(TrainState& state) {
  try {
    return global_norm(state.params);
  } catch (const RunError&) {
    stop_run(state, "a gradient");
  }
}

}  // namespace

TrainState::TrainState(const RunConfig& config, Device device) {
  config.check();
  model = make_model(config.model, static_cast<uint64_t>(config.train.seed), device);
  params = model->params();
  optimizer = make_optimizer(config.optim, params);
  const Dims size(config.train.batch, config.context());
  ids = Tensor::empty(size, DType::kI32, device, Category::kData);
  targets = Tensor::empty(size, DType::kI32, device, Category::kData);
}

void TrainState::load(const std::function<void(int32_t* ids, int32_t* targets)>& write) {
  if (ids.device().kind == DeviceKind::kCpu) return write(ids.data<int32_t>(), targets.data<int32_t>());
  const int64_t n = ids.numel();
  host_.resize(static_cast<size_t>(2 * n));
  write(host_.data(), host_.data() + n);
  copy_bytes(ids.raw().data, ids.device(), host_.data(), kCpu, 4 * n);
  copy_bytes(targets.raw().data, targets.device(), host_.data() + n, kCpu, 4 * n);
}

StepResult train_step(const RunConfig& config, TrainState& state, const FillBatch& fill) {
  const int64_t parts = config.train.accumulate;
  const bool real = state.ids.device().kind != DeviceKind::kMeta;
  StepResult result;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t index = state.step * parts + i;
    if (real) state.load([&](int32_t* ids, int32_t* targets) { fill(index, ids, targets); });
    result.loss += micro_batch(config, state, index) / static_cast<double>(parts);
  }
  if (!std::isfinite(result.loss)) stop_run(state, "the loss");
  result.grad_norm = checked_norm(state);
  result.rate = config.learning_rate(state.step);
  state.optimizer->step(result.rate, clip_scale(result.grad_norm, config.optim.clip));
  clear_grads(state.params);
  ++state.step;
  return result;
}

double evaluate_batch(TrainState& state, int64_t rows) {
  NoGrad quiet;
  PhaseGuard phase("evaluate");
  return value_of(state.model->loss(slice(state.ids, 0, 0, rows), slice(state.targets, 0, 0, rows)));
}

std::string first_bad_tensor(const std::vector<Param>& params) {
  for (const Param& p : params)
    if (!std::isfinite(sum_squares(*p.tensor))) return p.name;
  for (const Param& p : params)
    if (const Tensor g = p.tensor->grad(); g.defined() && !std::isfinite(sum_squares(g)))
      return "the gradient of " + p.name;
  return "";
}

}  // namespace tally
