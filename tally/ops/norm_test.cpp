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

// A number as it is after a store to memory of that dtype.
template <class N>
N stored(N x, DType dtype) {
  if constexpr (!std::is_same_v<N, Counted>) {
    if (dtype == DType::kF32) return static_cast<N>(static_cast<float>(x));
    if (dtype == DType::kBF16) return static_cast<N>(to_float(to_bf16(static_cast<float>(x))));
    if (dtype == DType::kF16) return static_cast<N>(to_float(to_f16(static_cast<float>(x))));
  }
  return x;
}

// What is normed: x, or the sum with the residual, which is also an output.
template <class N, class A, class IoType>
std::vector<N> normed(const A& a, IoType& io) {
  auto x = io.in(a.x), residual = io.in(a.residual);
  std::vector<N> values;
  for (int64_t k = 0; k < a.x.numel(); ++k) values.push_back(x.flat(k));
  if (!norm_has(a.residual)) return values;
  auto& sum = io.out(a.sum);
  for (int64_t k = 0; k < a.x.numel(); ++k) sum.flat(k) = values[k] = stored(values[k] + residual.flat(k), a.x.dtype);
  return values;
}

const bool layer_norm_reference = register_reference<LayerNormArgs>([](const LayerNormArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  const std::vector<N> x = normed<N>(a, io);
  auto weight = io.in(a.weight), bias = io.in(a.bias);
  auto &y = io.out(a.out), &mean = io.out(a.mean), &rstd = io.out(a.rstd);
  const int64_t d = a.x.size[a.x.rank() - 1];
  for (int64_t row = 0; row < a.rstd.numel(); ++row) {
    std::vector<N> values, squares;
    for (int64_t i = 0; i < d; ++i) values.push_back(x[row * d + i]);
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
      auto grad = io.in(a.grad), x = io.in(a.x), weight = io.in(a.weight), mean = io.in(a.mean), rstd = io.in(a.rstd),
           grad_sum = io.in(a.grad_sum);
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
        for (int64_t i = 0; i < d; ++i) {
          const N v = rstd(row) * (h[i] - h_mean - normal[i] * slope);
          dx->flat(row * d + i) = norm_has(a.grad_sum) ? grad_sum.flat(row * d + i) + v : v;
        }
      }
      if (norm_has(a.dweight)) store_sums(weight_sums, a.add_weight, io.inout(a.dweight));
      if (norm_has(a.dbias)) store_sums(bias_sums, a.add_bias, io.inout(a.dbias));
    });

const bool rms_norm_reference = register_reference<RmsNormArgs>([](const RmsNormArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  const std::vector<N> x = normed<N>(a, io);
  auto weight = io.in(a.weight);
  auto &y = io.out(a.out), &rstd = io.out(a.rstd);
  const int64_t d = a.x.size[a.x.rank() - 1];
  for (int64_t row = 0; row < a.rstd.numel(); ++row) {
    std::vector<N> squares;
    for (int64_t i = 0; i < d; ++i) squares.push_back(x[row * d + i] * x[row * d + i]);
    const N r = N(1.0) / num_sqrt(mean_of(squares) + N(a.eps));
    rstd(row) = r;
    for (int64_t i = 0; i < d; ++i) {
      const N v = x[row * d + i] * r;
      y.flat(row * d + i) = norm_has(a.weight) ? v * weight(i) : v;
    }
  }
});

const bool rms_norm_backward_reference =
    register_reference<RmsNormBackwardArgs>([](const RmsNormBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto grad = io.in(a.grad), x = io.in(a.x), weight = io.in(a.weight), rstd = io.in(a.rstd),
           grad_sum = io.in(a.grad_sum);
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
        for (int64_t i = 0; i < d; ++i) {
          const N v = rstd(row) * (h[i] - normal[i] * slope);
          dx->flat(row * d + i) = norm_has(a.grad_sum) ? grad_sum.flat(row * d + i) + v : v;
        }
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

// With the gradients of both outputs (one tensor for both, then two) and of y alone.
TEST(Norm, ResidualNorms) {
  for (const Dims& s : shapes()) {
    const Dims d = last_of(s);
    const double eps = s.numel() > 3000 ? 0.1 : 1e-5;
    const auto layer = [=](const auto& x) { return residual_layer_norm(x[0], x[1], x[2], x[3], eps); };
    const auto rms = [=](const auto& x) { return residual_rms_norm(x[0], x[1], x[2], eps); };
    const auto both = [](const ResidualNorm& r) { return add(r.y, r.sum); };
    const auto squared = [](const ResidualNorm& r) { return add(r.y, square(r.sum)); };
    const std::string size = " " + str(s);
    run_op_case({"residual_layer_norm" + size, {{s}, {s}, {d}, {d}}, [=](const auto& x) { return both(layer(x)); }});
    run_op_case({"residual_rms_norm" + size, {{s}, {s}, {d}}, [=](const auto& x) { return both(rms(x)); }});
    if (s.numel() > 1000) continue;
    run_op_case(
        {"residual_layer_norm, y alone" + size, {{s}, {s}, {d}, {d}}, [=](const auto& x) { return layer(x).y; }});
    run_op_case({"residual_rms_norm, y alone" + size, {{s}, {s}, {d}}, [=](const auto& x) { return rms(x).y; }});
    run_op_case({"residual_layer_norm, squared" + size, {{s}, {s}, {d}, {d}}, [=](const auto& x) {
                   return squared(layer(x));
                 }});
    run_op_case({"residual_rms_norm, squared" + size, {{s}, {s}, {d}}, [=](const auto& x) { return squared(rms(x)); }});
    run_op_case({"residual_layer_norm to one side" + size,
                 {{s, Input::kNormal, 0, false}, {s}, {d, Input::kNormal, 0, false}},
                 [=](const auto& x) { return both(residual_layer_norm(x[0], x[1], x[2], {}, eps)); }});
    run_op_case({"residual_rms_norm to the weight" + size,
                 {{s, Input::kNormal, 0, false}, {s, Input::kNormal, 0, false}, {d}},
                 [=](const auto& x) { return both(rms(x)); }});
  }
}

// Values and gradients of x, residual, weight and bias of one way to make (sum, y).
template <class F>
std::vector<std::vector<double>> bits_of(const Dims& s, DType dtype, bool strided, int use, const F& f) {
  std::vector<Tensor> in;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Tensor t = to(random_tensor({seed < 3 ? s : last_of(s)}, dtype, seed), test_device());
    if (strided && seed < 3) {
      const Tensor wide = Tensor::empty(Dims(s[0], 2 * s[1]), dtype, test_device());
      const Tensor every_second = wide.alias(s, Dims(2 * s[1], 2), 0);
      copy_(every_second, t);
      t = every_second;
    }
    in.push_back(t.set_requires_grad());
  }
  const ResidualNorm r = f(in);
  std::vector<std::vector<double>> all = {r.sum.to_vector(), r.y.to_vector()};
  Tensor out = use == 0 ? add(r.y, r.sum) : use == 1 ? add(square(r.sum), r.y) : use == 2 ? r.y : r.sum;
  backward(out, to(random_tensor({s}, dtype, 5), test_device()));
  for (const Tensor& t : in) all.push_back(t.grad().defined() ? t.grad().to_vector() : std::vector<double>());
  // Leaves of bf16 have gradients of f32, each its own.
  if (dtype != DType::kBF16) {
    EXPECT_TRUE(in[0].grad().shares_storage(in[1].grad()));
  }
  return all;
}

TEST(Norm, ResidualNormsHaveTheBitsOfAddAndNorm) {
  for (const Dims& s : {Dims(1, 1), Dims(5, 33), Dims(70, 64), Dims(3, 768), Dims(9, 1030), Dims(4, 8448)})
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
      if (dtype == DType::kF64 && test_device() != kCpu) continue;
      for (const bool strided : {false, true})
        for (int use = 0; use < 4; ++use) {
          SCOPED_TRACE(fmt::format("{} {} strided {} use {}", str(s), name_of(dtype), strided, use));
          using V = const std::vector<Tensor>&;
          EXPECT_EQ(bits_of(s, dtype, strided, use, [](V x) { return residual_layer_norm(x[0], x[1], x[2], x[3]); }),
                    bits_of(s, dtype, strided, use, [](V x) {
                      const Tensor sum = add(x[0], x[1]);
                      return ResidualNorm{sum, layer_norm(sum, x[2], x[3])};
                    }));
          EXPECT_EQ(bits_of(s, dtype, strided, use, [](V x) { return residual_rms_norm(x[0], x[1], x[2]); }),
                    bits_of(s, dtype, strided, use, [](V x) {
                      const Tensor sum = add(x[0], x[1]);
                      return ResidualNorm{sum, rms_norm(sum, x[2])};
                    }));
        }
    }
}

// One launch each way, and a gradient of the sum that nobody else holds is written over.
TEST(Norm, ResidualNormsTakeOneLaunchAndNoCopy) {
  const Dims s(64, 256);  // 64 KiB
  const Tensor x = random_tensor({s}, DType::kF32, 1).set_requires_grad(), r = random_tensor({s}, DType::kF32, 2);
  const Tensor g = random_tensor({s}, DType::kF32, 3);
  const Tensor inner = square(x);
  LedgerGuard guard;
  ResidualNorm out = residual_rms_norm(inner, r, {});
  EXPECT_EQ(guard.ledger().launches(), 1);
  Tensor loss = add(out.y, square(out.sum));
  out = {};
  const int64_t before = guard.ledger().launches(), live = cpu_blocks().live;
  reset_block_peak();
  backward(loss, g);
  EXPECT_EQ(guard.ledger().launches() - before, 3);  // square, the norm, square
  // d(sum) lies over the gradient of the square; x.grad() comes when the saved sum is gone.
  EXPECT_EQ(cpu_blocks().peak - live, 65536);
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
  for (const int64_t n : {1, 2, 3, 5, 7, 16, 100, 255, 256, 257, 768, 1000, 5000, 65535, 65536}) {
    for (const double value : {1234.0, 0.1, -3.3e8, 1e-30, 8e37, 0x1.000002p0, 0x1.fffffep9}) {
      Tensor row = Tensor::empty(Dims(1, n));
      fill_(row, value);
      EXPECT_EQ(layer_norm(row, {}, {}).to_vector(), std::vector<double>(static_cast<size_t>(n), 0.0))
          << n << " " << value;
    }
  }
}

// Numbers far from zero, and one far from the others: mean and rstd against sums in f64.
TEST(Norm, MeansAndVariancesOfUnevenRows) {
  for (const int64_t n : {3, 64, 4096, 20000}) {
    for (const bool outlier : {false, true}) {
      std::vector<double> x = random_tensor({Dims(1, n)}, DType::kF32, 8).to_vector();
      if (outlier) {
        x[0] = 1e4;
      } else {
        for (double& v : x) v = static_cast<float>(v + 1e4);
      }
      double mean = 0, variance = 0, largest = 0;
      for (const double v : x) mean += v / static_cast<double>(n);
      for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(n);
      const std::vector<double> y =
          layer_norm(Tensor::from(std::vector<float>(x.begin(), x.end()), Dims(1, n)), {}, {}).to_vector();
      for (size_t i = 0; i < x.size(); ++i)
        largest = std::max(largest, std::abs(y[i] - (x[i] - mean) / std::sqrt(variance + 1e-5)));
      // The mean's own rounding is half a unit of 1e4 in f32, 5e-4, where that is the mean.
      EXPECT_LE(largest, outlier ? 4e-6 * std::sqrt(static_cast<double>(n)) : 6e-4) << n;
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
  expect_error([&] { residual_rms_norm(x, Tensor::empty(Dims(3, 2)), {}); },
               "residual_rms_norm: a residual of shape (3, 2) for a tensor of (2, 3)");
  expect_error([&] { residual_layer_norm(x, Tensor::empty(Dims(2, 3), DType::kF64), {}, {}); },
               "residual_layer_norm: dtypes");
  expect_error([&] { residual_layer_norm(x, {}, {}, {}); }, "residual_layer_norm");
}

}  // namespace
}  // namespace tally::test
