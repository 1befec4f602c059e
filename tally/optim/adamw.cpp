// AdamW (Loshchilov and Hutter 2017): decoupled decay first, bias-corrected moments, one pass a parameter with the
// clip factor folded in. Moments are f32 whatever the parameter's dtype (f64 for f64). A parameter of bf16 is the
// rounded copy of an f32 master, which is what steps: bf16 would lose steps below its eight bits.
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
      Tensor master;
      if (t.dtype() == DType::kBF16) {
        master = Tensor::empty(t.sizes(), DType::kF32, t.device(), Category::kOptimizer);
        copy_(master, t);
      }
      masters_.push_back(std::move(master));
    }
  }

  void step(double rate, double grad_scale) override {
    PhaseGuard phase("optimizer");
    ++steps_;
    AdamwScalars s{};
    s.lr = rate, s.beta1 = config_.beta1, s.beta2 = config_.beta2, s.eps = config_.eps, s.grad_scale = grad_scale;
    s.correction1 = 1 - std::pow(config_.beta1, static_cast<double>(steps_));
    s.correction2 = 1 - std::pow(config_.beta2, static_cast<double>(steps_));
    std::vector<AdamwTensors> all;
    for (size_t i = 0; i < params_.size(); ++i) {
      const Tensor& param = *params_[i].tensor;
      const Tensor grad = param.grad();
      if (!grad.defined()) continue;
      all.push_back({param, grad, m_[i], v_[i], masters_[i], param.dim() >= 2 ? config_.weight_decay : 0});
    }
    adamw_step(all, s);
  }

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
  OptimConfig config_;
  std::vector<Param> params_;
  std::vector<Tensor> m_, v_;
  std::vector<Tensor> masters_;  // undefined where the parameter is its own
  int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, std::vector<Param> params) {
  return std::make_unique<AdamW>(config, std::move(params));
}

double global_norm(const std::vector<Param>& params) {
  PhaseGuard phase("optimizer");
  ScopeGuard scope("global_norm");
  std::vector<Tensor> grads;
  std::vector<const Param*> owners;
  for (const Param& p : params)
    if (Tensor grad = p.tensor->grad(); grad.defined()) {
      grads.push_back(std::move(grad));
      owners.push_back(&p);
    }
  double sum = 0;
  const std::vector<double> squares = sums_of_squares(grads);
  for (size_t i = 0; i < squares.size(); ++i) {
    if (!std::isfinite(squares[i])) fail_run("the gradient of {} is not finite", owners[i]->name);
    sum += squares[i];
  }
  return std::sqrt(sum);
}

double clip_scale(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

void clear_grads(const std::vector<Param>& params) {
  for (const Param& p : params) p.tensor->set_grad({});
}

}  // namespace tally
