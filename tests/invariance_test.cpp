// One numerics: the logits of a position are the same bits however they are asked for: the whole sequence, prefill and
// decode with a cache, chunks, alone or in a batch, one thread or two, and by every instruction set of the processor.
#include <sys/wait.h>
#include <xxhash.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tally/base/parallel.h"
#include "tally/core/tape.h"
#include "tally/models/model.h"
#include "tally/ops/backward.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/launch.h"
#include "tally/ops/view.h"
#include "tally/optim/optimizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

constexpr int64_t kVocab = 61, kContext = 160, kLength = 150;

// Odd sizes, so that no row falls on a multiple of a block of any kernel, and weights that make the logits differ.
std::unique_ptr<Model> build(const std::string& kind, const std::string& dtype) {
  ModelConfig c;
  c.vocab_size = kVocab, c.context = kContext, c.n_layers = 2, c.d_model = 36, c.d_ff = 50, c.dtype = dtype;
  c.n_heads = 6, c.n_kv_heads = kind == "gpt2" ? 6 : 2;
  if (kind == "gpt2")
    c.norm = "layer", c.activation = "gelu_tanh", c.position = "learned", c.bias = true, c.tied = true;
  if (kind == "interleaved") c.rope_style = "interleaved";
  auto model = make_model(c, 3);
  for (const Param& p : model->params())
    for (int64_t i = 0; i < p.tensor->numel(); ++i) {
      const auto wave = static_cast<float>(0.2 * std::sin(0.7 * static_cast<double>(i * i % 9973)));
      if (dtype == "f32")
        p.tensor->data<float>()[i] += wave;
      else
        p.tensor->data<bf16>()[i] = to_bf16(to_float(p.tensor->data<bf16>()[i]) + wave);
    }
  return model;
}

Tensor tokens(int64_t batch, int64_t t, int shift) {
  std::vector<int32_t> v(static_cast<size_t>(batch * t));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int32_t>((i * i * 5 + i * 11 + i / 7 + shift) % kVocab);
  return Tensor::from(v, Dims(batch, t));
}

// Compares bits: the values of both tensors widened exactly.
void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(std::isfinite(x[i])) << what;
    ASSERT_EQ(x[i], y[i]) << what << ": logit " << i % kVocab << " of position " << i / kVocab;
  }
}

class Invariance : public ::testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  std::unique_ptr<Model> model_ = build(GetParam().first, GetParam().second);
};

// Logits of x by feeding the cache `sizes` positions at a time, in turn.
Tensor by_chunks(Model& model, const Tensor& x, const std::vector<int64_t>& sizes) {
  NoGrad quiet;
  const auto cache = model.new_cache(x.size(0), kContext);
  ForwardContext context;
  context.cache = cache.get();
  const int64_t t = x.size(1);
  std::vector<double> all(static_cast<size_t>(x.size(0) * t * kVocab));
  for (int64_t at = 0, i = 0; at < t; ++i) {
    const int64_t n = std::min(sizes[static_cast<size_t>(i) % sizes.size()], t - at);
    const std::vector<double> y = model.logits(contiguous(slice(x, 1, at, at + n)), context).to_vector();
    for (int64_t b = 0; b < x.size(0); ++b)
      std::copy(y.begin() + b * n * kVocab, y.begin() + (b + 1) * n * kVocab, all.begin() + (b * t + at) * kVocab);
    at += n;
  }
  return Tensor::from(all, Dims(x.size(0), t, kVocab));
}

TEST_P(Invariance, PackedWeights) {
  NoGrad quiet;
  const Tensor x = tokens(2, kLength, 0), whole = model_->logits(x);
  model_->pack_weights();
  expect_same(model_->logits(x), whole, "packed");
  expect_same(by_chunks(*model_, x, {1}), whole, "packed, decoded");
  expect_same(by_chunks(*model_, x, {3, 17, 1}), whole, "packed, in chunks");
}

TEST_P(Invariance, CacheAndChunksGiveTheWholeSequencesBits) {
  const Tensor x = tokens(1, kLength, 0);
  const Tensor whole = model_->logits(x);
  for (int64_t chunk : {1, 3, 7, 64})
    expect_same(by_chunks(*model_, x, {chunk}), whole, "chunks of " + std::to_string(chunk));
  for (int64_t prompt : {2, 63, 65, 131}) {
    std::vector<int64_t> sizes(kLength, 1);
    sizes[0] = prompt;
    expect_same(by_chunks(*model_, x, sizes), whole, "a prompt of " + std::to_string(prompt) + ", then one by one");
  }
  expect_same(by_chunks(*model_, x, {1, 3, 7}), whole, "chunks of 1, 3 and 7");
  NoGrad quiet;
  expect_same(model_->logits(x), whole, "without gradients");
}

TEST_P(Invariance, TheBatchDoesNotMatter) {
  const Tensor five = tokens(5, kLength, 1);
  const Tensor together = model_->logits(five);
  const Tensor cached = by_chunks(*model_, five, {9, 1, 1});
  for (int64_t b = 0; b < 5; ++b) {
    const Tensor alone = model_->logits(contiguous(slice(five, 0, b, b + 1)));
    expect_same(alone, slice(together, 0, b, b + 1), "row " + std::to_string(b));
    expect_same(slice(cached, 0, b, b + 1), alone, "cached row " + std::to_string(b));
  }
}

TEST_P(Invariance, TheLengthAfterAPositionDoesNotMatter) {
  const Tensor x = tokens(1, kLength, 2), whole = model_->logits(x);
  for (int64_t t : {1, 2, 17, 64, 149})
    expect_same(model_->logits(contiguous(slice(x, 1, 0, t))), slice(whole, 1, 0, t), std::to_string(t) + " positions");
}

TEST_P(Invariance, OneThreadOrTwo) {
  const Tensor x = tokens(3, kLength, 3), y = tokens(3, kLength, 4);
  const int before = num_threads();
  const auto run = [&](int threads) {
    set_num_threads(threads);
    std::vector<Tensor> all = {model_->logits(x).detach(), by_chunks(*model_, x, {5})};
    const Tensor loss = model_->loss(x, y);
    backward(loss);
    all.push_back(loss.detach());
    for (const Param& p : model_->params()) all.push_back(p.tensor->grad());
    clear_grads(model_->params());
    return all;
  };
  const std::vector<Tensor> one = run(1), two = run(2);
  set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) expect_same(one[i], two[i], "value " + std::to_string(i));
}

// The log-probability of a token in training equals that of the same token when it is generated.
TEST_P(Invariance, LogProbabilitiesOfTrainingAndDecodingAreOne) {
  const Tensor x = tokens(2, kLength, 5), y = tokens(2, kLength, 6);
  const Tensor trained = cross_entropy(model_->logits(x), y, -100, Reduction::kNone);
  NoGrad quiet;
  const auto cache = model_->new_cache(1, kContext);
  ForwardContext context;
  context.cache = cache.get();
  context.last_only = true;
  const std::vector<double> want = trained.to_vector();
  for (int64_t t = 0; t < kLength; ++t) {
    const Tensor logits = model_->logits(contiguous(slice(slice(x, 0, 1, 2), 1, t, t + 1)), context);
    const Tensor target = contiguous(slice(slice(y, 0, 1, 2), 1, t, t + 1));
    const double one = cross_entropy(logits, target, -100, Reduction::kNone).item();
    ASSERT_EQ(one, want[static_cast<size_t>(kLength + t)]) << "position " << t;
    // And it is the logarithm of the softmax, here in f64 from the decoder's logits.
    const std::vector<double> row = logits.to_vector();
    double sum = 0;
    for (double l : row) sum += std::exp(l);
    const double p = std::log(sum) - row[static_cast<size_t>(target.to_vector()[0])];
    EXPECT_NEAR(one, p, 1e-5 * (1 + std::abs(p)));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         ::testing::Values(std::pair{"llama", "f32"}, std::pair{"llama", "bf16"},
                                           std::pair{"gpt2", "f32"}, std::pair{"gpt2", "bf16"},
                                           std::pair{"interleaved", "f32"}),
                         [](const auto& i) { return std::string(i.param.first) + "_" + i.param.second; });

// XXH3 of the bits of logits, losses and weights over three training steps with dropout, for every model.
std::string digest() {
  std::vector<double> all;
  const auto take = [&](const Tensor& t) {
    const std::vector<double> v = t.to_vector();
    all.insert(all.end(), v.begin(), v.end());
  };
  for (const char* kind : {"llama", "gpt2", "interleaved"})
    for (const char* dtype : {"f32", "bf16"}) {
      const auto model = build(kind, dtype);
      const std::vector<Param> params = model->params();
      const auto optimizer = make_optimizer({}, params);
      take(model->logits(tokens(2, kLength, 7)));
      for (int step = 0; step < 3; ++step) {
        const Tensor loss = model->loss(tokens(2, 37, step), tokens(2, 37, step + 1));
        take(loss);
        backward(loss);
        optimizer->step(1e-2, clip_scale(global_norm(params), 1));
        clear_grads(params);
      }
      for (const Param& p : params) take(*p.tensor);
    }
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH3_64bits(all.data(), all.size() * 8)));
  return text;
}

// Run by the next test in processes of their own, since a process chooses its kernels once.
TEST(InstructionSets, Digest) {
  const std::string first = digest();
  EXPECT_EQ(digest(), first) << "a rerun";
  std::printf("digest %s %s\n", cpu_isa().c_str(), first.c_str());
}

TEST(InstructionSets, AllGiveTheSameBits) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> digests;
  for (const char* isa : backend_names())
    for (const char* threads : {"1", "2"}) {
      const std::string command =
          fmt::format("TALLY_ISA={} TALLY_THREADS={} '{}' --gtest_filter=InstructionSets.Digest", isa, threads, self);
      FILE* const pipe = popen(command.c_str(), "r");
      ASSERT_NE(pipe, nullptr);
      std::string out;
      for (char line[512]; std::fgets(line, sizeof line, pipe);) out += line;
      ASSERT_EQ(WEXITSTATUS(pclose(pipe)), 0) << out;
      const std::string key = fmt::format("digest {} ", isa);
      const size_t at = out.find(key);
      ASSERT_NE(at, std::string::npos) << out;
      digests.push_back(out.substr(at + key.size(), 16));
      EXPECT_EQ(digests.back(), digests.front()) << isa << " with " << threads << " threads";
    }
  EXPECT_EQ(digests.size(), backend_names().size() * 2);
}

}  // namespace
}  // namespace tally
