// The decoder: names, refusals, causality, dropout, bf16, gradients by central differences in f64 for every kind of
// block, and the plan on meta against a run on the CPU.
#include <cmath>
#include <set>

#include "tally/core/tape.h"
#include "tally/models/decoder.h"
#include "tally/ops/backward.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/launch.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using V = std::vector<double>;

Tensor ids(int64_t batch, int64_t t, int64_t vocab, int shift = 0) {
  std::vector<int32_t> v(static_cast<size_t>(batch * t));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int32_t>((i * 7 + i * i * 3 + shift) % vocab);
  return Tensor::from(v, Dims(batch, t));
}

ModelConfig small() {
  ModelConfig c;
  c.vocab_size = 11, c.context = 8, c.d_model = 8, c.n_heads = 2, c.n_kv_heads = 1, c.d_ff = 12;
  return c;
}

ModelConfig small_gpt2() {
  ModelConfig c = small();
  c.norm = "layer", c.activation = "gelu_tanh", c.position = "learned", c.bias = true, c.tied = true, c.n_kv_heads = 2;
  return c;
}

TEST(Decoder, ParameterNames) {
  ModelConfig c = small();
  c.n_layers = 1;
  std::vector<std::string> names;
  for (const Param& p : make_model(c, 1, kMetaCpu)->params()) names.push_back(p.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"embed.weight", "blocks.0.attn_norm.weight", "blocks.0.attn.q.weight",
                                      "blocks.0.attn.k.weight", "blocks.0.attn.v.weight", "blocks.0.attn.o.weight",
                                      "blocks.0.mlp_norm.weight", "blocks.0.mlp.gate.weight", "blocks.0.mlp.up.weight",
                                      "blocks.0.mlp.down.weight", "norm.weight", "head.weight"}));
  std::set<std::string> gpt2;
  for (const Param& p : make_model(small_gpt2(), 1, kMetaCpu)->params()) gpt2.insert(p.name);
  EXPECT_EQ(gpt2.size(), 36u);
  for (const char* name : {"position.weight", "blocks.1.attn.q.bias", "blocks.1.mlp_norm.bias", "norm.bias"})
    EXPECT_TRUE(gpt2.contains(name)) << name;
  EXPECT_FALSE(gpt2.contains("head.weight"));
}

TEST(Decoder, InitialValues) {
  ModelConfig c = small_gpt2();
  c.d_model = 64, c.d_ff = 256, c.vocab_size = 500, c.n_layers = 8;
  const auto model = make_model(c, 3);
  for (const Param& p : model->params()) {
    double square = 0;
    const V v = p.tensor->to_vector();
    for (double x : v) square += x * x / static_cast<double>(v.size());
    const bool out = p.name.ends_with("attn.o.weight") || p.name.ends_with("mlp.down.weight");
    if (p.name.ends_with(".bias"))
      EXPECT_EQ(square, 0) << p.name;
    else if (p.tensor->dim() == 1)
      EXPECT_EQ(square, 1) << p.name;
    else
      EXPECT_NEAR(std::sqrt(square) / (out ? 0.02 / 4 : 0.02), 1, 0.08) << p.name;
  }
  // An untrained model knows nothing: its loss is near ln V.
  EXPECT_NEAR(model->loss(ids(2, 8, 500), ids(2, 8, 500, 1)).item(), std::log(500.0), 0.1);
  EXPECT_EQ(make_model(c, 3)->params()[0].tensor->to_vector(), model->params()[0].tensor->to_vector());
  EXPECT_NE(make_model(c, 4)->params()[0].tensor->to_vector(), model->params()[0].tensor->to_vector());
}

TEST(Decoder, Refusals) {
  const auto model = make_model(small(), 1);
  test::expect_error([&] { model->logits(ids(1, 9, 11)); }, "9 positions are beyond the model's context of 8");
  test::expect_error([&] { model->logits(Tensor::from(std::vector<int32_t>{1}, Dims(1))); }, "(batch, time), not (1,)");
  test::expect_error([&] { model->logits(Tensor::from(std::vector<int32_t>{1, 11}, Dims(1, 2))); }, "11");
  test::expect_error([&] { model->logits(Tensor::from(std::vector<int32_t>{1, -1}, Dims(1, 2))); }, "-1");
  test::expect_error([&] { model->logits(Tensor::from(std::vector<float>{1, 2}, Dims(1, 2))); }, "f32");
  test::expect_error([&] { model->loss(ids(1, 4, 11), ids(1, 3, 11)); }, "(1, 3)");
  const auto cache = model->new_cache(1, 8);
  ForwardContext context;
  context.cache = cache.get();
  NoGrad quiet;
  model->logits(ids(1, 6, 11), context);
  test::expect_error([&] { model->logits(ids(1, 3, 11), context); }, "9 positions are beyond the model's context of 8");
  EXPECT_EQ(cache->length(), 6);
}

// Changing a token changes no logit before it, and every logit from it on.
TEST(Decoder, IsCausal) {
  for (const ModelConfig& c : {small(), small_gpt2()}) {
    const auto model = make_model(c, 1);
    const Tensor a = ids(1, 8, 11), b = ids(1, 8, 11);
    b.data<int32_t>()[5] = (b.data<int32_t>()[5] + 1) % 11;
    const V x = model->logits(a).to_vector(), y = model->logits(b).to_vector();
    EXPECT_TRUE(std::equal(x.begin(), x.begin() + 5 * 11, y.begin()));
    for (int t = 5; t < 8; ++t)
      EXPECT_FALSE(std::equal(x.begin() + t * 11, x.begin() + (t + 1) * 11, y.begin() + t * 11));
  }
}

// The last logits after two tokens in either order: with positions they differ, in one layer without they cannot.
TEST(Decoder, PositionsMatterUnlessThereAreNone) {
  for (const char* position : {"rope", "learned"}) {
    ModelConfig c = small();
    c.position = position;
    const auto model = make_model(c, 1);
    const V x = model->logits(Tensor::from(std::vector<int32_t>{1, 2, 3}, Dims(1, 3)), {}).to_vector();
    const V y = model->logits(Tensor::from(std::vector<int32_t>{2, 1, 3}, Dims(1, 3)), {}).to_vector();
    double difference = 0, largest = 0;
    for (size_t i = 22; i < 33; ++i)
      difference = std::max(difference, std::abs(x[i] - y[i])), largest = std::max(largest, std::abs(x[i]));
    EXPECT_GT(difference, 1e-5 * largest) << position;
  }
  ModelConfig c = small();
  c.position = "none", c.n_layers = 1;
  const auto model = make_model(c, 1);
  const V x = model->logits(Tensor::from(std::vector<int32_t>{1, 2, 3}, Dims(1, 3)), {}).to_vector();
  const V y = model->logits(Tensor::from(std::vector<int32_t>{2, 1, 3}, Dims(1, 3)), {}).to_vector();
  for (size_t i = 22; i < 33; ++i) EXPECT_NEAR(x[i], y[i], 1e-6);
}

Tensor step_number(int64_t step) {
  Tensor t = Tensor::empty({1}, DType::kI64);
  *t.data<int64_t>() = step;
  return t;
}

TEST(Decoder, DropoutOnlyInTrainingAndByStepAndSeed) {
  ModelConfig c = small();
  c.dropout = 0.5;
  const auto model = make_model(c, 1), plain = make_model(small(), 1);
  ForwardContext train;
  train.training = true, train.seed = 5;
  const Tensor x = ids(2, 8, 11);
  EXPECT_EQ(model->logits(x).to_vector(), plain->logits(x).to_vector());
  const V first = model->logits(x, train).to_vector();
  EXPECT_NE(first, plain->logits(x).to_vector());
  EXPECT_EQ(first, model->logits(x, train).to_vector());
  train.step = step_number(1);
  const V second = model->logits(x, train).to_vector();
  EXPECT_NE(first, second);
  train.step = step_number(0);
  EXPECT_EQ(first, model->logits(x, train).to_vector());
  train.seed = 6;
  EXPECT_NE(first, model->logits(x, train).to_vector());
}

// Every dropout of every step draws from a stream of its own.
TEST(Decoder, NoTwoDropoutsShareAStream) {
  struct Streams : LaunchObserver {
    std::vector<std::pair<uint64_t, uint64_t>> all;  // seed, stream
    void before(const char* name, const void* args) override {
      if (std::string(name) != DropoutArgs::name) return;
      const auto& a = *static_cast<const DropoutArgs*>(args);
      all.emplace_back(a.seed, a.stream + static_cast<uint64_t>(*a.step.ptr<int64_t>()) * kDropoutSteps);
    }
    void after(const char*, const void*, const Cost&) override {}
  } streams;
  ModelConfig c = small();
  c.dropout = 0.5, c.n_layers = 3;
  const auto model = make_model(c, 1);
  ForwardContext train;
  train.training = true, train.seed = 5;
  NoGrad quiet;
  LaunchObserver* const before = set_launch_observer(&streams);
  for (int64_t step = 0; step < 4; ++step) {
    train.step = step_number(step);
    model->logits(ids(1, 8, 11), train);
  }
  set_launch_observer(before);
  EXPECT_EQ(streams.all.size(), 4u * (1 + 2 * 3));
  EXPECT_EQ((std::set<std::pair<uint64_t, uint64_t>>(streams.all.begin(), streams.all.end()).size()),
            streams.all.size());
  for (const auto& [seed, stream] : streams.all) EXPECT_EQ(seed, 5u);
}

TEST(Decoder, LastOnlyIsTheLastRow) {
  for (const ModelConfig& c : {small(), small_gpt2()}) {
    const auto model = make_model(c, 1);
    ForwardContext last;
    last.last_only = true;
    const Tensor all = model->logits(ids(1, 8, 11)), one = model->logits(ids(1, 8, 11), last);
    EXPECT_EQ(one.sizes(), Dims(1, 1, 11));
    const V a = all.to_vector();
    EXPECT_EQ(one.to_vector(), V(a.end() - 11, a.end()));
  }
}

TEST(Decoder, Bf16FollowsF32) {
  ModelConfig c = small();
  const auto exact = make_model(c, 1);
  c.dtype = "bf16";
  const auto half = make_model(c, 1);
  EXPECT_EQ(half->params()[0].tensor->dtype(), DType::kBF16);
  const Tensor loss = half->loss(ids(2, 8, 11), ids(2, 8, 11, 1));
  EXPECT_NEAR(loss.item(), exact->loss(ids(2, 8, 11), ids(2, 8, 11, 1)).item(), 0.02);
  backward(loss);
  for (const Param& p : half->params()) {
    ASSERT_TRUE(p.tensor->grad().defined()) << p.name;
    EXPECT_EQ(p.tensor->grad().dtype(), DType::kF32) << p.name;
    EXPECT_EQ(p.tensor->grad().category(), Category::kGradient) << p.name;
  }
}

// What 64 micro-batches add up to in a bf16 model is the sum in f32 of what each gives alone; sums in bf16 would be off
// by several per cent of it.
TEST(Decoder, GradientsOfABf16ModelAddUpInF32) {
  ModelConfig c = small();
  c.dtype = "bf16";
  const auto model = make_model(c, 1);
  const std::vector<Param> params = model->params();
  std::vector<std::vector<float>> want(params.size()), narrow(params.size());
  const auto micro_batch = [&](int i) {
    Tensor loss = model->loss(ids(2, 8, 11, i), ids(2, 8, 11, i * i + 1));
    Tensor share = Tensor::empty(loss.sizes(), loss.dtype());
    fill_(share, 1.0 / 64);
    backward(loss, share);
  };
  const auto clear = [&] {
    for (const Param& p : params) p.tensor->set_grad({});
  };
  for (int i = 0; i < 64; ++i) {
    micro_batch(i);
    for (size_t k = 0; k < params.size(); ++k) {
      const std::vector<double> g = params[k].tensor->grad().to_vector();
      want[k].resize(g.size()), narrow[k].resize(g.size());
      for (size_t j = 0; j < g.size(); ++j) {
        want[k][j] += static_cast<float>(g[j]);
        narrow[k][j] = to_float(to_bf16(narrow[k][j] + to_float(to_bf16(static_cast<float>(g[j])))));
      }
    }
    clear();
  }
  for (int i = 0; i < 64; ++i) micro_batch(i);
  double off = 0, size = 0;
  for (size_t k = 0; k < params.size(); ++k) {
    const std::vector<double> got = params[k].tensor->grad().to_vector();
    for (size_t j = 0; j < got.size(); ++j) {
      EXPECT_NEAR(got[j], want[k][j], 1e-5 * std::abs(want[k][j]) + 1e-7) << params[k].name << " " << j;
      off += std::pow(narrow[k][j] - want[k][j], 2), size += std::pow(want[k][j], 2);
    }
  }
  EXPECT_GT(std::sqrt(off / size), 0.005);
}

// d loss / d w by central differences in f64 on some elements of every parameter.
void check_gradients(ModelConfig c, const ForwardContext& context = {}) {
  c.dtype = "f64";
  const auto model = make_model(c, 9);
  for (const Param& p : model->params())  // away from zero, so that no gradient is tiny
    for (int64_t i = 0; i < p.tensor->numel(); ++i) p.tensor->data<double>()[i] += 0.2 * std::sin(1.0 + 3.0 * i);
  const Tensor x = ids(2, 6, 11), y = ids(2, 6, 11, 4);
  y.data<int32_t>()[3] = -100;
  backward(model->loss(x, y, context));
  NoGrad quiet;
  for (const Param& p : model->params()) {
    ASSERT_TRUE(p.tensor->grad().defined()) << p.name;
    EXPECT_TRUE(p.tensor->grad().is_contiguous()) << p.name;
    EXPECT_EQ(p.tensor->grad().category(), Category::kGradient) << p.name;
    const V g = p.tensor->grad().to_vector();
    double* w = p.tensor->data<double>();
    const int64_t step = std::max<int64_t>(1, p.tensor->numel() / 7);
    for (int64_t i = 0; i < p.tensor->numel(); i += step) {
      const double kept = w[i], h = 1e-5;
      w[i] = kept + h;
      const double up = model->loss(x, y, context).item();
      w[i] = kept - h;
      const double down = model->loss(x, y, context).item();
      w[i] = kept;
      EXPECT_NEAR(g[i], (up - down) / (2 * h), 1e-7) << p.name << " element " << i;
    }
  }
}

TEST(Decoder, GradientsOfLlama) {
  check_gradients(small());
  ModelConfig c = small();
  c.rope_style = "interleaved", c.n_kv_heads = 2, c.tied = true;
  check_gradients(c);
}

TEST(Decoder, GradientsOfGpt2) {
  check_gradients(small_gpt2());
  ModelConfig c = small_gpt2();
  c.bias = false, c.activation = "gelu", c.tied = false;
  check_gradients(c);
}

TEST(Decoder, GradientsOfOtherActivationsAndDropout) {
  ModelConfig c = small();
  c.activation = "silu", c.position = "none";
  check_gradients(c);
  c.dropout = 0.3;
  ForwardContext train;
  train.training = true, train.seed = 3;
  check_gradients(c, train);
}

// 540 MB of logits: the loss is made in chunks, in scope "head", and is that of the logits, with its gradients.
TEST(Decoder, LossInChunks) {
  ModelConfig c = small();
  c.vocab_size = 450000, c.context = 150, c.n_layers = 0, c.tied = true;
  const auto model = make_model(c, 5);
  const Tensor x = ids(2, 150, c.vocab_size), y = ids(2, 150, c.vocab_size, 9);
  std::vector<V> want, got;
  const auto run = [&](const Tensor& loss, std::vector<V>& all) {
    all.push_back({loss.item()});
    backward(loss);
    for (const Param& p : model->params()) {
      all.push_back(p.tensor->grad().to_vector());
      p.tensor->set_grad({});
    }
  };
  run(cross_entropy(model->logits(x), y), want);
  const LedgerGuard guard;
  run(model->loss(x, y), got);
  EXPECT_LT(guard.ledger().peak_bytes(), 256 * c.vocab_size * 4 + 5 * c.vocab_size * c.d_model * 4);
  for (const Ledger::Entry& e : guard.ledger().entries()) EXPECT_NE(e.scope, "loss");
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    double largest = 0, worst = 0;
    for (size_t i = 0; i < want[k].size(); ++i)
      largest = std::max(largest, std::abs(want[k][i])), worst = std::max(worst, std::abs(want[k][i] - got[k][i]));
    EXPECT_LE(worst, 1e-5 * largest) << k;
  }
}

// The same code on meta: every entry of the ledger, live bytes and peak equal those of the CPU, which equal the blocks
// that were taken.
TEST(Decoder, MetaCountsWhatTheCpuDoes) {
  for (ModelConfig c : {small(), small_gpt2()}) {
    const auto run = [&](Device device, int64_t* measured) {
      LedgerGuard guard;
      reset_block_peak();
      const int64_t live = cpu_blocks().live;
      const auto model = make_model(c, 1, device);
      Tensor x = Tensor::empty(Dims(2, 8), DType::kI32, device, Category::kData), y = x;
      if (device == kCpu) x = ids(2, 8, 11), y = x;
      guard.ledger().clear_costs();
      {
        PhaseGuard phase("forward");
        Tensor loss = model->loss(x, y);
        backward(loss);
      }
      Json j = guard.ledger().to_json();
      j.set("live", guard.ledger().live_bytes());
      *measured = cpu_blocks().peak - live;
      return j;
    };
    int64_t on_meta = 0, on_cpu = 0;
    const Json meta = run(kMetaCpu, &on_meta), cpu = run(kCpu, &on_cpu);
    EXPECT_EQ(meta.at("entries").dump(1), cpu.at("entries").dump(1));
    EXPECT_EQ(on_meta, 0);
    EXPECT_GT(cpu.at("peak_bytes").as_int(), 0);
    EXPECT_EQ(cpu.at("peak_bytes").as_int(), on_cpu);
  }
}

}  // namespace
}  // namespace tally
