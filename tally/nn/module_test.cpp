// What module.h does with modules: state, gradients, moving, training flags; the Dropout module.
#include "tally/nn/module.h"

#include "tally/base/generator.h"
#include "tally/core/recompute.h"
#include "tally/nn/nn_test_modules.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/reduce.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

Tensor ones(const Dims& size) {
  Tensor t = Tensor::empty(size);
  fill_(t, 1);
  return t;
}

struct Small {
  Linear up, down;
  Dropout drop{0.5f};
  explicit Small(uint64_t seed) {
    Init init(seed, kCpu);
    up = Linear(init, 2, 3), down = Linear(init, 3, 1, false);
  }
  Tensor operator()(const Tensor& x) const { return down(drop(relu(up(x)))); }
  void visit(Params& p) { p.child("up", up), p.child("drop", drop), p.child("down", down); }
};

TEST(StateDict, SharesAndLoads) {
  Small a(1), b(2);
  const StateDict state = state_dict(a);
  ASSERT_EQ(state.size(), 3u);
  EXPECT_EQ(state[0].first, "up.weight");
  EXPECT_TRUE(state[0].second.shares_storage(a.up.weight));
  EXPECT_FALSE(state[0].second.requires_grad());
  EXPECT_NE(b.up.weight.to_vector(), a.up.weight.to_vector());
  const Tensor before = b.up.weight;
  const LoadedKeys keys = load_state_dict(b, state);
  EXPECT_TRUE(keys.missing.empty() && keys.unexpected.empty());
  EXPECT_EQ(b.up.weight.to_vector(), a.up.weight.to_vector());
  EXPECT_TRUE(b.up.weight.shares_storage(before));  // values are copied, tensors stay
  EXPECT_GT(b.up.weight.version(), 0);
  load_state_dict(a, state);  // its own
}

TEST(StateDict, ListsEveryDifferenceAndChangesNothing) {
  Small m(1);
  const V before = m.up.weight.to_vector();
  StateDict state = {{"up.weight", ones(Dims(3, 2))}, {"up.bias", ones(Dims(4))}, {"x", ones(Dims(1))}, {"y", {}}};
  expect_error(
      [&] { load_state_dict(m, state); },
      "Error(s) in loading state_dict: Unexpected key(s) in state_dict: \"x\", \"y\". Missing key(s) in "
      "state_dict: \"down.weight\". size mismatch for up.bias: copying a param with shape (4,) from checkpoint, "
      "the shape in current model is (3,).");
  expect_error([&] { load_state_dict(m, state, false); }, "Error(s) in loading state_dict: size mismatch for up.bias");
  EXPECT_EQ(m.up.weight.to_vector(), before);
  state[1].second = ones(Dims(3));
  const LoadedKeys keys = load_state_dict(m, state, false);
  EXPECT_EQ(keys.missing, std::vector<std::string>{"down.weight"});
  EXPECT_EQ(keys.unexpected, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(m.up.weight.to_vector(), V(6, 1.0));
}

TEST(StateDict, DtypesAreConvertedOrRefused) {
  Small m(1);
  StateDict state = state_dict(m);
  state[1].second = Tensor::from(V{0.5, 0.25, -1}, Dims(3));  // f64
  load_state_dict(m, state);
  EXPECT_EQ(m.up.bias.to_vector(), (V{0.5, 0.25, -1}));
  state[1].second = Tensor::from(std::vector<int32_t>{1, 2, 3}, Dims(3));
  expect_error([&] { load_state_dict(m, state); },
               "dtype mismatch for up.bias: i32 in the state_dict, f32 in the model.");
  state[1].second = Tensor::empty(Dims(3), DType::kF32, kMetaCpu);
  expect_error([&] { load_state_dict(m, state); }, "up.bias is on meta");
  state[1].second = {};
  expect_error([&] { load_state_dict(m, state); }, "up.bias is undefined");
}

TEST(ZeroGrad, ToNoneOrToZeros) {
  Small m(1);
  eval(m);
  backward(sum(m(ones(Dims(4, 2)))));
  EXPECT_TRUE(m.up.weight.grad().defined());
  zero_grad(m, false);
  EXPECT_EQ(m.up.weight.grad().to_vector(), V(6, 0.0));
  zero_grad(m);
  for (const Param& p : params_of(m)) EXPECT_FALSE(p.tensor->grad().defined()) << p.name;
  zero_grad(m, false);
  EXPECT_FALSE(m.up.weight.grad().defined());
}

struct Tied {
  Embedding embed;
  Linear head;
  Tensor counts = Tensor::from(std::vector<int32_t>{1, 2}, Dims(2));
  Tied() {
    Init init(3, kCpu);
    embed = Embedding(init, 5, 2, 1);
    head.weight = embed.weight, head.out = 5;
  }
  void visit(Params& p) { p.child("embed", embed), p.child("head", head), p("counts", counts); }
};

TEST(To, ConvertsParametersAndGradientsAndKeepsTies) {
  Tied m;
  backward(sum(m.head(ones(Dims(1, 2)))));
  const V values = m.embed.weight.to_vector();
  to(m, DType::kF64);
  EXPECT_EQ(m.embed.weight.dtype(), DType::kF64);
  EXPECT_EQ(m.embed.weight.to_vector(), values);
  EXPECT_TRUE(m.embed.weight.shares_storage(m.head.weight));
  EXPECT_EQ(m.embed.weight.node(), m.head.weight.node());
  EXPECT_EQ(m.head.weight.grad().dtype(), DType::kF64);
  EXPECT_EQ(m.head.weight.grad().to_vector(), V(10, 1.0));
  EXPECT_EQ(m.counts.dtype(), DType::kI32);
  const Tensor same = m.embed.weight;
  to(m, kCpu);
  EXPECT_TRUE(same.shares_storage(m.embed.weight));
  EXPECT_THROW(to(m, DType::kI32), Error);
}

TEST(Dropout, TrainAndEval) {
  Small m(1);
  EXPECT_TRUE(m.drop.training);
  const Tensor x = ones(Dims(64, 64));
  const Tensor a = m.drop(x), b = m.drop(x);
  EXPECT_NE(a.to_vector(), b.to_vector());
  eval(m);
  EXPECT_FALSE(m.drop.training);
  EXPECT_TRUE(m.drop(x).shares_storage(x));
  train(m);
  EXPECT_TRUE(m.drop.training);
}

TEST(Dropout, MasksAreDrawsOfTheGenerator) {
  Generator one(1), two(2);
  const Dropout a(0.5f, one), b(0.5f, two), shared(0.5f);
  const Tensor x = ones(Dims(64));
  const V first = a(x).to_vector(), second = a(x).to_vector();
  EXPECT_EQ(one.draws(), 2u);
  EXPECT_NE(first, second);
  EXPECT_NE(b(x).to_vector(), first);
  one.set_draws(1);
  EXPECT_EQ(a(x).to_vector(), second);
  manual_seed(1);
  EXPECT_EQ(shared(x).to_vector(), first);
}

TEST(Dropout, TheSecondRunOfARecomputeDrawsTheSameMask) {
  const auto gradient = [](bool again) {
    Small m(4);
    manual_seed(100);
    const Tensor x = ones(Dims(8, 2));
    const auto f = [&](const Tensor& t) { return m(t); };
    Tensor y = again ? recompute(f, x) : f(x);
    y = m.drop(y);
    backward(sum(square(y)));
    EXPECT_EQ(default_generator().draws(), 2u);
    return m.up.weight.grad().to_vector();
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(Traps, O14_TheDropoutModuleAtItsEnds) {
  const Tensor x = ones(Dims(6, 6)).requires_grad_();
  const Tensor none = Dropout(1.0f)(x);
  backward(sum(none));
  EXPECT_EQ(none.to_vector(), V(36, 0.0));
  EXPECT_EQ(x.grad().to_vector(), V(36, 0.0));
  EXPECT_TRUE(Dropout(0.0f)(x).shares_storage(x));
  for (const double v : Dropout(0.5f)(x).to_vector()) EXPECT_TRUE(v == 0 || v == 2) << v;
  for (const float p : {-0.1f, 1.1f, std::nanf("")}) {
    try {
      Dropout d(p);
      ADD_FAILURE() << p;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kValue);
    }
  }
}

TEST(Modules, NormsByName) {
  Init init(1, kCpu);
  const Tensor x = Tensor::from(std::vector<float>{3, 4}, Dims(1, 2));
  EXPECT_NEAR(LayerNorm(init, 2)(x).to_vector()[1], 1, 1e-4);
  EXPECT_NEAR(RMSNorm(init, 2)(x).to_vector()[1], 4 / std::sqrt(12.5), 1e-5);
  LayerNorm layer(init, 2);
  RMSNorm rms(init, 2);
  EXPECT_EQ(parameter_count(layer), 4);
  EXPECT_EQ(parameter_count(rms), 2);
}

}  // namespace
}  // namespace tally::test
