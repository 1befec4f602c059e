#include "tally/ops/cross_entropy.h"

#include <limits>

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

const bool loss_reference = register_reference<CrossEntropyArgs>([](const CrossEntropyArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.logits);
  auto targets = io.index(a.targets);
  auto &stats = io.out(a.stats), &count = io.out(a.count), &out = io.out(a.out);
  const int64_t n = a.logits.size[a.logits.rank() - 1], rows = a.targets.numel();
  double counted = 0;
  N total = 0.0;
  for (int64_t row = 0; row < rows; ++row) {
    const bool ignored = targets(row) == static_cast<double>(a.ignore_index);
    N most = -std::numeric_limits<double>::infinity(), sum = 0.0;
    for (int64_t i = 0; i < n; ++i) most = num_max(most, x.flat(row * n + i));
    for (int64_t i = 0; i < n; ++i) sum += num_exp(x.flat(row * n + i) - most);
    N loss = num_log(sum) - (x.flat(row * n + (ignored ? 0 : static_cast<int64_t>(targets(row)))) - most);
    if (ignored) loss = 0.0, most = 0.0, sum = 1.0;
    stats(row, 0) = most;
    stats(row, 1) = sum;
    counted += !ignored;
    if (a.reduction == Reduction::kNone) {
      out.flat(row) = loss;
    } else {
      total += loss;
    }
  }
  count(0) = counted;
  if (a.reduction == Reduction::kSum) out.flat(0) = total;
  if (a.reduction == Reduction::kMean) out.flat(0) = total / N(counted);
});

const bool gradient_reference =
    register_reference<CrossEntropyBackwardArgs>([](const CrossEntropyBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto grad = io.in(a.grad), x = io.in(a.logits), stats = io.in(a.stats), count = io.in(a.count);
      auto targets = io.index(a.targets);
      auto& dx = io.out(a.dlogits);
      const int64_t n = a.logits.size[a.logits.rank() - 1], rows = a.targets.numel();
      const bool each = a.reduction == Reduction::kNone;
      N shared = each ? N(0.0) : grad.flat(0);
      if (a.reduction == Reduction::kMean) shared /= count(0);
      for (int64_t row = 0; row < rows; ++row) {
        const bool ignored = targets(row) == static_cast<double>(a.ignore_index);
        const N g = each ? grad.flat(row) : shared, factor = g / stats(row, 1);
        for (int64_t i = 0; i < n; ++i) {
          const N v = num_exp(x.flat(row * n + i) - stats(row, 0)) * factor;
          dx.flat(row * n + i) = ignored ? N(0.0) : v;
        }
        N& at = dx.flat(row * n + (ignored ? 0 : static_cast<int64_t>(targets(row))));
        const N less = at - g;
        if (!ignored) at = less;
      }
    });

const bool fused_reference = register_reference<CrossEntropyFusedArgs>([](const CrossEntropyFusedArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.logits);
  auto targets = io.index(a.targets);
  auto &count = io.out(a.count), &losses = io.out(a.losses), &dx = io.out(a.dlogits);
  const int64_t n = a.logits.size[a.logits.rank() - 1], rows = a.targets.numel();
  double counted = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const bool ignored = targets(row) == static_cast<double>(a.ignore_index);
    const int64_t at = row * n + (ignored ? 0 : static_cast<int64_t>(targets(row)));
    N most = -std::numeric_limits<double>::infinity(), sum = 0.0;
    for (int64_t i = 0; i < n; ++i) most = num_max(most, x.flat(row * n + i));
    for (int64_t i = 0; i < n; ++i) sum += num_exp(x.flat(row * n + i) - most);
    const N loss = num_log(sum) - (x.flat(at) - most), factor = N(1.0) / sum;
    for (int64_t i = 0; i < n; ++i) {
      const N p = num_exp(x.flat(row * n + i) - most) * factor;
      dx.flat(row * n + i) = ignored ? N(0.0) : p;
    }
    const N less = dx.flat(at) - N(1.0);
    if (!ignored) dx.flat(at) = less;
    losses.flat(row) = ignored ? N(0.0) : loss;
    counted += !ignored;
  }
  count(0) = counted;
});

// Losses and the gradient of their sum, which is written over the logits with `over`.
struct Fused {
  Tensor losses, count, dlogits;
};
Fused fused(const Tensor& logits, const Tensor& targets, int64_t ignore_index, bool over) {
  NoGrad quiet;
  const Tensor ids = flat_index(targets);
  const DType sums = logits.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto make = [&](const Dims& size, DType t) { return Tensor::empty(size, t, logits.device()); };
  const Fused r{make(targets.sizes(), sums), make(Dims(1), sums), over ? logits : make(logits.sizes(), logits.dtype())};
  launch(&Kernels::cross_entropy_fused,
         CrossEntropyFusedArgs{logits.raw(), ids.raw(), r.count.raw(), r.losses.raw(), r.dlogits.raw(), ignore_index});
  return r;
}

constexpr Reduction kReductions[] = {Reduction::kMean, Reduction::kSum, Reduction::kNone};

TEST(CrossEntropy, Cases) {
  for (const Dims& rows : {Dims(), Dims(1), Dims(5), Dims(2, 3), Dims(40), Dims(0)})
    for (const int64_t classes : {1, 4, 17, 64, 1030})
      for (const Reduction reduction : kReductions)
        for (const int64_t ignore : {-100, 2}) {
          if (rows.numel() * classes > 3000 || (rows.numel() < 2 && ignore == 2 && reduction == Reduction::kMean))
            continue;
          Dims logits = rows;
          logits[logits.rank++] = classes;
          run_op_case({"cross_entropy " + str(logits) + " reduction " + std::to_string(static_cast<int>(reduction)),
                       {{logits}, {rows, Input::kIndex, classes}},
                       [=](const auto& x) { return cross_entropy(x[0], x[1], ignore, reduction); }});
        }
}

TEST(CrossEntropy, FusedCases) {
  for (const Dims& rows : {Dims(), Dims(5), Dims(2, 3), Dims(40), Dims(0)})
    for (const int64_t classes : {1, 4, 17, 64, 1030})
      for (const int64_t ignore : {-100, 2}) {
        if (rows.numel() * classes > 6000) continue;
        Dims logits = rows;
        logits[logits.rank++] = classes;
        run_op_case({"cross_entropy_fused " + str(logits),
                     {{logits, Input::kNormal, 0, false}, {rows, Input::kIndex, classes}},
                     [=](const auto& x) { return fused(x[0], x[1], ignore, false).dlogits; }});
      }
}

// The two kernels' bits, on every device; over the logits or beside them, whatever the alignment of a row.
TEST(CrossEntropy, FusedHasTheBitsOfTwoKernels) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, classes] :
         {std::tuple(9, 1), {70, 31}, {5, 512}, {6, 513}, {5, 4099}, {4, 50257}, {3, 57345}, {3, 128256}}) {
      const Tensor x = to(random_tensor({Dims(rows, classes)}, dtype, 3), test_device());
      std::vector<int32_t> wanted(static_cast<size_t>(rows));
      for (int i = 0; i < rows; ++i) wanted[i] = i % 4 == 1 ? -100 : i * 7919 % classes;
      wanted[0] = classes - 1;
      const Tensor ids = to(Tensor::from(wanted, Dims(rows)), test_device());
      Tensor leaf = x.detach();
      leaf.set_requires_grad();
      const Tensor each = cross_entropy(leaf, ids, -100, Reduction::kNone);
      Tensor ones = Tensor::empty(each.sizes(), each.dtype(), each.device());
      fill_(ones, 1);
      backward(each, ones);
      const std::vector<double> gradient = leaf.grad().to_vector();
      const std::string what = std::to_string(classes) + " classes in " + name_of(dtype);
      for (const bool over : {false, true}) {
        Tensor copy = Tensor::empty(x.sizes(), dtype, x.device());
        copy_(copy, x);
        const Fused f = fused(copy, ids, -100, over);
        EXPECT_EQ(f.losses.to_vector(), each.to_vector()) << what;
        EXPECT_EQ(f.dlogits.to_vector(), gradient) << what;
        EXPECT_EQ(f.count.to_vector(), std::vector<double>(1, rows - (rows + 2) / 4)) << what;
      }
    }
}

TEST(CrossEntropy, TargetsInI64) {
  VerifyLaunches verify;
  const Tensor ids = to(Tensor::from(std::vector<int32_t>{3, 0, -1}, Dims(3)), DType::kI64);
  Tensor x = random_tensor({Dims(3, 4)}, DType::kF32, 5).set_requires_grad();
  backward(cross_entropy(x, ids, -1));
  EXPECT_EQ(x.grad().sizes(), Dims(3, 4));
}

// Trap O10: only the ignored value may lie outside.
TEST(CrossEntropy, TrapO10TargetsOutside) {
  const auto targets = [](std::vector<int32_t> t) { return Tensor::from(t, Dims(3)); };
  Tensor five = Tensor::empty(Dims(3, 5)), four = Tensor::empty(Dims(3, 4));
  fill_(five, 0);
  fill_(four, 0);
  expect_error(
      [&] {
        cross_entropy(five, targets({1, 2, -4}), -1);
      },
      "cross_entropy: target -4 at position 2 is outside 0..4");
  expect_error(
      [&] {
        cross_entropy(five, targets({5, 2, 4}), -1);
      },
      "cross_entropy: target 5 at position 0 is outside 0..4");
  const std::vector<double> each = cross_entropy(four, targets({1, 255, 3}), 255, Reduction::kNone).to_vector();
  EXPECT_NEAR(each[0], 1.3862944, 1e-6);
  EXPECT_EQ(each[1], 0);
  EXPECT_NEAR(each[2], 1.3862944, 1e-6);
  EXPECT_NEAR(cross_entropy(four, targets({1, 255, 3}), 255).item(), 1.3862944, 1e-6);
}

// Conformance case C14.
TEST(CrossEntropy, CaseC14LargeLogits) {
  const Tensor logits = Tensor::from(
      std::vector<float>{0.1088f, 0.1060f, 0.6683f, 0.5131f, 0.0645f, 0.4538f, 0.6852f, 0.2520f, 0.3792f, 0.2675f,
                         0.4578f, 0.3357f, 0.6384f, 0.0481f, 0.5612f, 0.9639f, 0.8864f, 0.1585f, 0.3038f, 0.0350f,
                         0.3356f, 0.9013f, 0.7052f, 0.8294f, 0.8334f, 0.6333f, 0.4434f, 0.1428f, 0.5739f, 0.3810f,
                         0.9476f, 0.5917f, 0.7037f, 0.2987f, 0.6208f, 0.8541f, 0.1803f, 0.2054f, 0.4775f, 0.8199f},
      Dims(8, 5));
  const Tensor targets = Tensor::from(std::vector<int32_t>{1, 0, 2, 2, 4, 1, 4, 0}, Dims(8));
  EXPECT_NEAR(cross_entropy(logits, targets).item(), 1.6094728, 1e-6);
  EXPECT_NEAR(cross_entropy(affine(logits, 1000, 0), targets).item(), 272.9625, 1e-4);
}

TEST(CrossEntropy, EverythingIgnored) {
  Tensor x = random_tensor({Dims(2, 3)}, DType::kF32, 1).set_requires_grad();
  const Tensor targets = Tensor::from(std::vector<int32_t>{-100, -100}, Dims(2));
  const Tensor mean = cross_entropy(x, targets);
  EXPECT_TRUE(std::isnan(mean.item()));
  backward(mean);
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(6, 0.0));
  EXPECT_EQ(cross_entropy(x, targets, -100, Reduction::kSum).item(), 0);
}

TEST(CrossEntropy, MaskedAndBrokenRowsShow) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from(std::vector<float>{-inf, 0, -inf, -inf, nan, 0, 0, -inf}, Dims(4, 2));
  const Tensor targets = Tensor::from(std::vector<int32_t>{0, 0, 1, 0}, Dims(4));
  const std::vector<double> loss = cross_entropy(x, targets, -100, Reduction::kNone).to_vector();
  EXPECT_EQ(loss[0], inf);
  EXPECT_TRUE(std::isnan(loss[1]));
  EXPECT_TRUE(std::isnan(loss[2]));
  EXPECT_EQ(loss[3], 0);
}

// Sees whether the gradient is written over the logits.
class InPlaceObserver : public LaunchObserver {
 public:
  InPlaceObserver() : previous_(set_launch_observer(this)) {}
  ~InPlaceObserver() override { set_launch_observer(previous_); }
  void before(const char* name, const void* args) override {
    if (std::string(name) != CrossEntropyBackwardArgs::name) return;
    const auto& a = *static_cast<const CrossEntropyBackwardArgs*>(args);
    in_place = a.logits.data == a.dlogits.data;
    ++launches;
  }
  void after(const char*, const void*, const Cost&) override {}
  bool in_place = false;
  int launches = 0;

 private:
  LaunchObserver* previous_;
};

TEST(CrossEntropy, GradientOverLogitsWhenTheyAreGivenUp) {
  const Tensor targets = Tensor::from(std::vector<int32_t>{1, 0, 6}, Dims(3));
  std::vector<double> gradients[2];
  for (const bool keep : {false, true}) {
    Tensor x = random_tensor({Dims(3, 7)}, DType::kF32, 4).set_requires_grad();
    Tensor logits = affine(x, 2, 0);
    Tensor kept;
    if (keep) kept = logits;
    const Tensor loss = cross_entropy(std::move(logits), targets);
    InPlaceObserver observer;
    backward(loss);
    EXPECT_EQ(observer.launches, 1);
    EXPECT_EQ(observer.in_place, !keep);
    if (keep) {
      EXPECT_EQ(kept.to_vector(), affine(x.detach(), 2, 0).to_vector());
    }
    gradients[keep] = x.grad().to_vector();
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

// No second buffer of the logits' size between the end of the forward and the end of the loss's own backward.
TEST(CrossEntropy, PeakMemoryOfTheLoss) {
  const int64_t rows = 64, classes = 1024;
  Tensor x = random_tensor({Dims(rows, 1)}, DType::kF32, 4).set_requires_grad();
  const Tensor targets = random_tensor({Dims(rows), Input::kIndex, classes}, DType::kF32, 5);
  Tensor logits = expand(x, Dims(rows, classes));
  logits = contiguous(logits);
  const Tensor loss = cross_entropy(std::move(logits), targets);
  const int64_t before = cpu_blocks().live;
  reset_block_peak();
  backward(loss);
  EXPECT_LT(cpu_blocks().peak - before, rows * classes * 4 / 2);
}

TEST(CrossEntropy, TargetsChangedBeforeTheBackwardAreRefused) {
  Tensor x = random_tensor({Dims(2, 3)}, DType::kF32, 1).set_requires_grad();
  const Tensor targets = Tensor::from(std::vector<int32_t>{0, 2}, Dims(2));
  const Tensor loss = cross_entropy(x, targets);
  targets.data<int32_t>()[1] = 1000000;
  expect_error([&] { backward(loss); }, "target 1000000 at position 1");
}

TEST(CrossEntropy, MetaCostsTheSame) {
  Cost costs[2];
  for (const bool meta : {false, true}) {
    const Device device = meta ? kMetaCpu : kCpu;
    Tensor x = Tensor::empty(Dims(6, 9), DType::kF32, device);
    Tensor ids = Tensor::empty(Dims(6), DType::kI32, device);
    fill_(x, 0);
    fill_(ids, 3);
    x.set_requires_grad();
    LedgerGuard guard;
    backward(cross_entropy(x, ids));
    costs[meta] = guard.ledger().cost();
  }
  EXPECT_EQ(costs[0], costs[1]);
  EXPECT_EQ(costs[0].other_flops, 4 * 54 + 4 * 6 + 1 + 3 * 54 + 2 * 6 + 1);
}

TEST(CrossEntropy, Errors) {
  const Tensor x = Tensor::empty(Dims(2, 3)), ids = Tensor::from(std::vector<int32_t>{0, 1, 2}, Dims(3));
  expect_error([&] { cross_entropy(x, ids); },
               "cross_entropy: targets of shape (3,) do not fit logits of shape (2, 3)");
  expect_error([&] { cross_entropy(Tensor::empty(Dims()), ids); }, "do not fit logits of shape");
  expect_error([&] { cross_entropy(x, x); }, "cross_entropy: indices are i32 or i64, not f32");
  expect_error([&] { cross_entropy(Tensor::empty(Dims(3, 0)), ids); }, "target 0 at position 0 is outside");
}

}  // namespace
}  // namespace tally::test
