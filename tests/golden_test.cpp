// A small GPT-2 and a small Llama against PyTorch in f32: logits, loss, the gradient of every parameter and ten AdamW
// steps. tests/golden/*.safetensors come from tools/make_goldens.py (seeds and versions stand there); PyTorch itself is
// never needed here.
#include <cmath>
#include <cstring>
#include <set>

#include "tally/io/safetensors.h"
#include "tally/models/model.h"
#include "tally/ops/backward.h"
#include "tally/optim/optimizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

std::vector<double> values(const SafeTensor& t) {
  const auto n = static_cast<size_t>(t.shape.numel());
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) {
    if (t.dtype == DType::kF64) {
      std::memcpy(&out[i], t.data.data() + 8 * i, 8);
    } else {
      float x;
      std::memcpy(&x, t.data.data() + 4 * i, 4);
      out[i] = x;
    }
  }
  return out;
}

// max |error| against the largest value.
double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  if (got.size() != want.size()) return INFINITY;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::isnan(got[i]) ? INFINITY : std::max(worst, std::abs(got[i] - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  return worst / largest;
}

ModelConfig small_gpt2() {
  ModelConfig c;
  c.vocab_size = 65, c.context = 24, c.n_layers = 2, c.d_model = 32, c.n_heads = c.n_kv_heads = 4, c.d_ff = 64;
  c.norm = "layer", c.activation = "gelu_tanh", c.position = "learned", c.bias = true, c.tied = true;
  return c;
}

ModelConfig small_llama() {
  ModelConfig c;
  c.vocab_size = 65, c.context = 24, c.n_layers = 2, c.d_model = 32, c.n_heads = 4, c.n_kv_heads = 2, c.d_ff = 48;
  return c;
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    file_ = SafeTensors(fmt::format("{}/tests/golden/{}.safetensors", TALLY_SOURCE_DIR, GetParam()));
    model_ = make_model(std::string(GetParam()) == "gpt2" ? small_gpt2() : small_llama(), 1);
    params_ = model_->params();
    std::set<std::string> named;
    for (const Param& p : params_) {
      named.insert(p.name);
      const SafeTensor& t = file_.at(fmt::format("w.{}", p.name));
      ASSERT_EQ(t.shape, p.tensor->sizes()) << p.name;
      std::memcpy(p.tensor->data<float>(), t.data.data(), t.data.size());
    }
    for (const SafeTensor& t : file_.tensors()) {
      if (t.name.starts_with("w.")) {
        EXPECT_TRUE(named.contains(t.name.substr(2))) << "the model has no " << t.name;
      }
    }
  }

  // Batch i of ids or targets: (2, 24) of (10, 2, 24).
  Tensor batch(const char* name, int64_t i) const {
    const SafeTensor& t = file_.at(name);
    EXPECT_EQ(t.shape, Dims(10, 2, 24));
    std::vector<int32_t> v(2 * 24);
    std::memcpy(v.data(), t.data.data() + i * 2 * 24 * 4, v.size() * 4);
    return Tensor::from(v, Dims(2, 24));
  }
  std::vector<double> golden(const std::string& name) const { return values(file_.at(name)); }

  SafeTensors file_;
  std::unique_ptr<Model> model_;
  std::vector<Param> params_;
};

// Both sides round every product and sum to f32: some units of 2^-23 after a dozen layers of 32 to 64 terms.
constexpr double kRounding = 1e-5;

TEST_P(Golden, LogitsLossAndEveryGradient) {
  EXPECT_LE(relative_error(model_->logits(batch("ids", 0)).to_vector(), golden("logits")), kRounding);
  const Tensor loss = model_->loss(batch("ids", 0), batch("targets", 0));
  const double want = golden("loss")[0];
  EXPECT_NEAR(loss.item(), want, 1e-6 * want);
  backward(loss);
  for (const Param& p : params_) {
    ASSERT_TRUE(p.tensor->grad().defined()) << p.name;
    const std::vector<double> g = golden(fmt::format("g.{}", p.name));
    // A key's bias shifts all scores of a row alike: its true gradient is 0 and both sides hold rounding only.
    if (p.name.ends_with("attn.k.bias")) {
      for (double x : p.tensor->grad().to_vector()) EXPECT_NEAR(x, 0, 1e-7) << p.name;
      continue;
    }
    EXPECT_LE(relative_error(p.tensor->grad().to_vector(), g), kRounding) << p.name;
  }
}

TEST_P(Golden, TenAdamwSteps) {
  OptimConfig config;
  config.lr = 3e-3, config.beta1 = 0.9, config.beta2 = 0.95, config.eps = 1e-8, config.weight_decay = 0.1;
  config.clip = 1;
  const auto optimizer = make_optimizer(config, params_);
  const std::vector<double> losses = golden("losses"), norms = golden("norms");
  for (int64_t step = 0; step < 10; ++step) {
    const Tensor loss = model_->loss(batch("ids", step), batch("targets", step));
    EXPECT_NEAR(loss.item(), losses[step], 1e-5 * losses[step]) << "step " << step;
    backward(loss);
    const double norm = global_norm(params_);
    EXPECT_NEAR(norm, norms[step], 1e-4 * norms[step]) << "step " << step;
    optimizer->step(config.lr, clip_scale(norm, config.clip));
    clear_grads(params_);
  }
  EXPECT_EQ(optimizer->steps(), 10);
  for (const Param& p : params_) {
    // Adam divides by the gradient's own size, so the key biases, whose gradients are rounding, move by chance.
    if (p.name.ends_with("attn.k.bias")) continue;
    const std::vector<double> sums = golden(fmt::format("sums.{}", p.name));
    double sum = 0, squares = 0, size = 0;
    for (double x : p.tensor->to_vector()) sum += x, squares += x * x, size += std::abs(x);
    EXPECT_NEAR(sum, sums[0], 1e-4 * size) << p.name;
    EXPECT_NEAR(squares, sums[1], 1e-4 * sums[1]) << p.name;
    if (file_.find(fmt::format("after.{}", p.name))) {
      EXPECT_LE(relative_error(p.tensor->to_vector(), golden(fmt::format("after.{}", p.name))), 1e-3) << p.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::Values("gpt2", "llama"), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace tally
