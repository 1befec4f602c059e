#include "tally/ops/conv.h"

#include "tally/ops/allclose.h"
#include "tally/ops/arithmetic.h"
#include "tally/ops/backward.h"
#include "tally/ops/conv_kernels.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// f(n, o, p, q, i, j, x's p, x's q) for every pair of tap and element.
template <class F>
void over_pairs(const Dims& y, const Dims& w, const Dims& x, const Dims& how, const F& f) {
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t o = 0; o < y[1]; ++o)
      for (int64_t p = 0; p < y[2]; ++p)
        for (int64_t q = 0; q < y[3]; ++q)
          for (int64_t i = 0; i < w[1]; ++i)
            for (int64_t j = 0; j < w[2]; ++j) {
              const int64_t a = p * how[0] - how[2] + i * how[4], b = q * how[1] - how[3] + j * how[5];
              if (a >= 0 && b >= 0 && a < x[2] && b < x[3]) f(n, o, p, q, i, j, a, b);
            }
}

const bool forward_reference = register_reference<ConvDepthwiseArgs>([](const ConvDepthwiseArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x), w = io.in(a.w);
  auto& y = io.out(a.y);
  for (int64_t k = 0; k < a.y.numel(); ++k) y.flat(k) = N(0.0);
  const int64_t each = a.x.size[1] == 0 ? 1 : a.y.size[1] / a.x.size[1];
  over_pairs(a.y.size, a.w.size, a.x.size, a.how, [&](auto n, auto o, auto p, auto q, auto i, auto j, auto r, auto s) {
    mul_add(y(n, o, p, q), w(o, i, j), x(n, o / each, r, s));
  });
  if (!a.has_bias) return;
  auto bias = io.in(a.bias);
  for (int64_t k = 0; k < a.y.numel(); ++k) y.flat(k) += bias(k / (a.y.size[2] * a.y.size[3]) % a.y.size[1]);
});

const bool input_reference = register_reference<ConvDepthwiseInputArgs>([](const ConvDepthwiseInputArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto g = io.in(a.grad), w = io.in(a.w);
  auto& dx = io.out(a.dx);
  for (int64_t k = 0; k < a.dx.numel(); ++k) dx.flat(k) = N(0.0);
  const int64_t each = a.dx.size[1] == 0 ? 1 : a.grad.size[1] / a.dx.size[1];
  over_pairs(a.grad.size, a.w.size, a.dx.size, a.how,
             [&](auto n, auto o, auto p, auto q, auto i, auto j, auto r, auto s) {
               mul_add(dx(n, o / each, r, s), w(o, i, j), g(n, o, p, q));
             });
});

const bool weight_reference =
    register_reference<ConvDepthwiseWeightArgs>([](const ConvDepthwiseWeightArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto g = io.in(a.grad), x = io.in(a.x);
      auto& dw = io.out(a.dw);
      for (int64_t k = 0; k < a.dw.numel(); ++k) dw.flat(k) = N(0.0);
      const int64_t each = a.x.size[1] == 0 ? 1 : a.grad.size[1] / a.x.size[1];
      over_pairs(a.grad.size, a.dw.size, a.x.size, a.how,
                 [&](auto n, auto o, auto p, auto q, auto i, auto j, auto r, auto s) {
                   mul_add(dw(o, i, j), g(n, o, p, q), x(n, o / each, r, s));
                 });
    });

// The whole op by a loop: x (N, C, H, W), w (O, C / groups, kh, kw).
std::vector<double> by_hand(const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& how, int64_t groups,
                            const Dims& y) {
  const std::vector<double> in = x.to_vector(), weight = w.to_vector();
  std::vector<double> b = bias.defined() ? bias.to_vector() : std::vector<double>(static_cast<size_t>(y[1]));
  const Dims &xs = x.sizes(), &ws = w.sizes();
  std::vector<double> out;
  for (int64_t k = 0; k < y.numel(); ++k) out.push_back(b[static_cast<size_t>(k / (y[2] * y[3]) % y[1])]);
  over_pairs(y, Dims(ws[0], ws[2], ws[3]), xs, how,
             [&](auto n, auto o, auto p, auto q, auto i, auto j, auto r, auto s) {
               for (int64_t c = 0; c < ws[1]; ++c) {
                 const int64_t channel = o / (ws[0] / groups) * ws[1] + c;
                 out[static_cast<size_t>(((n * y[1] + o) * y[2] + p) * y[3] + q)] +=
                     weight[static_cast<size_t>(((o * ws[1] + c) * ws[2] + i) * ws[3] + j)] *
                     in[static_cast<size_t>(((n * xs[1] + channel) * xs[2] + r) * xs[3] + s)];
               }
             });
  return out;
}

struct Case {
  Dims x, w;
  Pair stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

OpCase case_of(const Case& c) {
  OpCase op;
  op.name = "conv of " + str(c.x) + " by " + str(c.w) + " groups " + std::to_string(c.groups);
  op.inputs = {{c.x}, {c.w}};
  if (c.bias) op.inputs.push_back({Dims(c.w[0])});
  op.run = [c](const std::vector<Tensor>& x) {
    const Tensor bias = c.bias ? x[2] : Tensor{};
    return c.w.rank == 3 ? conv1d(x[0], x[1], bias, c.stride.w, c.padding.w, c.dilation.w, c.groups)
                         : conv2d(x[0], x[1], bias, c.stride, c.padding, c.dilation, c.groups);
  };
  op.grad_tolerance = 1e-5;
  op.library_on_card = true;
  return op;
}

const Case kCases[] = {
    {Dims(2, 3, 9), Dims(4, 3, 3)},
    {Dims(2, 3, 9), Dims(4, 3, 3), 1, 2, 2, 1, false},
    {Dims(2, 4, 9), Dims(6, 2, 4), 2, 3, 1, 2},
    {Dims(1, 2, 5), Dims(2, 2, 5), 3, 4, 1, 1},
    {Dims(3, 7), Dims(2, 3, 1)},
    {Dims(2, 3, 9), Dims(3, 1, 4), 1, 3, 1, 3},
    {Dims(2, 3, 9), Dims(6, 1, 3), 2, 1, 2, 3, false},
    {Dims(2, 2, 5, 6), Dims(3, 2, 3, 2)},
    {Dims(2, 2, 5, 6), Dims(3, 2, 3, 2), Pair(2, 1), Pair(1, 2), Pair(1, 2), 1, false},
    {Dims(1, 4, 5, 6), Dims(4, 2, 3, 3), 1, 1, 1, 2},
    {Dims(2, 3, 5, 6), Dims(3, 1, 3, 3), Pair(2, 1), 1, 1, 3},
    {Dims(3, 6, 6), Dims(6, 1, 2, 3), Pair(1, 2), Pair(0, 1), Pair(2, 1), 3, false},
    {Dims(2, 3, 4, 4), Dims(2, 3, 1, 1)},
    {Dims(2, 32, 9), Dims(3, 32, 3), 1, 1},
    {Dims(1, 64, 7), Dims(4, 32, 4), 2, 3, 1, 2},
    {Dims(1, 32, 5), Dims(2, 32, 5), 3, 4, 1, 1},
    {Dims(0, 32, 9), Dims(4, 32, 3)},
    {Dims(0, 3, 9), Dims(4, 3, 3)},
    {Dims(0, 3, 5, 5), Dims(4, 3, 3, 3)},
};

TEST(Conv, Cases) {
  for (const Case& c : kCases) run_op_case(case_of(c));
}

TEST(Conv, AgainstTheLoop) {
  for (const Case& c : kCases) {
    const bool two = c.w.rank == 4;
    const Tensor x = to(random_tensor({c.x}, DType::kF32, 1), test_device());
    const Tensor w = to(random_tensor({c.w}, DType::kF32, 2), test_device());
    const Tensor bias = c.bias ? to(random_tensor({Dims(c.w[0])}, DType::kF32, 3), test_device()) : Tensor{};
    const Tensor y = case_of(c).run(c.bias ? std::vector<Tensor>{x, w, bias} : std::vector<Tensor>{x, w});
    Tensor x4 = c.x.rank == (two ? 4 : 3) ? x : unsqueeze(x, 0), y4 = y.dim() == (two ? 4 : 3) ? y : unsqueeze(y, 0);
    Tensor w4 = w;
    if (!two) x4 = unsqueeze(x4, 2), y4 = unsqueeze(y4, 2), w4 = unsqueeze(w, 2);
    const Dims how = two ? Dims(c.stride.h, c.stride.w, c.padding.h, c.padding.w, c.dilation.h, c.dilation.w)
                         : Dims(1, c.stride.w, 0, c.padding.w, 1, c.dilation.w);
    const std::vector<double> want = by_hand(x4, w4, bias, how, c.groups, y4.sizes()), got = y.to_vector();
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4) << str(c.x) << " " << str(c.w) << " " << i;
  }
}

// Long rows: several blocks of the kernels and images in several batches.
TEST(Conv, LongRows) {
  for (const Case& c :
       {Case{Dims(2, 3, 1100), Dims(3, 1, 4), 1, 3, 1, 3}, Case{Dims(2, 2, 1300), Dims(2, 1, 5), 2, 4, 3, 2}}) {
    VerifyLaunches verify;
    const OpCase op = case_of(c);
    std::vector<Tensor> in;
    for (size_t i = 0; i < op.inputs.size(); ++i)
      in.push_back(to(random_tensor(op.inputs[i], DType::kF32, i), test_device()).set_requires_grad());
    const Tensor y = op.run(in);
    backward(y, to(random_tensor({y.sizes()}, DType::kF32, 9), test_device()));
  }
}

TEST(Conv, Errors) {
  const auto e = [](auto... n) { return Tensor::empty(Dims(n...)); };
  expect_error(
      [&] { conv1d(e(1, 4, 5), e(2, 3, 3)); },
      "conv1d: given groups=1, weight of size (2, 3, 3), expected input (1, 4, 5) to have 3 channels, but got 4");
  expect_error([&] { conv1d(e(1, 3, 2), e(2, 3, 3)); }, "padded input size 2, kernel size 3");
  expect_error([&] { conv1d(e(1, 3, 5), e(2, 3, 3), {}, 0); }, "stride 0");
  expect_error([&] { conv1d(e(1, 3, 5), e(2, 3, 3), e(3)); }, "bias (3,) does not fit 2 output channels");
  expect_error([&] { conv1d(e(1, 4, 5), e(3, 2, 3), {}, 1, 0, 1, 2); }, "multiple of groups=2");
  expect_error([&] { conv1d(e(4, 5), e(3, 3)); }, "conv1d: takes an input of 2 or 3 axes");
  expect_error([&] { conv2d(e(1, 3, 5, 5), e(2, 3, 3)); }, "conv2d: takes an input of 3 or 4 axes");
  expect_error([&] { conv1d(e(1, 3, 5), Tensor::empty(Dims(2, 3, 3), DType::kF64)); }, "dtypes f32 and f64 differ");
}

TEST(Conv, PlanIsTheRun) {
  Cost costs[2];
  int64_t peak[2];
  for (const bool real : {true, false}) {
    LedgerGuard guard;
    const Device device = real ? kCpu : kMetaCpu;
    for (const Case& c : kCases) {
      const OpCase op = case_of(c);
      std::vector<Tensor> in;
      for (const Input& i : op.inputs) {
        Tensor t = Tensor::empty(i.size, DType::kF32, device);
        if (real) fill_(t, 0);
        in.push_back(t.set_requires_grad());
      }
      const Tensor y = op.run(in);
      Tensor g = Tensor::empty(y.sizes(), DType::kF32, device);
      if (real) fill_(g, 0);
      backward(y, g);
    }
    costs[real] = guard.ledger().cost();
    peak[real] = guard.ledger().peak_bytes();
  }
  EXPECT_EQ(costs[0].matmul_flops, costs[1].matmul_flops);
  EXPECT_EQ(peak[0], peak[1]);
}

// Images of many channels: products of padded images, against one channel's products at a time.
TEST(Conv, ManyChannels) {
  for (const auto& [groups, taps, padding, dilation] :
       {std::tuple(1, 3, 1, 1), {1, 1, 0, 1}, {2, 3, 2, 2}, {1, 2, 1, 1}})
    for (const DType t : {DType::kF32, DType::kF64, DType::kBF16}) {
      const int64_t in = 32 * groups, out = 4 * groups;
      const auto make = [&](const Dims& size, uint64_t seed) {
        return to(random_tensor({size}, DType::kF32, seed), t);
      };
      const Tensor x = make(Dims(3, in, 9, 40), 1), w = make(Dims(out, 32, taps, taps), 2), bias = make(Dims(out), 3);
      for (const Tensor& b : {bias, Tensor{}}) {
        const Tensor y = to(conv2d(x, w, b, 1, padding, dilation, groups), DType::kF64);
        const auto f64 = [](const Tensor& v) { return v.defined() ? to(v, DType::kF64) : v; };
        Tensor sum;
        for (int64_t c = 0; c < 32; ++c) {  // too shallow for that way
          const auto channel = [&](const Tensor& v) { return slice(v, 1, c, kToEnd, 32); };
          const Tensor part =
              conv2d(channel(f64(x)), channel(f64(w)), c == 0 ? f64(b) : Tensor{}, 1, padding, dilation, groups);
          sum = c == 0 ? part : add(sum, part);
        }
        EXPECT_TRUE(allclose(y, sum, t == DType::kBF16 ? 1e-2 : 1e-5, t == DType::kBF16 ? 5e-2 : 2e-5))
            << groups << " " << taps << " " << name_of(t);
      }
    }
}

}  // namespace
}  // namespace tally::test
