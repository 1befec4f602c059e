#include "tally/ops/norm.h"

#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

template <class N>
N mean_of(const std::vector<N>& x) {
  N sum = 0.0;
  for (const N& v : x) sum += v;
  return sum / N(static_cast<double>(x.size()));
}

// Adds `sums` to what the gradient of a weight holds, or stores them.
template <class N, class Out>
void store_sums(const std::vector<N>& sums, bool add, Out& out) {
  for (size_t i = 0; i < sums.size(); ++i) {
    if (add) {
      out.flat(i) += sums[i];
    } else {
      out.flat(i) = sums[i];
    }
  }
}

const bool layer_norm_reference = register_reference<LayerNormArgs>([](const LayerNormArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x), weight = io.in(a.weight), bias = io.in(a.bias);
  auto &y = io.out(a.out), &mean = io.out(a.mean), &rstd = io.out(a.rstd);
  const int64_t d = a.x.size[a.x.rank() - 1];
  for (int64_t row = 0; row < a.rstd.numel(); ++row) {
    std::vector<N> values, squares;
    for (int64_t i = 0; i < d; ++i) values.push_back(x.flat(row * d + i));
    const N m = mean_of(values);
    for (const N& v : values) squares.push_back((v - m) * (v - m));
    if constexpr (std::is_same_v<N, Counted>) Counted::other -= d;  // the difference is taken once
    const N r = N(1.0) / num_sqrt(mean_of(squares) + N(a.eps));
    mean(row) = m;
    rstd(row) = r;
    for (int64_t i = 0; i < d; ++i) {
      N v = (values[i] - m) * r;
      if (norm_has(a.weight)) v *= weight(i);
      if (norm_has(a.bias)) v += bias(i);
      y.flat(row * d + i) = v;
    }
  }
});

const bool layer_norm_backward_reference =
    register_reference<LayerNormBackwardArgs>([](const LayerNormBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto grad = io.in(a.grad), x = io.in(a.x), weight = io.in(a.weight), mean = io.in(a.mean), rstd = io.in(a.rstd);
      const int64_t d = a.x.size[a.x.rank() - 1];
      std::vector<N> weight_sums(d, N(0.0)), bias_sums(d, N(0.0)), normal(d), h(d), products(d);
      auto* dx = norm_has(a.dx) ? &io.out(a.dx) : nullptr;
      for (int64_t row = 0; row < a.rstd.numel(); ++row) {
        for (int64_t i = 0; i < d; ++i) {
          const N g = grad.flat(row * d + i);
          if (dx || norm_has(a.dweight)) normal[i] = (x.flat(row * d + i) - mean(row)) * rstd(row);
          if (norm_has(a.dweight)) weight_sums[i] += g * normal[i];
          if (norm_has(a.dbias)) bias_sums[i] += g;
          if (!dx) continue;
          h[i] = norm_has(a.weight) ? g * weight(i) : g;
          products[i] = h[i] * normal[i];
        }
        if (!dx) continue;
        const N h_mean = mean_of(h), slope = mean_of(products);
        for (int64_t i = 0; i < d; ++i) dx->flat(row * d + i) = rstd(row) * (h[i] - h_mean - normal[i] * slope);
      }
      if (norm_has(a.dweight)) store_sums(weight_sums, a.add_weight, io.inout(a.dweight));
      if (norm_has(a.dbias)) store_sums(bias_sums, a.add_bias, io.inout(a.dbias));
    });

const bool rms_norm_reference = register_reference<RmsNormArgs>([](const RmsNormArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x), weight = io.in(a.weight);
  auto &y = io.out(a.out), &rstd = io.out(a.rstd);
  const int64_t d = a.x.size[a.x.rank() - 1];
  for (int64_t row = 0; row < a.rstd.numel(); ++row) {
    std::vector<N> squares;
    for (int64_t i = 0; i < d; ++i) squares.push_back(x.flat(row * d + i) * x.flat(row * d + i));
    const N r = N(1.0) / num_sqrt(mean_of(squares) + N(a.eps));
    rstd(row) = r;
    for (int64_t i = 0; i < d; ++i) {
      const N v = x.flat(row * d + i) * r;
      y.flat(row * d + i) = norm_has(a.weight) ? v * weight(i) : v;
    }
  }
});

const bool rms_norm_backward_reference =
    register_reference<RmsNormBackwardArgs>([](const RmsNormBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto grad = io.in(a.grad), x = io.in(a.x), weight = io.in(a.weight), rstd = io.in(a.rstd);
      const int64_t d = a.x.size[a.x.rank() - 1];
      std::vector<N> sums(d, N(0.0)), normal(d), h(d), products(d);
      auto* dx = norm_has(a.dx) ? &io.out(a.dx) : nullptr;
      for (int64_t row = 0; row < a.rstd.numel(); ++row) {
        for (int64_t i = 0; i < d; ++i) {
          const N g = grad.flat(row * d + i);
          normal[i] = x.flat(row * d + i) * rstd(row);
          if (norm_has(a.dweight)) sums[i] += g * normal[i];
          if (!dx) continue;
          h[i] = norm_has(a.weight) ? g * weight(i) : g;
          products[i] = h[i] * normal[i];
        }
        if (!dx) continue;
        const N slope = mean_of(products);
        for (int64_t i = 0; i < d; ++i) dx->flat(row * d + i) = rstd(row) * (h[i] - normal[i] * slope);
      }
      if (norm_has(a.dweight)) store_sums(sums, a.add_weight, io.inout(a.dweight));
    });

std::vector<Dims> shapes() {
  return {Dims(7),      Dims(1, 1),    Dims(2, 3),    Dims(3, 2, 33), Dims(4, 64), Dims(2, 2, 1, 2, 18),
          Dims(70, 16), Dims(1030, 3), Dims(2, 1030), Dims(0, 4),     Dims(3, 0)};
}
Dims last_of(const Dims& size) { return Dims(size[size.rank - 1]); }

TEST(Norm, LayerNorm) {
  for (const Dims& s : shapes()) {
    const Dims d = last_of(s);
    const double eps = s.numel() > 3000 ? 0.1 : 1e-5;  // among many rows of three some are nearly constant
    run_op_case(
        {"layer_norm " + str(s), {{s}, {d}, {d}}, [=](const auto& x) { return layer_norm(x[0], x[1], x[2], eps); }});
    run_op_case({"layer_norm without bias " + str(s), {{s}, {d}}, [=](const auto& x) {
                   return layer_norm(x[0], x[1], {}, eps);
                 }});
    run_op_case({"layer_norm alone " + str(s), {{s}}, [](const auto& x) { return layer_norm(x[0], {}, {}, 0.1); }});
    if (s.numel() > 1000) continue;
    run_op_case({"layer_norm of a constant " + str(s), {{s, Input::kNormal, 0, false}, {d}, {d}}, [](const auto& x) {
                   return layer_norm(x[0], x[1], x[2]);
                 }});
  }
}

TEST(Norm, RmsNorm) {
  for (const Dims& s : shapes()) {
    const Dims d = last_of(s);
    const double eps = s.numel() > 3000 ? 0.1 : 1e-5;  // among many rows of three some are nearly constant
    run_op_case({"rms_norm " + str(s), {{s}, {d}}, [=](const auto& x) { return rms_norm(x[0], x[1], eps); }});
    run_op_case({"rms_norm alone " + str(s), {{s}}, [=](const auto& x) { return rms_norm(x[0], {}, eps); }});
    if (s.numel() > 1000) continue;
    run_op_case({"rms_norm of a constant " + str(s), {{s, Input::kNormal, 0, false}, {d}}, [](const auto& x) {
                   return rms_norm(x[0], x[1]);
                 }});
  }
}

// A weight used twice: its second gradient is added in place.
TEST(Norm, SharedWeights) {
  const Dims s(5, 18), d(18);
  run_op_case({"layer_norm twice", {{s}, {d}, {d}}, [](const auto& x) {
                 return add(layer_norm(x[0], x[1], x[2]), layer_norm(square(x[0]), x[1], x[2]));
               }});
  run_op_case({"rms_norm twice", {{s}, {d}}, [](const auto& x) {
                 return add(rms_norm(x[0], x[1]), rms_norm(square(x[0]), x[1]));
               }});
}

TEST(Norm, WeightsInF32WithActivationsInBf16) {
  VerifyLaunches verify;
  Tensor x = random_tensor({Dims(9, 40)}, DType::kBF16, 1).set_requires_grad();
  Tensor weight = random_tensor({Dims(40)}, DType::kF32, 2).set_requires_grad();
  Tensor bias = random_tensor({Dims(40)}, DType::kF32, 3).set_requires_grad();
  backward(layer_norm(x, weight, bias), random_tensor({Dims(9, 40)}, DType::kBF16, 4));
  backward(rms_norm(x, weight), random_tensor({Dims(9, 40)}, DType::kBF16, 5));
  EXPECT_EQ(weight.grad().dtype(), DType::kF32);
  EXPECT_EQ(x.grad().dtype(), DType::kF32);  // a leaf's, widened from the kernel's bf16
}

// Trap O12: the square of 300 must not be taken in 16 bits, and x - mean of a constant row is exactly 0.
TEST(Norm, TrapO12ConstantRows) {
  Tensor x = Tensor::empty(Dims(1, 4), DType::kBF16);
  fill_(x, 300);
  EXPECT_EQ(rms_norm(x, {}).to_vector(), std::vector<double>(4, 1.0));
  const Tensor one =
      layer_norm(Tensor::from(std::vector<double>{-3}, Dims(1, 1)), Tensor::from(std::vector<double>{1e12}, Dims(1)),
                 Tensor::from(std::vector<double>{-1}, Dims(1)));
  EXPECT_EQ(one.item(), -1.0);
  for (const int64_t n : {1, 2, 3, 5, 7, 16, 100, 255, 256, 257, 768, 1000, 5000}) {
    for (const double value : {1234.0, 0.1, -3.3e8, 1e-30}) {
      Tensor row = Tensor::empty(Dims(1, n));
      fill_(row, value);
      EXPECT_EQ(layer_norm(row, {}, {}).to_vector(), std::vector<double>(static_cast<size_t>(n), 0.0))
          << n << " " << value;
    }
  }
}

TEST(Norm, ARowDoesNotDependOnTheOthers) {
  const Tensor x = random_tensor({Dims(33, 100)}, DType::kF32, 9);
  const std::vector<double> all = layer_norm(x, {}, {}).to_vector(), rms = rms_norm(x, {}).to_vector();
  for (int64_t row = 0; row < 33; ++row) {
    const Tensor one = x.alias(Dims(1, 100), Dims(100, 1), row * 100);
    EXPECT_EQ(layer_norm(one, {}, {}).to_vector(),
              std::vector<double>(all.begin() + row * 100, all.begin() + row * 100 + 100));
    EXPECT_EQ(rms_norm(one, {}).to_vector(),
              std::vector<double>(rms.begin() + row * 100, rms.begin() + row * 100 + 100));
  }
}

TEST(Norm, ErrorsNameShapes) {
  const Tensor x = Tensor::empty(Dims(2, 3)), w = Tensor::empty(Dims(4));
  expect_error([&] { layer_norm(x, w, {}); }, "layer_norm: weight of shape (4,) does not fit the last axis of (2, 3)");
  expect_error([&] { layer_norm(x, {}, w); }, "layer_norm: bias of shape (4,)");
  expect_error([&] { rms_norm(x, w); }, "rms_norm: weight of shape (4,)");
  expect_error([&] { rms_norm(Tensor::empty(Dims()), {}); }, "rms_norm: takes at least one axis");
  expect_error([&] { rms_norm(x, Tensor::empty(Dims(3), DType::kF64)); }, "does not go with");
  expect_error([&] { rms_norm(x, {}, -1); }, "rms_norm: eps");
}

}  // namespace
}  // namespace tally::test
