// AdamW (Loshchilov and Hutter 2017): decoupled decay first, bias-corrected moments, one pass a parameter with the
// clip factor folded in. Moments are f32 whatever the parameter's dtype (f64 for f64). A parameter of bf16 is the
// rounded copy of an f32 master, which is what steps: bf16 would lose steps below its eight bits.
#include <array>
#include <cmath>
#include <cstring>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/optim_step.h"
#include "tally/optim/optimizer.h"

namespace tally {

void OptimConfig::fields(Fields& f) {
  f("kind", kind, "optimizer", {"adamw"});
  f("lr", lr, "peak learning rate", 0, 1e3);
  f("beta1", beta1, "decay of the first moment", 0, 0.9999999);
  f("beta2", beta2, "decay of the second moment", 0, 0.9999999);
  f("eps", eps, "added to the root of the second moment", 0, 1);
  f("weight_decay", weight_decay, "decoupled decay of matrices and tables", 0, 1e3);
  f("clip", clip, "largest global gradient norm; 0 is off", 0, 1e9);
}

namespace {

class AdamW : public Optimizer {
 public:
  AdamW(const OptimConfig& config, std::vector<Param> params) : config_(config), params_(std::move(params)) {
    if (params_.empty()) return;
    const Device device = params_[0].tensor->device();
    rates_ = Tensor::empty({3}, DType::kF64, device, Category::kOptimizer);
    host_ = PinnedBytes(sizeof(std::array<double, 3>), device);
    for (const Param& p : params_) {
      const Tensor& t = *p.tensor;
      const DType dtype = t.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
      for (std::vector<Tensor>* moments : {&m_, &v_}) {
        moments->push_back(Tensor::empty(t.sizes(), dtype, t.device(), Category::kOptimizer));
        fill_(moments->back(), 0.0);
      }
      Tensor master;
      if (t.dtype() == DType::kBF16) {
        master = Tensor::empty(t.sizes(), DType::kF32, t.device(), Category::kOptimizer);
        copy_(master, t);
      }
      masters_.push_back(std::move(master));
    }
  }

  void begin(double rate) override {
    if (params_.empty()) return;
    AdamwScalars s = scalars();
    const auto t = static_cast<double>(steps_ + 1);
    s.lr = rate;
    s.correction1 = 1 - std::pow(config_.beta1, t), s.correction2 = 1 - std::pow(config_.beta2, t);
    const std::array<double, 3> rates = s.rates();
    std::memcpy(host_.data(), rates.data(), sizeof rates);  // the copy of the update before is done: it was waited for
    copy_bytes_async(rates_.raw().data, rates_.device(), host_.data(), kCpu, sizeof rates);
  }

  void apply(const Tensor& grad_scale) override {
    PhaseGuard phase("optimizer");
    std::vector<AdamwTensors> all;
    for (size_t i = 0; i < params_.size(); ++i) {
      const Tensor& param = *params_[i].tensor;
      const Tensor grad = param.grad();
      if (!grad.defined()) continue;
      all.push_back({param, grad, m_[i], v_[i], masters_[i], param.dim() >= 2 ? config_.weight_decay : 0});
    }
    adamw_step(all, scalars(), rates_, grad_scale);
  }
  void end() override { ++steps_; }

  std::vector<Param> state() override {
    std::vector<Param> all;
    for (size_t i = 0; i < params_.size(); ++i) {
      all.push_back({params_[i].name + ".m", &m_[i]});
      all.push_back({params_[i].name + ".v", &v_[i]});
      if (masters_[i].defined()) all.push_back({params_[i].name + ".master", &masters_[i]});
    }
    return all;
  }
  int64_t steps() const override { return steps_; }
  void set_steps(int64_t n) override { steps_ = n; }

 private:
  AdamwScalars scalars() const {
    AdamwScalars s{};
    s.beta1 = config_.beta1, s.beta2 = config_.beta2, s.eps = config_.eps;
    return s;
  }

  OptimConfig config_;
  std::vector<Param> params_;
  std::vector<Tensor> m_, v_;
  std::vector<Tensor> masters_;  // undefined where the parameter is its own
  Tensor rates_;                 // of the update under way, as AdamwArgs::rates
  PinnedBytes host_;             // what is copied there
  int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, std::vector<Param> params) {
  return std::make_unique<AdamW>(config, std::move(params));
}

void Optimizer::step(double rate, double grad_scale) {
  const std::vector<Param> all = state();
  if (all.empty()) return;
  const Tensor scale = Tensor::empty({1}, DType::kF64, all[0].tensor->device(), Category::kWorkspace);
  begin(rate);
  copy_bytes(scale.raw().data, scale.device(), &grad_scale, kCpu, sizeof grad_scale);
  apply(scale);
  end();
}

Tensor gradient_squares(const std::vector<Param>& params) {
  PhaseGuard phase("optimizer");
  ScopeGuard scope("global_norm");
  std::vector<Tensor> grads;
  for (const Param& p : params)
    if (Tensor grad = p.tensor->grad(); grad.defined()) grads.push_back(std::move(grad));
  if (grads.empty()) {
    TALLY_ASSERT(!params.empty());
    Tensor none = Tensor::empty({1}, DType::kF64, params[0].tensor->device(), Category::kWorkspace);
    fill_(none, 0.0);
    return none;
  }
  return squares_of(grads);
}

double global_norm(const std::vector<Param>& params) {
  const Tensor squares = gradient_squares(params);
  if (squares.device().kind == DeviceKind::kMeta) return 0;
  double sum = 0;
  for (const double part : squares.to_vector()) sum += part;
  if (std::isfinite(sum)) return std::sqrt(sum);
  for (const Param& p : params)
    if (const Tensor grad = p.tensor->grad(); grad.defined() && !std::isfinite(sum_squares(grad)))
      fail_run("the gradient of {} is not finite", p.name);
  fail_run("the norm of the gradients is beyond any number");
}

double clip_scale(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

void clear_grads(const std::vector<Param>& params) {
  for (const Param& p : params) p.tensor->set_grad({});
}

}  // namespace tally
