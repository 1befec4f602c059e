// Generation of one sequence: equal to asking the whole sequence again for every token, without a length limit, with
// its stop and its refusals.
#include "tally/models/generate.h"

#include <cmath>

#include "tally/base/parallel.h"
#include "tally/core/tape.h"
#include "tests/support/support.h"

namespace tally {
namespace {

ModelConfig small(bool gpt2) {
  ModelConfig c;
  c.vocab_size = 13, c.context = 10, c.d_model = 16, c.n_heads = 4, c.n_kv_heads = gpt2 ? 4 : 2, c.d_ff = 24;
  if (gpt2) c.norm = "layer", c.activation = "gelu_tanh", c.position = "learned", c.bias = true, c.tied = true;
  return c;
}

// Weights large enough that tokens differ.
std::unique_ptr<Model> lively(bool gpt2) {
  auto model = make_model(small(gpt2), 2);
  for (const Param& p : model->params())
    if (p.tensor->dim() == 2)
      for (int64_t i = 0; i < p.tensor->numel(); ++i) p.tensor->data<float>()[i] *= 20;
  return model;
}

std::vector<int32_t> collect(Model& model, std::vector<int32_t> prompt, int64_t n, const SamplerConfig& c) {
  std::vector<int32_t> out;
  generate(model, std::move(prompt), n, c, [&](int32_t id) {
    out.push_back(id);
    return true;
  });
  return out;
}

TEST(Generate, EqualsTheWholeSequenceAskedAgain) {
  for (bool gpt2 : {false, true}) {
    const auto model = lively(gpt2);
    for (double temperature : {0.0, 1.0}) {
      SamplerConfig c;
      c.temperature = temperature, c.seed = 4;
      std::vector<int32_t> all = {1, 5, 2};
      const std::vector<int32_t> got = collect(*model, all, 7, c);
      ASSERT_EQ(got.size(), 7u);
      NoGrad quiet;
      for (int64_t n = 0; n < 7; ++n) {
        const Tensor y = model->logits(Tensor::from(all, Dims(1, static_cast<int64_t>(all.size()))));
        const float* last = y.data<float>() + (y.size(1) - 1) * 13;
        const int32_t id = sample(std::span(last, 13), all, c, n);
        EXPECT_EQ(got[static_cast<size_t>(n)], id) << n;
        all.push_back(id);
      }
    }
  }
}

TEST(Generate, HasNoLengthLimit) {
  const auto model = lively(false);
  const std::vector<int32_t> got = collect(*model, {1}, 57, {});
  EXPECT_EQ(got.size(), 57u);
  for (int32_t id : got) EXPECT_TRUE(id >= 0 && id < 13);
  EXPECT_EQ(collect(*model, {1}, 57, {}), got);  // a rerun
  const int before = num_threads();
  set_num_threads(1);
  EXPECT_EQ(collect(*model, {1}, 57, {}), got);
  set_num_threads(before);
}

// When the context of 10 is full, the last 5 tokens are read again and the sequence goes on from there.
TEST(Generate, AFullContextGoesOnFromItsLastHalf) {
  const auto model = lively(true);
  SamplerConfig c;
  c.seed = 8;
  const std::vector<int32_t> got = collect(*model, {1, 5, 2}, 30, c);
  std::vector<int32_t> all = {1, 5, 2};
  size_t start = 0;
  NoGrad quiet;
  for (int64_t n = 0; n < 30; ++n) {
    if (all.size() - start > 10) start = all.size() - 5;
    const std::vector<int32_t> seen(all.begin() + static_cast<int64_t>(start), all.end());
    const Tensor y = model->logits(Tensor::from(seen, Dims(1, static_cast<int64_t>(seen.size()))));
    const int32_t id = sample(std::span(y.data<float>() + (y.size(1) - 1) * 13, 13), all, c, n);
    ASSERT_EQ(got[static_cast<size_t>(n)], id) << n;
    all.push_back(id);
  }
  EXPECT_GT(start, 0u);
}

TEST(Generate, ALongPromptIsCutToItsEnd) {
  const auto model = lively(false);
  SamplerConfig greedy;
  greedy.temperature = 0;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 35; ++i) prompt.push_back(i * 5 % 13);
  const std::vector<int32_t> end(prompt.end() - 10, prompt.end());
  EXPECT_EQ(collect(*model, prompt, 1, greedy), collect(*model, end, 1, greedy));
}

TEST(Generate, StopsWhenTold) {
  const auto model = lively(false);
  int calls = 0;
  generate(*model, {1}, 100, {}, [&](int32_t) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(collect(*model, {1}, 0, {}).empty());
}

TEST(Generate, MemoryDoesNotGrowWithTheLength) {
  const auto model = lively(false);
  const auto peak = [&](int64_t n) {
    LedgerGuard guard;
    collect(*model, {1}, n, {});
    EXPECT_EQ(guard.ledger().live_bytes(), 0);
    return guard.ledger().peak_bytes();
  };
  EXPECT_EQ(peak(60), peak(30));
}

TEST(Generate, Refusals) {
  const auto model = lively(false);
  test::expect_error([&] { collect(*model, {}, 5, {}); }, "the prompt has no tokens");
  test::expect_error([&] { collect(*model, {13}, 5, {}); }, "13");
  test::expect_error([&] { collect(*model, {-1}, 5, {}); }, "-1");
  model->params()[0].tensor->data<float>()[13] = NAN;
  EXPECT_THROW(collect(*model, {0}, 5, {}), RunError);
}

}  // namespace
}  // namespace tally
