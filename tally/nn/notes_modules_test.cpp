// The course's notes on parameters, initial values and modules, line by line (A172-A191), slips at the right value.
#include <algorithm>

#include "tally/core/tape.h"
#include "tally/nn/nn_test_modules.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;
constexpr int64_t kIn = 16384, kOut = 32;

double std_of(const V& v) {
  double mean = 0, square = 0;
  for (const double x : v) mean += x, square += x * x;
  const auto n = static_cast<double>(v.size());
  return std::sqrt(square / n - mean / n * (mean / n));
}

Tensor normal(const Dims& size, double std, uint64_t stream) {
  const Tensor t = Tensor::empty(size);
  normal_(t, std, 5, stream);
  return t;
}

// The spread of x @ w for x ~ N(0, 1), over 64 rows and 32 columns.
double output_std(int64_t in, double weight_std) {
  return std_of(matmul(normal(Dims(64, in), 1, 1), normal(Dims(in, kOut), weight_std, 2)).to_vector());
}

TEST(Notes, A172_AParameterIsATensor) {
  static_assert(std::is_base_of_v<Tensor, Parameter>);
  const Tensor values = normal(Dims(3, 2), 1, 0);
  const Parameter w(values);
  static_assert(std::same_as<decltype(w.detach()), Tensor>);
  EXPECT_TRUE(w.requires_grad());
  EXPECT_TRUE(w.is_leaf());
  EXPECT_FALSE(w.detach().requires_grad());
  EXPECT_EQ(w.category(), Category::kParameter);
  EXPECT_EQ(w.to_vector(), values.to_vector());
  EXPECT_TRUE(Parameter(w).shares_storage(w));
  expect_error([] { Parameter p{Tensor()}; }, "takes a tensor");
}

TEST(Notes, A173_ShapesOfALinearMap) {
  const Tensor x = Tensor::empty(Dims(1, kIn), DType::kF32, kMetaCpu),
               w = Tensor::empty(Dims(kIn, kOut), DType::kF32, kMetaCpu);
  EXPECT_EQ(squeeze(matmul(x, w), 0).sizes(), Dims(kOut));
}

TEST(Notes, A174_OutputsGrowWithTheRootOfTheInputs) { EXPECT_NEAR(output_std(kIn, 1), 128, 8); }

// The notes' 18.92 is one draw; of N(0, 128^2) 11 or 12 of 100 lie below it.
TEST(Notes, A175_OneElementOfThatSpread) {
  const V y = matmul(normal(Dims(64, kIn), 1, 1), normal(Dims(kIn, kOut), 1, 2)).to_vector();
  const auto below = std::count_if(y.begin(), y.end(), [](double v) { return std::abs(v) < 18.919979095458984; });
  EXPECT_NEAR(static_cast<double>(below) / static_cast<double>(y.size()), 0.1175, 0.04);
}

TEST(Notes, A176_XavierKeepsTheSpread) {
  for (const int64_t in : {int64_t{64}, int64_t{1024}, kIn})
    EXPECT_NEAR(output_std(in, 1 / std::sqrt(static_cast<double>(in))), 1, 0.07) << in;
  EXPECT_EQ(1 / std::sqrt(static_cast<double>(kIn)), 0.0078125);
}

// The notes say that the variance grows with the root.
TEST(Notes, A177_TheVarianceGrowsWithTheInputs) {
  const double std = output_std(kIn, 1);
  EXPECT_NEAR(std * std / kIn, 1, 0.13);
}

// One page says that gradients vanish where outputs are large; they blow up, by the root of the width a layer.
TEST(Notes, A178_GradientsBlowUp) {
  for (const double scale : {1.0, 1 / 16.0}) {
    Tensor x = normal(Dims(16, 256), 1, 1);
    x.set_requires_grad();
    Tensor h = x;
    for (const uint64_t layer : {2, 3, 4}) h = matmul(h, normal(Dims(256, 256), scale, layer));
    backward(h, normal(h.sizes(), 1, 5));
    EXPECT_NEAR(std_of(x.grad().to_vector()) / std::pow(16 * scale, 3), 1, 0.15);
  }
}

TEST(Notes, A179_TheSpreadFollowsTheRoot) { EXPECT_NEAR(output_std(4096, 1) / output_std(1024, 1), 2, 0.2); }

Tensor cut(double a, double b) {
  const Tensor w = Tensor::empty(Dims(kIn, kOut));
  trunc_normal_(w, 0, 1 / std::sqrt(static_cast<double>(kIn)), a, b, 3, 4);
  return w;
}

TEST(Notes, A180_TruncatedNormalWithAbsoluteBounds) {
  const V v = cut(-3, 3).to_vector();
  EXPECT_GE(*std::min_element(v.begin(), v.end()), -3);
  EXPECT_LE(*std::max_element(v.begin(), v.end()), 3);
  EXPECT_NEAR(std_of(v) * 128, 1, 0.005);
}

// With std 1/128 nothing lies beyond +-3; a cut at three standard deviations is another.
TEST(Notes, A181_ACutAtThreeStandardDeviations) {
  const double std = 1 / std::sqrt(static_cast<double>(kIn));
  const V wide = cut(-3, 3).to_vector(), narrow = cut(-3 * std, 3 * std).to_vector();
  EXPECT_GT(*std::max_element(wide.begin(), wide.end()), 3.5 * std);
  EXPECT_LE(*std::max_element(narrow.begin(), narrow.end()), 3 * std);
  EXPECT_GE(*std::min_element(narrow.begin(), narrow.end()), -3 * std);
  EXPECT_NEAR(std_of(narrow) / std, 0.98658, 0.004);
  const Tensor same = Tensor::empty(Dims(kIn, kOut));
  trunc_normal_3_(same, std, 3, 4);
  EXPECT_EQ(same.to_vector(), narrow);
}

TEST(Notes, A182_ScoresAreDividedByTheRootOfTheirWidth) {
  const int64_t d = 256;
  const Tensor q = normal(Dims(64, d), 1, 1), k = normal(Dims(64, d), 1, 2);
  const double std = std_of(matmul(q, transpose(k, 0, 1)).to_vector());
  EXPECT_NEAR(std / std::sqrt(static_cast<double>(d)), 1, 0.1);
}

std::vector<std::pair<std::string, int64_t>> sizes_of(Cruncher& m) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const auto& [name, tensor] : state_dict(m)) all.emplace_back(name, tensor.numel());
  return all;
}
int64_t bytes_of(Cruncher& m) {
  int64_t n = 0;
  for (const auto& [name, tensor] : state_dict(m)) n += tensor.numel() * tensor.element_size();
  return n;
}
Cruncher on_meta(int64_t dim, int64_t layers) {
  Init init(0, kMetaCpu);
  return {init, dim, layers};
}

TEST(Notes, A183_TheNotesLinearIsInTimesOut) {
  Init init(1, kCpu);
  NotesLinear notes(init, 3, 5);
  EXPECT_EQ(notes.weight.sizes(), Dims(3, 5));
  EXPECT_EQ(params_of(notes).size(), 1u);  // no bias
  Linear ours(init, 3, 5);
  EXPECT_EQ(ours.weight.sizes(), Dims(5, 3));
  EXPECT_EQ(ours.bias.sizes(), Dims(5));
  const Tensor x = normal(Dims(2, 3), 1, 9);
  EXPECT_EQ(notes(x).to_vector(), linear(x, contiguous(transpose(notes.weight, 0, 1))).to_vector());
}

TEST(Notes, A184_ACrunchersLayers) {
  const Cruncher m = on_meta(64, 3);
  EXPECT_EQ(m.layers.size(), 3u);
  for (const NotesLinear& l : m.layers) EXPECT_EQ(l.weight.sizes(), Dims(64, 64));
  EXPECT_EQ(m.last.weight.sizes(), Dims(64, 1));
}

TEST(Notes, A185_NamesAndSizesInOrder) {
  Cruncher m = on_meta(64, 2);
  EXPECT_EQ(sizes_of(m), (std::vector<std::pair<std::string, int64_t>>{
                             {"layers.0.weight", 4096}, {"layers.1.weight", 4096}, {"final.weight", 64}}));
}

TEST(Notes, A186_ParametersAndBytes) {
  Cruncher m = on_meta(64, 2);
  EXPECT_EQ(parameter_count(m), 8256);
  EXPECT_EQ(bytes_of(m), 33024);
}

TEST(Notes, A187_ParameterCountInGeneral) {
  for (const auto& [d, l] : {std::pair<int64_t, int64_t>{64, 2}, {8, 5}, {3, 1}}) {
    Cruncher m = on_meta(d, l);
    EXPECT_EQ(parameter_count(m), d * d * l + d);
  }
}

TEST(Notes, A188_ForwardShapes) {
  const Cruncher m = on_meta(64, 2);
  EXPECT_EQ(m(Tensor::empty(Dims(8, 64), DType::kF32, kMetaCpu)).sizes(), Dims(8));
}

TEST(Notes, A189_WithoutLayersOnlyTheFinalOneIsLeft) {
  Cruncher m = on_meta(64, 0);
  EXPECT_EQ(sizes_of(m), (std::vector<std::pair<std::string, int64_t>>{{"final.weight", 64}}));
  EXPECT_EQ(m.last.weight.sizes(), Dims(64, 1));
}

TEST(Notes, A190_CruncherOfThreeLayers) {
  Cruncher m = on_meta(64, 3);
  EXPECT_EQ(parameter_count(m), 12352);
  EXPECT_EQ(bytes_of(m), 49408);
}

TEST(Notes, A191_ToADeviceMovesAllParametersAndForwardFlops) {
  Init init(0, kCpu);
  Cruncher m(init, 64, 2);
  to(m, kMetaCpu);
  for (const Param& p : params_of(m)) {
    EXPECT_EQ(p.tensor->device(), kMetaCpu) << p.name;
    EXPECT_TRUE(p.tensor->requires_grad() && p.tensor->is_leaf());
    EXPECT_EQ(p.tensor->category(), Category::kParameter);
  }
  LedgerGuard guard;
  m(Tensor::empty(Dims(8, 64), DType::kF32, kMetaCpu));
  EXPECT_EQ(guard.ledger().cost().matmul_flops, 132096);
}

}  // namespace
}  // namespace tally::test
