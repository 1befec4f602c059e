// The course's numbers for whole models and schedules: a language model with its gradients and five clipped AdamW steps
// (C20), SiLU (C15), RMSNorm (C17). Single ops with data files stand in ops_conformance_test.cpp; C13, C14, C16 beside
// their ops; schedule and clipping (C23, C24) in tally/optim.
#include <cmath>
#include <cstring>

#include "tally/io/npy.h"
#include "tally/models/model.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/norm.h"
#include "tally/optim/optimizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

std::vector<double> values(const NpyArray& a) {
  const auto n = static_cast<size_t>(a.shape.numel());
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) {
    if (a.descr == "<f8") {
      std::memcpy(&out[i], a.data.data() + 8 * i, 8);
    } else {
      float x;
      std::memcpy(&x, a.data.data() + 4 * i, 4);
      out[i] = x;
    }
  }
  return out;
}

Tensor ids_of(const NpyArray& a) {
  std::vector<int32_t> out(static_cast<size_t>(a.shape.numel()));
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t x;
    std::memcpy(&x, a.data.data() + 8 * i, 8);
    out[i] = static_cast<int32_t>(x);
  }
  return Tensor::from(out, a.shape);
}

// blocks.1.mlp.gate.weight -> layers.1.ffn.w1.weight
std::string course_name(std::string name) {
  const std::pair<const char*, const char*> rows[] = {{"embed.", "token_embeddings."},
                                                      {"blocks.", "layers."},
                                                      {"attn_norm", "ln1"},
                                                      {"mlp_norm", "ln2"},
                                                      {"attn.q.", "attn.q_proj."},
                                                      {"attn.k.", "attn.k_proj."},
                                                      {"attn.v.", "attn.v_proj."},
                                                      {"attn.o.", "attn.output_proj."},
                                                      {"mlp.gate", "ffn.w1"},
                                                      {"mlp.down", "ffn.w2"},
                                                      {"mlp.up", "ffn.w3"},
                                                      {"head.", "lm_head."}};
  for (const auto& [ours, theirs] : rows)
    if (const size_t at = name.find(ours); at != std::string::npos) name.replace(at, std::strlen(ours), theirs);
  return name == "norm.weight" ? "ln_final.weight" : name;
}

void expect_near_all(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                     const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << what << " element " << i;
}

TEST(Conformance, C20LanguageModelAndFiveSteps) {
  TALLY_SHARED_FILE(path, "cs336/a1/oracle_lm_dev.npz");
  const NpyFile file(path);
  ModelConfig c;
  c.vocab_size = 512, c.context = 16, c.n_layers = 3, c.d_model = 64, c.n_heads = c.n_kv_heads = 4, c.d_ff = 128;
  c.norm_eps = 1e-5, c.rope_theta = 10000, c.rope_style = "interleaved";
  const auto model = make_model(c, 1);
  const std::vector<Param> params = model->params();
  EXPECT_EQ(params.size(), 30u);
  for (const Param& p : params) {
    const NpyArray& w = file.at("w." + course_name(p.name));
    ASSERT_EQ(w.shape, p.tensor->sizes()) << p.name;
    std::memcpy(p.tensor->data<float>(), w.data.data(), w.data.size());
  }
  const Tensor ids = ids_of(file.at("input_ids")), targets = ids_of(file.at("targets"));
  expect_near_all(model->logits(ids).to_vector(), values(file.at("logits")), 1e-4, "logits");

  OptimConfig optim;
  optim.lr = 1e-3, optim.beta1 = 0.9, optim.beta2 = 0.95, optim.eps = 1e-8, optim.weight_decay = 0.01, optim.clip = 1;
  const auto optimizer = make_optimizer(optim, params);
  const double losses[] = {6.558482, 5.785844, 5.145714, 4.599733, 4.118920};
  const std::vector<double> norms = values(file.at("train_grad_norms"));
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = model->loss(ids, targets);
    EXPECT_NEAR(loss.item(), losses[step], 1e-5) << "step " << step;
    backward(loss);
    const double norm = global_norm(params);
    EXPECT_NEAR(norm, norms[step], 1e-4 * norms[step]) << "step " << step;
    if (step == 0) {
      EXPECT_NEAR(loss.item(), 6.5584819, 2e-6);
      EXPECT_NEAR(norm, 3.3248288, 1e-5);
      for (const Param& p : params)
        expect_near_all(p.tensor->grad().to_vector(), values(file.at("g." + course_name(p.name))), 1e-6, p.name);
    }
    // The course decays every parameter, Tally only matrices and tables: the gains' decay by hand.
    for (const Param& p : params)
      for (int64_t i = 0; p.tensor->dim() == 1 && i < p.tensor->numel(); ++i)
        p.tensor->data<float>()[i] *= static_cast<float>(1 - optim.lr * optim.weight_decay);
    optimizer->step(optim.lr, clip_scale(norm, optim.clip));
    clear_grads(params);
  }
  for (const Param& p : params) {
    if (p.name != "blocks.0.attn.q.weight" && p.name != "norm.weight" && p.name != "head.weight") continue;
    const std::vector<double> got = p.tensor->to_vector(), want = values(file.at("after." + course_name(p.name)));
    // Adam moves an element whose gradient is mere rounding by up to lr a step: few elements may differ so far, and the
    // mean difference is f32's.
    expect_near_all(got, want, 5e-4, "after " + p.name);
    double mean = 0;
    for (size_t i = 0; i < got.size(); ++i) mean += std::abs(got[i] - want[i]) / static_cast<double>(got.size());
    EXPECT_LE(mean, 1e-6) << p.name;
  }
}

TEST(Conformance, C15Silu) {
  const Tensor x = Tensor::from(std::vector<float>{0.2352f, 0.9259f, 0.5189f, 0.4725f, 0.9730f}, Dims(5));
  expect_near_all(silu(x).to_vector(), {0.131366, 0.663169, 0.325293, 0.291048, 0.706123}, 1e-5, "silu");
  for (double v : {-3.0, -0.5, 0.0, 0.7, 4.0})
    EXPECT_NEAR(silu(Tensor::from(std::vector<double>{v}, Dims(1))).item(), v / (1 + std::exp(-v)), 1e-14);
}

TEST(Conformance, C17RmsNorm) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, Dims(1, 4));
  const Tensor gain = Tensor::from(std::vector<float>{1, 1, 1, 1}, Dims(4));
  expect_near_all(rms_norm(x, gain, 1e-5).to_vector(), {0.3651481, 0.7302963, 1.0954444, 1.4605925}, 1e-6, "rms_norm");
}

}  // namespace
}  // namespace tally
