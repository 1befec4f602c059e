#include "tally/train/step.h"

#include <cmath>
#include <utility>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/core/memory.h"
#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tally/ops/optim_step.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

// One number from the device; 0 on meta, where there is none.
double value_of(const Tensor& x) { return x.device().kind == DeviceKind::kMeta ? 0 : x.item(); }

// Forward and backward; `loss_out` gets the loss.
void micro_batch(const RunConfig& config, Model& model, const Tensor& ids, const Tensor& targets, const Tensor& number,
                 const Tensor& loss_out) {
  ForwardContext context;
  context.training = true;
  context.seed = static_cast<uint64_t>(config.train.seed);
  context.step = number;
  Tensor loss;
  {
    PhaseGuard phase("forward");
    loss = model.loss(ids, targets, context);
    copy_(loss_out, loss.detach());
  }
  Tensor share = Tensor::empty(loss.sizes(), loss.dtype(), loss.device());
  {
    PhaseGuard phase("backward");
    ScopeGuard scope("loss");
    fill_(share, 1.0 / static_cast<double>(config.train.accumulate));
  }
  backward(loss, share);
}

[[noreturn]] void stop_run(TrainState& state, const std::string& what) {
  const std::string bad = first_bad_tensor(state.params);
  clear_grads(state.params);
  fail_run("step {}: {} is not finite; first bad tensor: {}", state.step + 1, what,
           bad.empty() ? "none of the parameters and gradients (an activation overflowed)" : bad);
}

}  // namespace

int64_t batch_bytes(const RunConfig& config) {
  const int64_t parts = config.train.accumulate, loss = config.model.dtype == "f64" ? 8 : 4;
  return 2 * block_bytes(4 * parts * config.train.batch * config.context()) + block_bytes(loss * parts) +
         block_bytes(8 * parts);
}

TrainState::TrainState(const RunConfig& config, Device device) : parts_(config.train.accumulate), replay_(device) {
  config.check();
  model = make_model(config.model, static_cast<uint64_t>(config.train.seed), device);
  params = model->params();
  optimizer = make_optimizer(config.optim, params);
  const Dims size(parts_, config.train.batch, config.context());
  ids = Tensor::empty(size, DType::kI32, device, Category::kData);
  targets = Tensor::empty(size, DType::kI32, device, Category::kData);
  const bool f64 = config.model.dtype == "f64";
  losses_ = Tensor::empty({parts_}, f64 ? DType::kF64 : DType::kF32, device, Category::kOptimizer);
  totals_ = Tensor::empty({3}, DType::kF64, device, Category::kOptimizer);
  numbers_ = Tensor::empty({parts_}, DType::kI64, device, Category::kData);
  report_ = PinnedBytes(8 * (3 + parts_), device);
  if (device.kind == DeviceKind::kCuda)
    for (PinnedBytes& host : host_) host = PinnedBytes(2 * 4 * ids.numel(), device);
}

Tensor TrainState::batch_of(const Tensor& all, int64_t i) const {
  const int64_t batch = all.size(1), context = all.size(2);
  return all.alias(Dims(batch, context), Dims(context, 1), i * batch * context);
}

void TrainState::load(const std::function<void(int32_t* ids, int32_t* targets)>& write) {
  if (ids.device().kind == DeviceKind::kCpu) return write(ids.data<int32_t>(), targets.data<int32_t>());
  const int64_t n = ids.numel() / parts_;
  int32_t* const from = host(step + 1);  // the next step's batches may be in the other one
  write(from, from + n);
  copy_bytes(ids.raw().data, ids.device(), from, kCpu, 4 * n);
  copy_bytes(targets.raw().data, targets.device(), from + n, kCpu, 4 * n);
}

void TrainState::write_step(int64_t of, const FillBatch& fill, int32_t* to_ids, int32_t* to_targets) const {
  const int64_t n = ids.numel() / parts_;
  for (int64_t i = 0; i < parts_; ++i) fill(of * parts_ + i, to_ids + i * n, to_targets + i * n);
}

void TrainState::load_step(const FillBatch& fill) {
  if (ids.device().kind == DeviceKind::kMeta) return;
  if (ids.device().kind == DeviceKind::kCpu)
    return write_step(step, fill, ids.data<int32_t>(), targets.data<int32_t>());
  if (prepared_ != step) prepare(step, fill);
  prepared_ = -1;
  if (unprepared_) std::rethrow_exception(std::exchange(unprepared_, nullptr));
  const int32_t* const from = host(step);
  copy_bytes_async(ids.raw().data, ids.device(), from, kCpu, 4 * ids.numel());
  copy_bytes_async(targets.raw().data, targets.device(), from + ids.numel(), kCpu, 4 * ids.numel());
}

void TrainState::number_step() {
  auto* const from = static_cast<int64_t*>(report_.data()) + 3;
  for (int64_t i = 0; i < parts_; ++i) from[i] = step * parts_ + i;
  copy_bytes_async(numbers_.raw().data, numbers_.device(), from, kCpu, 8 * parts_);
}

void TrainState::prepare(int64_t of, const FillBatch& fill) {
  prepared_ = of;
  unprepared_ = nullptr;
  try {
    write_step(of, fill, host(of), host(of) + ids.numel());
  } catch (...) {
    unprepared_ = std::current_exception();
  }
}

namespace {

// The launches of a step.
void work_of_step(const RunConfig& config, TrainState& state, const Tensor& numbers, const Tensor& losses,
                  const Tensor& totals) {
  const auto part = [&](int64_t i) {
    micro_batch(config, *state.model, state.batch_of(state.ids, i), state.batch_of(state.targets, i),
                slice(numbers, 0, i, i + 1), losses.alias({}, {}, i));
  };
  // From the second micro-batch on all are alike: a plan runs one for the others.
  const int64_t parts = config.train.accumulate;
  const bool planned = state.ids.device().kind == DeviceKind::kMeta && parts > 3;
  for (int64_t i = 0; i < (planned ? 2 : parts); ++i) part(i);
  if (planned) {
    const Ledger::Mark before = Ledger::current().mark();
    part(2);
    Ledger::current().repeat_since(before, parts - 3);
  }
  const Tensor squares = gradient_squares(state.params);
  {
    PhaseGuard phase("optimizer");
    ScopeGuard scope("global_norm");
    step_totals(squares, losses, config.optim.clip, totals);
  }
  state.optimizer->apply(slice(totals, 0, 2, 3));
}

}  // namespace

StepResult train_step(const RunConfig& config, TrainState& state, const FillBatch& fill) {
  const Device device = state.ids.device();
  StepResult result;
  result.rate = config.learning_rate(state.step);
  state.load_step(fill);
  state.optimizer->begin(result.rate);
  state.number_step();
  state.replay_.run([&] { work_of_step(config, state, state.numbers_, state.losses_, state.totals_); },
                    launches_observed());
  if (device.kind != DeviceKind::kMeta) {
    auto* const totals = static_cast<double*>(state.report_.data());
    copy_bytes_async(totals, kCpu, state.totals_.raw().data, device, 3 * sizeof(double));
    if (device.kind == DeviceKind::kCuda && state.step + 1 < config.train.steps) state.prepare(state.step + 1, fill);
    synchronize(device);
    result.loss = totals[0], result.grad_norm = totals[1];
    if (!std::isfinite(result.loss)) stop_run(state, "the loss");
    if (!std::isfinite(result.grad_norm)) stop_run(state, "a gradient");
  }
  state.optimizer->end();
  clear_grads(state.params);
  ++state.step;
  return result;
}

double evaluate_batch(TrainState& state, int64_t rows) {
  NoGrad quiet;
  PhaseGuard phase("evaluate");
  const auto first = [&](const Tensor& all) { return slice(state.batch_of(all, 0), 0, 0, rows); };
  return value_of(state.model->loss(first(state.ids), first(state.targets)));
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
