// AdamW (Loshchilov and Hutter 2017): decoupled decay first, bias-corrected moments, one pass a parameter with the
// clip factor folded in. Moments are f32 whatever the parameter's dtype (f64 for f64).
#include <cmath>

#include "tally/base/error.h"
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
    for (const Param& p : params_) {
      const Tensor& t = *p.tensor;
      const DType dtype = t.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
      for (std::vector<Tensor>* moments : {&m_, &v_}) {
        moments->push_back(Tensor::empty(t.sizes(), dtype, t.device(), Category::kOptimizer));
        fill_(moments->back(), 0.0);
      }
    }
  }

  void step(double rate, double grad_scale) override {
    PhaseGuard phase("optimizer");
    ++steps_;
    AdamwScalars s{};
    s.lr = rate, s.beta1 = config_.beta1, s.beta2 = config_.beta2, s.eps = config_.eps, s.grad_scale = grad_scale;
    s.correction1 = 1 - std::pow(config_.beta1, static_cast<double>(steps_));
    s.correction2 = 1 - std::pow(config_.beta2, static_cast<double>(steps_));
    for (size_t i = 0; i < params_.size(); ++i) {
      const Tensor grad = params_[i].tensor->grad();
      if (!grad.defined()) continue;
      s.weight_decay = params_[i].tensor->dim() >= 2 ? config_.weight_decay : 0;
      adamw_step(*params_[i].tensor, grad, m_[i], v_[i], s);
    }
  }

  std::vector<Param> state() override {
    std::vector<Param> all;
    for (size_t i = 0; i < params_.size(); ++i) {
      all.push_back({params_[i].name + ".m", &m_[i]});
      all.push_back({params_[i].name + ".v", &v_[i]});
    }
    return all;
  }
  int64_t steps() const override { return steps_; }
  void set_steps(int64_t n) override { steps_ = n; }

 private:
  OptimConfig config_;
  std::vector<Param> params_;
  std::vector<Tensor> m_, v_;
  int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, std::vector<Param> params) {
  return std::make_unique<AdamW>(config, std::move(params));
}

double global_norm(const std::vector<Param>& params) {
  PhaseGuard phase("optimizer");
  ScopeGuard scope("global_norm");
  double sum = 0;
  for (const Param& p : params) {
    const Tensor grad = p.tensor->grad();
    if (!grad.defined()) continue;
    const double square = sum_squares(grad);
    if (!std::isfinite(square)) fail_run("the gradient of {} is not finite", p.name);
    sum += square;
  }
  return std::sqrt(sum);
}

double clip_scale(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

void clear_grads(const std::vector<Param>& params) {
  for (const Param& p : params) p.tensor->set_grad({});
}

}  // namespace tally
