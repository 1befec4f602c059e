// A language model with its gradients and five clipped AdamW steps (C20), the schedule (C23), clipping (C24), the
// arithmetic of GPT-2 XL (C28).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tally/core/tape.h"
#include "tally/io/npy.h"
#include "tally/models/model.h"
#include "tally/ops/backward.h"
#include "tally/optim/optimizer.h"
#include "tally/optim/schedule.h"
#include "tests/conformance/cases.h"
#include "tests/support/support.h"

namespace tally::conformance {
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

// "logits atol 1e-4; loss 6.5584819; grad norm 3.3248288; losses 6.558482,..."
void c20(const Json& expect) {
  double loss0 = 0, norm0 = 0, losses[5] = {};
  ASSERT_EQ(
      std::sscanf(expect.as_string().c_str(), "logits atol 1e-4; loss %lf; grad norm %lf; losses %lf,%lf,%lf,%lf,%lf",
                  &loss0, &norm0, &losses[0], &losses[1], &losses[2], &losses[3], &losses[4]),
      7);
  const NpyFile file(test::shared_file("cs336/a1/oracle_lm_dev.npz"));
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
  expect_numbers(model->logits(ids).to_vector(), values(file.at("logits")), 1e-4);

  OptimConfig optim;
  optim.lr = 1e-3, optim.beta1 = 0.9, optim.beta2 = 0.95, optim.eps = 1e-8, optim.weight_decay = 0.01, optim.clip = 1;
  const auto optimizer = make_optimizer(optim, params);
  const std::vector<double> norms = values(file.at("train_grad_norms"));
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = model->loss(ids, targets);
    EXPECT_NEAR(loss.item(), losses[step], 1e-5) << "step " << step;
    backward(loss);
    const double norm = global_norm(params);
    EXPECT_NEAR(norm, norms[step], 1e-4 * norms[step]) << "step " << step;
    if (step == 0) {
      EXPECT_NEAR(loss.item(), loss0, 2e-6);
      EXPECT_NEAR(norm, norm0, 1e-5);
      for (const Param& p : params) {
        SCOPED_TRACE(p.name);
        expect_numbers(p.tensor->grad().to_vector(), values(file.at("g." + course_name(p.name))), 1e-6);
      }
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
    SCOPED_TRACE("after " + p.name);
    const std::vector<double> got = p.tensor->to_vector(), want = values(file.at("after." + course_name(p.name)));
    // Adam moves an element whose gradient is mere rounding by up to lr a step: few elements may differ so far, and the
    // mean difference is f32's.
    expect_numbers(got, want, 5e-4);
    double mean = 0;
    for (size_t i = 0; i < got.size(); ++i) mean += std::abs(got[i] - want[i]) / static_cast<double>(got.size());
    EXPECT_LE(mean, 1e-6);
  }
}

void c23(const Json& expect) {
  ScheduleConfig c;
  c.kind = "cosine", c.warmup = 7, c.min_ratio = 0.1;
  std::vector<double> got;
  for (const int64_t step : {0, 1, 7, 8, 14, 20, 21, 24}) got.push_back(schedule_factor(c, step, 21));
  expect_numbers(got, numbers(expect), 1e-7);
}

// Several tensors, one without a gradient: one norm over all, g M / (||g|| + 1e-6).
void c24(const Json& expect) {
  EXPECT_EQ(expect.as_string(), "equals g*M/(||g||+1e-6) over all tensors jointly");
  std::vector<Tensor> tensors;
  std::vector<Param> params;
  double squares = 0;
  const Dims sizes[] = {Dims(3, 5), Dims(2), Dims(7)};
  for (int t = 0; t < 3; ++t) {
    tensors.push_back(Tensor::from(std::vector<float>(static_cast<size_t>(sizes[t].numel())), sizes[t]));
    tensors.back().set_requires_grad();
    if (t == 1) continue;
    std::vector<float> g;
    for (int64_t i = 0; i < sizes[t].numel(); ++i) g.push_back(static_cast<float>((t + 1) * std::sin(i + t)));
    for (const float x : g) squares += double{x} * x;
    tensors.back().set_grad(Tensor::from(g, sizes[t]));
  }
  for (Tensor& t : tensors) params.push_back({"p" + std::to_string(params.size()), &t});
  const double norm = global_norm(params);
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-5 * norm);
  EXPECT_NEAR(clip_scale(norm, 1e-2), 1e-2 / (std::sqrt(squares) + 1e-6), 1e-5 * clip_scale(norm, 1e-2));
}

// Parameters, their bytes in f32 and the FLOPs of one sequence forward. The course counts attention's T x T pairs,
// Tally those that the causal mask leaves: 4 d T (T - 1) / 2 fewer a layer.
void c28(const Json& expect) {
  ModelConfig c;
  c.vocab_size = 50257, c.context = 1024, c.n_layers = 48, c.d_model = 1600, c.n_heads = c.n_kv_heads = 25;
  c.d_ff = 6400, c.tied = false;
  const auto model = make_model(c, 1, kMetaCpu);
  const int64_t parameters = parameter_count(model->params());
  const Tensor ids = Tensor::empty(Dims(1, c.context), DType::kI32, kMetaCpu);
  Ledger& ledger = Ledger::current();
  ledger.clear_costs();
  const NoGrad quiet;
  model->logits(ids);
  const int64_t hidden_pairs = c.n_layers * 4 * c.d_model * (c.context * (c.context - 1) / 2);
  expect_numbers({static_cast<double>(parameters), 4.0 * static_cast<double>(parameters),
                  static_cast<double>(ledger.cost().matmul_flops + hidden_pairs)},
                 numbers(expect), 0);
}

}  // namespace

std::vector<Case> model_cases() { return {{"C20", c20}, {"C23", c23}, {"C24", c24}, {"C28", c28}}; }

}  // namespace tally::conformance
