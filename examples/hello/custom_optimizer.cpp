// An optimizer of one's own: SGD with momentum (Polyak 1964), v = momentum v + g, p -= rate v. Its state is in the
// category of optimizers, so that plans and ledgers count it, and has names, so that checkpoints hold it.
#include "tally/tally.h"
using namespace tally;

class Momentum : public Optimizer {
 public:
  Momentum(std::vector<Param> params, double momentum) : params_(std::move(params)), momentum_(momentum) {
    for (const Param& p : params_)
      velocity_.push_back(zeros(
          p.tensor->sizes(), {.dtype = DType::kF32, .device = p.tensor->device(), .category = Category::kOptimizer}));
  }
  void begin(double rate) override { rate_ = rate; }
  void apply(const Tensor& grad_scale) override {
    const NoGrad quiet;
    const double scale = grad_scale.item();
    for (size_t i = 0; i < params_.size(); ++i) {
      const Tensor gradient = params_[i].tensor->grad();
      if (!gradient.defined()) continue;
      Tensor& v = velocity_[i];
      mul_(v, momentum_);
      add_(v, gradient, scale);
      Tensor p = params_[i].tensor->detach();  // the same storage
      add_(p, v, -rate_);
    }
  }
  void end() override { ++steps_; }
  std::vector<Param> state() override {
    std::vector<Param> all;
    for (size_t i = 0; i < params_.size(); ++i) all.push_back({params_[i].name + ".velocity", &velocity_[i]});
    return all;
  }
  int64_t steps() const override { return steps_; }
  void set_steps(int64_t n) override { steps_ = n; }

 private:
  std::vector<Param> params_;
  std::vector<Tensor> velocity_;
  double momentum_, rate_ = 0;
  int64_t steps_ = 0;
};

int main() {
  auto model = make_model(preset("tiny"), /*seed=*/1);
  Momentum optimizer(model->params(), /*momentum=*/0.9);
  const Tensor ids = Tensor::from(std::vector<int32_t>{72, 101, 108, 108, 111, 33}, Dims(1, 6));
  const Tensor next = Tensor::from(std::vector<int32_t>{101, 108, 108, 111, 33, 10}, Dims(1, 6));
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const Tensor loss = model->loss(ids, next);
    backward(loss);
    optimizer.step(/*rate=*/0.1, clip_scale(global_norm(model->params()), 1.0));
    clear_grads(model->params());
    last = loss.item();
    if (step == 0) first = last;
  }
  std::printf("custom optimizer: loss %.4f to %.4f\n", first, last);
  return last < 0.1 * first ? 0 : 1;
}
