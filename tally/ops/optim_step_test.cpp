#include "tally/ops/optim_step.h"

#include <limits>

#include "tally/base/parallel.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::NumberOf;

const bool adamw_reference = test::register_reference<AdamwArgs>([](const AdamwArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto numbers = io.index(a.rates);  // host numbers to the count: what depends on them only is free
  const double lr = numbers.flat(0), rate = numbers.flat(1), inverse_root = numbers.flat(2);
  const double scale = io.index(a.grad_scale).flat(0);
  for (int k = 0; k < a.count; ++k) {
    const AdamwItem& t = a.items[k];
    auto grad = io.in(t.grad);
    auto& param = io.inout(t.has_master ? t.master : t.param);
    auto& m = io.inout(t.m);
    auto& v = io.inout(t.v);
    for (int64_t i = 0; i < t.param.numel(); ++i) {
      const N g = grad.flat(i) * N(scale);
      m.flat(i) = N(a.beta1) * m.flat(i) + N(1 - a.beta1) * g;
      v.flat(i) = N(a.beta2) * v.flat(i) + N(1 - a.beta2) * g * g;
      const N update = m.flat(i) / (test::num_sqrt(v.flat(i)) * N(inverse_root) + N(a.eps));
      param.flat(i) = param.flat(i) * N(1 - lr * t.weight_decay) - N(rate) * update;
    }
    if (!t.has_master) continue;
    auto& copy = io.out(t.param);
    for (int64_t i = 0; i < t.param.numel(); ++i) copy.flat(i) = param.flat(i);
  }
});

const bool squares_reference = test::register_reference<SumSquaresArgs>([](const SumSquaresArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto& partial = io.out(a.partial);
  int64_t at = 0;
  for (int k = 0; k < a.count; ++k) {
    auto x = io.in(a.x[k]);
    for (int64_t c = 0; c < sum_squares_chunks(a.x[k].numel()); ++c) {
      N sum = 0;
      for (int64_t i = c * kSumSquaresChunk; i < std::min((c + 1) * kSumSquaresChunk, a.x[k].numel()); ++i)
        sum += x.flat(i) * x.flat(i);
      partial.flat(at++) = sum;
    }
  }
});

const bool totals_reference = test::register_reference<StepTotalsArgs>([](const StepTotalsArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto squares = io.in(a.squares), losses = io.in(a.losses);
  auto& totals = io.out(a.totals);
  N sum = 0, loss = 0;
  for (int64_t i = 0; i < a.squares.numel(); ++i) sum += squares.flat(i);
  for (int64_t i = 0; i < a.losses.numel(); ++i) loss += losses.flat(i);
  const N norm = test::num_sqrt(sum);
  totals.flat(0) = loss / N(static_cast<double>(a.losses.numel()));
  totals.flat(1) = norm;
  const N clip = N(a.max_norm) / (norm + N(1e-6));
  totals.flat(2) = test::num_where(
      clip, [](auto x) { return x < 1; }, clip, N(1));
});

AdamwScalars scalars(int64_t step, double lr = 1e-3, double weight_decay = 0.01, double grad_scale = 1) {
  return {lr, 0.9, 0.999, 1e-8, weight_decay, 1 - std::pow(0.9, step), 1 - std::pow(0.999, step), grad_scale};
}

struct State {
  Tensor param, grad, m, v;
};
State random_state(const Dims& size, DType param, DType grad, DType state) {
  return {test::random_tensor({size}, param, 1), test::random_tensor({size}, grad, 2),
          test::random_tensor({size}, state, 3), test::random_tensor({size, test::Input::kPositive}, state, 4)};
}
std::vector<double> run(const State& s, int64_t step) {
  adamw_step(s.param, s.grad, s.m, s.v, scalars(step, 1e-2, 0.1, 0.7));
  std::vector<double> all = s.param.to_vector();
  for (const Tensor& t : {s.m, s.v})
    for (const double x : t.to_vector()) all.push_back(x);
  return all;
}

TEST(AdamwStep, AgainstTheReference) {
  const DType f64 = DType::kF64, f32 = DType::kF32, b16 = DType::kBF16;
  const int64_t damaged = damaged_guards();
  for (const Dims& size : {Dims(), Dims(1), Dims(3), Dims(0, 4), Dims(5, 7), Dims(513), Dims(2, 20000)}) {
    const State all[5] = {random_state(size, f64, f64, f64), random_state(size, f32, f32, f32),
                          random_state(size, b16, b16, f32), random_state(size, b16, f32, f32),
                          random_state(size, f32, b16, f32)};
    test::VerifyLaunches verify;
    for (const State& s : all) run(s, 3);
  }
  EXPECT_EQ(damaged_guards(), damaged);
}

// Many tensors in one call, with and without masters: each as on its own.
TEST(AdamwStep, ManyAtOnce) {
  std::vector<AdamwTensors> all, alone;
  for (int i = 0; i < 150; ++i) {
    const Dims size = i % 7 == 0 ? Dims(0, 3) : i % 3 == 0 ? Dims(i + 1, 37) : Dims(i + 1);
    const DType dtype = i % 2 == 0 ? DType::kBF16 : DType::kF32;
    for (std::vector<AdamwTensors>* list : {&all, &alone}) {
      const State s = random_state(size, dtype, dtype, DType::kF32);
      list->push_back({s.param, s.grad, s.m, s.v, {}, i % 5 * 0.1});
      if (i % 4 == 0) list->back().master = to(s.param, DType::kF32);
      for (Tensor* t :
           {&list->back().param, &list->back().grad, &list->back().m, &list->back().v, &list->back().master})
        if (t->defined()) *t = to(*t, test::test_device());
    }
  }
  AdamwScalars k = scalars(3, 1e-2, 0, 0.7);
  {
    test::VerifyLaunches verify;
    adamw_step(all, k);
    EXPECT_EQ(verify.launches(), 3);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const AdamwTensors &a = all[i], &b = alone[i];
    k.weight_decay = b.weight_decay;
    adamw_step(b.master.defined() ? b.master : b.param, b.grad, b.m, b.v, k);
    if (b.master.defined()) copy_(b.param, b.master);
    EXPECT_EQ(a.param.to_vector(), b.param.to_vector()) << i;
    EXPECT_EQ(a.m.to_vector(), b.m.to_vector()) << i;
    EXPECT_EQ(a.v.to_vector(), b.v.to_vector()) << i;
  }
}

TEST(AdamwStep, SameBitsForThreadsAndLayouts) {
  const Dims size(300, 200);
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<double> one = run(random_state(size, DType::kF32, DType::kF32, DType::kF32), 5);
  set_num_threads(2);
  EXPECT_EQ(run(random_state(size, DType::kF32, DType::kF32, DType::kF32), 5), one);
  State s = random_state(size, DType::kF32, DType::kF32, DType::kF32);
  for (Tensor* t : {&s.param, &s.grad, &s.v}) {
    const Tensor turned = transpose(Tensor::empty({200, 300}), 0, 1);
    copy_(turned, *t);
    *t = turned;
  }
  EXPECT_EQ(run(s, 5), one);
  set_num_threads(before);
}

TEST(AdamwStep, TrapO16DecayComesFirst) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Tensor p = Tensor::empty({1}, dtype), g = Tensor::empty({1}, dtype), m = Tensor::empty({1}, dtype),
           v = Tensor::empty({1}, dtype);
    fill_(p, 1), fill_(g, 1), fill_(m, 0), fill_(v, 0);
    adamw_step(p, g, m, v, scalars(1, 0.1, 0.5));
    EXPECT_NEAR(p.item(), 0.85, 1e-7);
  }
}

TEST(AdamwStep, ZeroGradientsAreNoNumberProblem) {
  Tensor p = Tensor::empty({3}), g = Tensor::empty({3}), m = Tensor::empty({3}), v = Tensor::empty({3});
  fill_(p, 2), fill_(g, 0), fill_(m, 0), fill_(v, 0);
  adamw_step(p, g, m, v, scalars(1, 0.1, 0));
  EXPECT_EQ(p.to_vector(), std::vector<double>(3, 2.0));
}

TEST(AdamwStep, Errors) {
  const Tensor f32 = Tensor::empty({2}), b16 = Tensor::empty({2}, DType::kBF16), f64 = Tensor::empty({2}, DType::kF64);
  const AdamwScalars s = scalars(1);
  test::expect_error([&] { adamw_step(b16, b16, b16, f32, s); }, "m and v must be");
  test::expect_error([&] { adamw_step(f64, f64, f32, f32, s); }, "m and v must be");
  test::expect_error([&] { adamw_step(f64, f32, f64, f64, s); }, "m and v must be");
  test::expect_error([&] { adamw_step(f32, Tensor::empty({3}), f32, f32, s); }, "differ");
  test::expect_error([&] { adamw_step(f32, Tensor(), f32, f32, s); }, "an input is missing");
}

TEST(SumSquares, AgainstTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64})
    for (const int64_t n : {0, 1, 7, 8, 1000, 65535, 65536, 65537, 200001}) {
      const Tensor x = test::random_tensor({{n}}, dtype, 3);
      double want = 0;
      for (const double v : x.to_vector()) want += v * v;
      test::VerifyLaunches verify;
      EXPECT_NEAR(sum_squares(x), want, 1e-12 * want);
    }
}

TEST(SumSquares, SameForThreadsAndLayouts) {
  const Tensor x = test::random_tensor({{3, 100000}}, DType::kF32, 3);
  const int before = num_threads();
  set_num_threads(1);
  const double one = sum_squares(x);
  set_num_threads(2);
  EXPECT_EQ(sum_squares(x), one);
  set_num_threads(before);
  const Tensor turned = transpose(Tensor::empty({100000, 3}), 0, 1);
  copy_(turned, x);
  EXPECT_EQ(sum_squares(turned), one);
}

TEST(SumSquares, TrapO15EndsOfClipping) {
  EXPECT_EQ(std::sqrt(sum_squares(Tensor::from(std::vector<float>{0, 0}, {2}))), 0);
  EXPECT_NEAR(std::sqrt(sum_squares(Tensor::from(std::vector<float>{3e20f, 4e20f}, {2}))) / 5e20, 1, 1e-6);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(sum_squares(Tensor::from(std::vector<float>{infinity, 1}, {2}))));
  EXPECT_FALSE(std::isfinite(sum_squares(Tensor::from(std::vector<float>{1, std::nanf("")}, {2}))));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isfinite(sum_squares(Tensor::from(std::vector<float>(1000, largest), {1000}))));
}

std::vector<double> totals_of(const std::vector<double>& squares, const std::vector<float>& losses, double max_norm) {
  const Tensor totals = Tensor::empty({3}, DType::kF64, test::test_device());
  const auto n = [](const auto& v) { return Dims(static_cast<int64_t>(v.size())); };
  step_totals(to(Tensor::from(squares, n(squares)), test::test_device()),
              to(Tensor::from(losses, n(losses)), test::test_device()), max_norm, totals);
  return totals.to_vector();
}

TEST(StepTotals, MeanNormAndFactor) {
  {
    test::VerifyLaunches verify;
    std::vector<double> squares;
    for (int i = 0; i < 3000; ++i) squares.push_back(0.25 + i % 7);
    totals_of(squares, {1, 2, 4.5f}, 1.0);
    totals_of({9, 16}, {3}, 1.0);
  }
  EXPECT_EQ(totals_of({9, 16}, {1, 2}, 10), (std::vector<double>{1.5, 5, 1}));
  EXPECT_EQ(totals_of({9, 16}, {1, 2}, 0), (std::vector<double>{1.5, 5, 1}));  // off
  EXPECT_EQ(totals_of({9, 16}, {2}, 2)[2], 2 / (5 + 1e-6));
  EXPECT_EQ(totals_of({0, 0}, {2}, 1)[2], 1);
  EXPECT_TRUE(std::isnan(totals_of({9, INFINITY}, {2}, 1)[2]));
  EXPECT_TRUE(std::isnan(totals_of({9, NAN}, {2}, 0)[2]));
  EXPECT_TRUE(std::isnan(totals_of({9, 16}, {2, INFINITY}, 1)[2]));
}

// A step whose loss or gradient is not finite changes nothing.
TEST(AdamwStep, AFactorThatIsNotFiniteChangesNothing) {
  for (const double factor : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    State s = random_state(Dims(5, 7), DType::kF32, DType::kF32, DType::kF32);
    for (Tensor* t : {&s.param, &s.grad, &s.m, &s.v}) *t = to(*t, test::test_device());
    const std::vector<double> before = s.param.to_vector();
    AdamwScalars k = scalars(3);
    k.grad_scale = factor;
    adamw_step(s.param, s.grad, s.m, s.v, k);
    EXPECT_EQ(s.param.to_vector(), before);
  }
}

TEST(SumSquares, NothingOnMeta) { EXPECT_EQ(sum_squares(Tensor::empty({70000}, DType::kF32, kMetaCpu)), 0); }

}  // namespace
}  // namespace tally
