// Optimizers: state by parameter name, one file an optimizer.
#pragma once

#include <memory>

#include "tally/base/fields.h"
#include "tally/nn/param.h"

namespace tally {

struct OptimConfig {
  std::string kind = "adamw";
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of matrices and tables; vectors (norms, biases) are not decayed
  double clip = 1;            // largest global gradient norm; 0 is off

  void fields(Fields& f);
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update of every parameter that has a gradient, in three parts, of which a card can repeat the second by itself:
  // begin() brings the numbers of this update to the device (rate: learning rate now), apply() launches it (grad_scale,
  // one f64 on the parameters' device, multiplies each gradient; not finite: nothing changes), end() counts it.
  virtual void begin(double rate) = 0;
  virtual void apply(const Tensor& grad_scale) = 0;
  virtual void end() = 0;
  void step(double rate, double grad_scale);  // all three
  // State tensors by name ("blocks.0.attn.q.weight.m"), for checkpoints.
  virtual std::vector<Param> state() = 0;
  virtual int64_t steps() const = 0;  // updates so far
  virtual void set_steps(int64_t n) = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, std::vector<Param> params);

// Their sums of squares, (n) f64, for step_totals() (ops/optim_step.h); of no gradients one 0.
Tensor gradient_squares(const std::vector<Param>& params);
// The norm of all gradients together. Throws RunError naming the first parameter whose gradient is not finite.
double global_norm(const std::vector<Param>& params);
// min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_; 1 when max_norm is 0.
double clip_scale(double norm, double max_norm);
void clear_grads(const std::vector<Param>& params);

}  // namespace tally
