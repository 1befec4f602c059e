// Every preset's parameter count with its arithmetic, equal to the closed form and to the model built on meta; GPT-2's
// forward FLOPs on the ledger against their closed form.
#include <map>

#include "tally/models/model.h"
#include "tests/support/support.h"

namespace tally {
namespace {

// GPT-2 with biases: a block is 4 projections of d x d, two of d x 4d, their biases (4d + 4d + d) and two LayerNorms of
// 2d; the head is the token table.
constexpr int64_t gpt2(int64_t layers, int64_t d) {
  return 50257 * d + 1024 * d + layers * (12 * d * d + 9 * d + 4 * d) + 2 * d;
}

// Llama: q and o of d x d, k and v of d x (kv d / heads), three of d x ff, two gains; a final gain; table and head
// apart.
constexpr int64_t llama(int64_t layers, int64_t d, int64_t heads, int64_t kv, int64_t ff, int64_t vocab) {
  return layers * (2 * d * d + 2 * d * (kv * d / heads) + 3 * d * ff + 2 * d) + d + 2 * vocab * d;
}

TEST(Presets, ParameterCounts) {
  const std::map<std::string, std::pair<int64_t, int64_t>> want = {
      // 2 x (4 x 64^2 + 3 x 64 x 256 + 128) + 64 + 2 x 256 x 64
      {"tiny", {llama(2, 64, 4, 4, 256, 256), 164160}},
      // 4 x (2 x 256^2 + 2 x 256 x 128 + 3 x 256 x 704 + 512) + 256 + 2 x 2048 x 256
      {"demo", {llama(4, 256, 4, 2, 704, 2048), 4000000}},
      // no biases: 65 x 128 + 64 x 128 + 4 x (12 x 128^2 + 2 x 128) + 128
      {"char", {65 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 2 * 128) + 128, 804096}},
      {"gpt2", {gpt2(12, 768), 124439808}},
      {"gpt2-medium", {gpt2(24, 1024), 354823168}},
      {"gpt2-large", {gpt2(36, 1280), 774030080}},
      {"gpt2-xl", {gpt2(48, 1600), 1557611200}},
      {"llama-30m", {llama(8, 512, 8, 4, 1408, 8192), 31990272}},
      {"llama-124m", {llama(12, 768, 12, 4, 2048, 32000), 124668672}},
      {"llama-336m", {llama(24, 1024, 16, 4, 2816, 32000), 336118784}},
      {"llama-1b", {llama(22, 2048, 32, 4, 5632, 32000), 1100048384}},
      {"cs336-tinystories", {llama(4, 512, 16, 16, 1344, 10000), 22696448}},
  };
  ASSERT_EQ(preset_names().size(), want.size());
  for (const std::string& name : preset_names()) {
    ASSERT_TRUE(want.contains(name)) << name;
    const auto [arithmetic, number] = want.at(name);
    EXPECT_EQ(arithmetic, number) << name;
    EXPECT_EQ(parameter_count(preset(name)), number) << name;
    LedgerGuard guard;
    const auto model = make_model(preset(name), 1, kMetaCpu);
    EXPECT_EQ(parameter_count(model->params()), number) << name;
    // The plan's parameter bytes: 4 a number, each tensor rounded to a block.
    int64_t bytes = 0;
    for (const Param& p : model->params()) bytes += block_bytes(p.tensor->numel() * 4);
    EXPECT_EQ(guard.ledger().live()[static_cast<size_t>(Category::kParameter)], bytes) << name;
  }
}

TEST(Presets, ClosedFormEqualsTheBuiltModelForEveryKindOfConfig) {
  ModelConfig c;
  c.d_model = 24, c.n_heads = 6, c.n_kv_heads = 3, c.d_ff = 40, c.vocab_size = 17, c.context = 9;
  for (const char* norm : {"rms", "layer"})
    for (const char* activation : {"swiglu", "gelu", "gelu_tanh", "relu", "silu"})
      for (const char* position : {"rope", "learned", "none"})
        for (int bits = 0; bits < 8; ++bits) {
          c.norm = norm, c.activation = activation, c.position = position;
          c.bias = bits & 1, c.tied = bits & 2, c.n_layers = bits & 4 ? 3 : 0;
          EXPECT_EQ(parameter_count(make_model(c, 1, kMetaCpu)->params()), parameter_count(c))
              << norm << " " << activation << " " << position << " " << bits;
        }
}

// 2 a multiply-add: 12 d^2 weights a block and the head for every position; in attention 2 d for q k^T and 2 d for the
// weighted sum a pair of positions.
TEST(Presets, Gpt2ForwardFlopsEqualTheClosedForm) {
  constexpr int64_t layers = 12, d = 768, vocab = 50257, t = 1024;
  constexpr int64_t weights = 2 * t * (layers * 12 * d * d + vocab * d);
  constexpr int64_t causal = layers * 4 * d * (t * (t + 1) / 2), full = layers * 4 * d * t * t;
  static_assert(weights + causal == 272'339'828'736 && weights + full == 291'648'307'200);
  LedgerGuard guard;
  const auto model = make_model(preset("gpt2"), 1, kMetaCpu);
  guard.ledger().clear_costs();
  const Tensor y = model->logits(Tensor::empty(Dims(1, t), DType::kI32, kMetaCpu, Category::kData));
  EXPECT_EQ(y.sizes(), Dims(1, t, vocab));
  EXPECT_EQ(guard.ledger().cost().matmul_flops, weights + causal);
  int64_t attention = 0;
  for (const Ledger::Entry& e : guard.ledger().entries())
    if (std::string(e.op) == "attention") attention += e.cost.matmul_flops;
  EXPECT_EQ(attention, causal);
  // The published convention counts T x T pairs: the attention op's count by T^2 / (T (T + 1) / 2) = 2 T / (T + 1).
  EXPECT_EQ(guard.ledger().cost().matmul_flops - attention + attention * 2 * t / (t + 1), weights + full);
}

TEST(Presets, UnknownNamesSuggestTheNearest) {
  test::expect_error([] { preset("gpt-2"); }, "unknown preset 'gpt-2'; did you mean gpt2?; presets are tiny, demo");
  test::expect_error([] { preset(""); }, "unknown preset ''");
}

TEST(Presets, ShapesOfTheIssue) {
  const ModelConfig g = preset("gpt2-xl"), c = preset("char"), l = preset("llama-30m"), s = preset("cs336-tinystories");
  EXPECT_EQ(g.n_layers, 48);
  EXPECT_EQ(g.head_dim(), 64);
  EXPECT_TRUE(g.bias && g.tied && g.norm == "layer" && g.activation == "gelu_tanh" && g.position == "learned");
  EXPECT_TRUE(!c.bias && c.n_layers == 4 && c.n_heads == 4 && c.d_model == 128 && c.context == 64);
  EXPECT_TRUE(l.n_kv_heads == 4 && l.context == 256 && !l.tied && l.norm == "rms" && l.activation == "swiglu" &&
              l.position == "rope" && l.rope_style == "half_split");
  EXPECT_TRUE(s.rope_style == "interleaved" && s.context == 256 && s.head_dim() == 32);
}

TEST(ModelConfig, ChecksNameTheKeys) {
  ModelConfig c;
  c.d_model = 65;
  test::expect_error([&] { make_model(c, 1, kMetaCpu); }, "model.d_model 65 is not a multiple of model.n_heads 4");
  c.d_model = 64, c.n_kv_heads = 3;
  test::expect_error([&] { make_model(c, 1, kMetaCpu); }, "model.n_heads 4 is not a multiple of model.n_kv_heads 3");
  c.n_kv_heads = 4, c.d_model = 20;
  test::expect_error([&] { make_model(c, 1, kMetaCpu); }, "RoPE needs an even head width");
}

}  // namespace
}  // namespace tally
