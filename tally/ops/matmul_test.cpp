#include "tally/ops/matmul.h"

#include <cstring>

#include "tally/base/parallel.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

const bool registered = register_reference<MatmulArgs>([](const MatmulArgs& m, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto a = io.in(m.a), b = io.in(m.b);
  const auto b_at = [&](int64_t batch, int64_t k, int64_t j) {
    return m.b_packed ? b(j / m.kPanel, k, j % m.kPanel) : b(batch, k, j);
  };
  auto& c = m.accumulate ? io.inout(m.c) : io.out(m.c);
  for (int64_t batch = 0; batch < m.c.size[0]; ++batch)
    for (int64_t i = 0; i < m.c.size[1]; ++i)
      for (int64_t j = 0; j < m.c.size[2]; ++j) {
        N sum = 0.0;
        for (int64_t k = 0; k < m.a.size[2]; ++k) mul_add(sum, a(batch, i, k), b_at(batch, k, j));
        if (m.accumulate)
          c(batch, i, j) += sum;
        else
          c(batch, i, j) = sum;
        if (m.has_bias) c(batch, i, j) += io.in(m.bias)(j);
      }
  // What a product on a card does beside.
  for (int i = 0; i < m.more; ++i) {
    const bool gated = m.what_aux == MatmulAux::kSwiglu;
    auto w = io.in(m.more_b[i]);
    auto* const y = gated ? nullptr : &io.out(m.more_c[i]);
    for (int64_t row = 0; row < m.c.size[1]; ++row)
      for (int64_t j = 0; j < m.more_b[i].size[2]; ++j) {
        N sum = 0.0;
        for (int64_t k = 0; k < m.a.size[2]; ++k) mul_add(sum, a(0, row, k), w(0, k, j));
        if (m.has_bias) sum += io.in(m.more_bias[i])(j);
        if (!gated) {
          (*y)(0, row, j) = sum;
          continue;
        }
        const N gate = c(0, row, j);
        c(0, row, j) = gate / (N(1.0) + num_exp(-gate)) * sum;
      }
  }
  const N half = 0.5, one = 1.0, scale = double{kGeluTanhScale}, cubic = double{kGeluTanhCubic},
          three_cubic = 3 * double{kGeluTanhCubic};
  if (m.what_aux == MatmulAux::kGelu) {
    auto& aux = io.out(m.aux);
    for (int64_t k = 0; k < m.c.numel(); ++k) {
      const N x = c.flat(k);
      aux.flat(k) = x;
      c.flat(k) = half * x * (one + num_tanh(scale * (x + cubic * x * x * x)));
    }
  }
  if (m.what_aux == MatmulAux::kGeluGradient) {
    auto aux = io.in(m.aux);
    for (int64_t k = 0; k < m.c.numel(); ++k) {
      const N x = aux.flat(k), g = c.flat(k);
      const N t = num_tanh(scale * (x + cubic * x * x * x));
      c.flat(k) = g * (half * (one + t) + half * x * (one - t * t) * (scale * (one + three_cubic * x * x)));
    }
  }
});

void run_product(OpCase c) {
  c.library_on_card = true;
  run_op_case(c);
}

TEST(Matmul, GeluTanhMlp) {
  for (const auto& [rows, d, hidden] : {std::tuple(1, 3, 5), {33, 8, 16}, {20, 3, 24}, {7, 4, 16}}) {
    const Dims x(rows, d), w1(hidden, d), w2(d, hidden);
    run_product(
        {"gelu_tanh_mlp " + str(x), {{x}, {w1}, {Dims(hidden)}, {w2}, {Dims(d)}}, [](const std::vector<Tensor>& t) {
           return gelu_tanh_mlp(t[0], affine(t[1], 0.3f, 0), t[2], t[3], t[4]);
         }});
    run_product({"gelu_tanh_mlp without biases " + str(x), {{x}, {w1}, {w2}}, [](const std::vector<Tensor>& t) {
                   return gelu_tanh_mlp(t[0], affine(t[1], 0.3f, 0), {}, t[2], {});
                 }});
  }
}

// On a card one launch up to eight rows where nothing is recorded: results one after another, with and without biases,
// and the same bits one by one. Sizes for which one kernel has all, and others.
TEST(Matmul, SeveralLinearsOfOneInput) {
  const auto flat = [](const std::vector<Tensor>& all) {
    std::vector<Tensor> parts;
    for (const Tensor& t : all) parts.push_back(view(t, Dims(t.numel())));
    return cat(parts, 0);
  };
  for (const bool biases : {false, true})
    for (const auto& [rows, k, n0, n1, n2] :
         {std::tuple(1, 64, 40, 8, 8), {3, 8, 1, 5, 17}, {8, 520, 33, 70, 2}, {2, 6, 4, 3, 5}, {9, 16, 8, 4, 4}}) {
      std::vector<Input> inputs = {{Dims(rows, k)}, {Dims(n0, k)}, {Dims(n1, k)}, {Dims(n2, k)}, {Dims(n0, k)}};
      if (biases)
        for (const int64_t n : {n0, n1, n2, n0}) inputs.push_back({Dims(n)});
      const auto part = [=](const std::vector<Tensor>& t, size_t i) {
        static const Tensor none;
        return LinearWeight{t[i], biases ? t[i + 4] : none};
      };
      const auto many = [=](const std::vector<Tensor>& t) {
        std::vector<Tensor> all = linear_many(t[0], {part(t, 1), part(t, 2), part(t, 3)});
        all.push_back(linear_swiglu(t[0], part(t, 1), part(t, 4)));
        return flat(all);
      };
      const auto one_by_one = [=](const std::vector<Tensor>& t) {
        const auto one = [&](size_t i) { return linear(t[0], t[i], part(t, i).bias); };
        return flat({one(1), one(2), one(3), swiglu(one(1), one(4))});
      };
      const std::string name = std::to_string(rows) + " rows of " + std::to_string(k) + (biases ? " with biases" : "");
      if (k <= 16) run_product({name, inputs, many});  // central differences take their time
      const NoGrad quiet;
      run_product({name + ", nothing recorded", inputs, many});
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        std::vector<Tensor> t;
        for (const Input& i : inputs) t.push_back(to(random_tensor(i, dtype, 1 + t.size()), test::test_device()));
        EXPECT_EQ(many(t).to_vector(), one_by_one(t).to_vector()) << name << " in " << name_of(dtype);
      }
    }
}

TEST(Matmul, ShapesAndBroadcast) {
  const std::pair<Dims, Dims> pairs[] = {
      {Dims(1, 1), Dims(1, 1)},    {Dims(3, 4), Dims(4, 5)},       {Dims(7, 300), Dims(300, 9)},
      {Dims(2, 3, 4), Dims(4, 5)}, {Dims(2, 3, 4), Dims(2, 4, 5)}, {Dims(2, 1, 3, 4), Dims(5, 4, 2)},
      {Dims(4), Dims(4)},          {Dims(4), Dims(4, 3)},          {Dims(3, 4), Dims(4)},
      {Dims(2, 3, 4), Dims(4)},    {Dims(33, 17), Dims(17, 70)},   {Dims(70, 65), Dims(65, 33)}};
  for (const auto& [a, b] : pairs)
    run_product({"matmul " + str(a) + " " + str(b), {{a}, {b}}, [](const std::vector<Tensor>& x) {
                   return matmul(x[0], x[1]);
                 }});
}

TEST(Matmul, Linear) {
  for (const auto& [x, w] :
       {std::pair{Dims(5, 8), Dims(3, 8)}, {Dims(2, 7, 16), Dims(33, 16)}, {Dims(9), Dims(4, 9)}}) {
    run_product({"linear " + str(x), {{x}, {w}}, [](const std::vector<Tensor>& t) { return linear(t[0], t[1]); }});
    run_product({"linear with bias " + str(x), {{x}, {w}, {Dims(w[0])}}, [](const std::vector<Tensor>& t) {
                   return linear(t[0], t[1], t[2]);
                 }});
  }
}

// A weight used twice: its second gradient is added in place.
TEST(Matmul, TiedWeight) {
  run_product({"tied", {{Dims(4, 6)}, {Dims(6, 6)}}, [](const std::vector<Tensor>& t) {
                 return linear(linear(t[0], t[1]), t[1]);
               }});
}

TEST(TrapsO07, ZeroSizes) {
  const auto zeros = [](const Tensor& t, const Dims& size) {
    EXPECT_EQ(t.sizes(), size);
    for (double v : t.to_vector()) EXPECT_EQ(v, 0);
  };
  const auto e = [](auto... n) { return Tensor::empty(Dims(n...)); };
  zeros(matmul(e(3, 2, 0), e(3, 0, 3)), Dims(3, 2, 3));
  EXPECT_EQ(linear(e(2, 0), e(3, 0), Tensor::from(std::vector<float>{1, 2, 3}, Dims(3))).to_vector(),
            (std::vector<double>{1, 2, 3, 1, 2, 3}));
  zeros(matmul(e(3, 0, 0), e(0, 0)), Dims(3, 0, 0));
  zeros(matmul(e(2, 1, 3, 0), e(4, 0, 5)), Dims(2, 4, 3, 5));
  zeros(matmul(e(0, 3), e(3, 4)), Dims(0, 4));
  zeros(matmul(e(2, 0, 3, 4), e(4, 5)), Dims(2, 0, 3, 5));
}

TEST(Matmul, ErrorsNameTheShapes) {
  expect_error([] { matmul(Tensor::empty(Dims(2, 3)), Tensor::empty(Dims(4, 5))); }, "(2, 3) and (4, 5)");
  expect_error([] { linear(Tensor::empty(Dims(2, 3)), Tensor::empty(Dims(4, 5))); },
               "input (2, 3) does not fit weight (4, 5)");
  expect_error([] { matmul(Tensor::empty(Dims(2, 3)), Tensor::empty(Dims(3, 5), DType::kF64)); }, "f32 and f64");
}

// The rows of a product do not depend on how many rows there are, nor on the threads: M = 1 ... 1024.
TEST(Matmul, RowsAreTheSameForEveryM) {
  set_memory_guards(false);
  NoGrad quiet;
  const int64_t n = 80, k = 700;
  const Tensor x = random_tensor({Dims(1024, k)}, DType::kF32, 1), w = random_tensor({Dims(n, k)}, DType::kF32, 2);
  const int before = num_threads();
  set_num_threads(2);
  const Tensor all = linear(x, w);
  int64_t wrong = 0;
  for (int threads = 1; threads <= 2; ++threads) {
    set_num_threads(threads);
    for (int64_t m = 1; m <= 1024; ++m) {
      const Tensor some = linear(slice(x, 0, 0, m), w);
      wrong += std::memcmp(some.data<float>(), all.data<float>(), static_cast<size_t>(m * n) * 4) != 0;
    }
  }
  set_num_threads(before);
  set_memory_guards(true);
  EXPECT_EQ(wrong, 0);
}

// Operands are read as they lie or packed, by their strides: the same bits for every layout.
TEST(Matmul, LayoutsGiveTheSameBits) {
  NoGrad quiet;
  const auto layouts = [](const Tensor& x) {  // the same matrix: rows, columns next to each other, part of a larger one
    const int64_t rows = x.size(0), columns = x.size(1);
    const Tensor turned = transpose(contiguous(transpose(x, 0, 1)), 0, 1);
    const Tensor larger = random_tensor({Dims(rows + 2, columns + 5)}, DType::kF32, 9);
    const Tensor part = slice(slice(larger, 0, 1, rows + 1), 1, 3, columns + 3);
    copy_(part, x);
    return std::vector<Tensor>{x, turned, part};
  };
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{128, 65, 700},
                                {300, 96, 128},
                                {70, 200, 300},
                                {100, 1100, 513},
                                {40, 64, 90},
                                {3, 40, 70}}) {
    const Tensor a = random_tensor({Dims(m, k)}, DType::kF32, 1), b = random_tensor({Dims(k, n)}, DType::kF32, 2);
    const std::vector<double> want = matmul(a, b).to_vector();
    for (const Tensor& x : layouts(a))
      for (const Tensor& y : layouts(b)) EXPECT_EQ(matmul(x, y).to_vector(), want) << m << " x " << n << " x " << k;
  }
}

// A packed weight gives the same bits, for every number of rows, f32 and bf16.
TEST(Matmul, PackedWeightIsTheSame) {
  NoGrad quiet;
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{1, 1}, {31, 5}, {32, 256}, {33, 257}, {200, 700}, {1100, 40}}) {
      const Tensor w = random_tensor({Dims(n, k)}, dtype, 1), bias = random_tensor({Dims(n)}, dtype, 2);
      const Tensor packed = pack_weight(w), x = random_tensor({Dims(300, k)}, dtype, 3);
      for (int64_t m : {1, 2, 3, 4, 5, 8, 13, 14, 15, 32, 64, 65, 100, 300}) {
        const Tensor rows = slice(x, 0, 0, m);
        EXPECT_EQ(linear_packed(rows, packed, n, bias).to_vector(), linear(rows, w, bias).to_vector())
            << name_of(dtype) << " " << m << " x " << n << " x " << k;
      }
    }
}

TEST(Matmul, PackedWeightErrors) {
  expect_error([] { pack_weight(Tensor::empty(Dims(4, 4), DType::kF64)); }, "f64");
  const Tensor packed = pack_weight(random_tensor({Dims(33, 4)}, DType::kF32, 1));
  EXPECT_EQ(packed.sizes(), Dims(2, 4, 32));
  expect_error([&] { linear_packed(Tensor::empty(Dims(2, 5)), packed, 33); }, "does not fit");
  expect_error([&] { linear_packed(Tensor::empty(Dims(2, 4)), packed, 65); }, "65 outputs");
}

TEST(Matmul, PackedWeightAgainstTheReference) {
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (int64_t m : {1, 7, 70}) {
      const Tensor x = random_tensor({Dims(m, 300)}, dtype, 1), w = random_tensor({Dims(50, 300)}, dtype, 2);
      VerifyLaunches verify;
      linear_packed(x, pack_weight(w), 50);
      EXPECT_GT(verify.launches(), 0);
    }
}

}  // namespace
}  // namespace tally::test
