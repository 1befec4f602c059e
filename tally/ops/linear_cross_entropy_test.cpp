#include "tally/ops/linear_cross_entropy.h"

#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

// `valid` of n targets, spread evenly; the others are -100.
Tensor targets_of(int64_t n, int64_t classes, int64_t valid) {
  std::vector<int32_t> t(static_cast<size_t>(n), -100);
  for (int64_t k = 0; k < valid; ++k)
    t[static_cast<size_t>(k * n / valid)] = static_cast<int32_t>((7 * k + k * k) % classes);
  return Tensor::from(t, Dims(n));
}

struct Outcome {
  V loss, dx, dw;
};

struct Problem {
  Problem(int64_t n, int64_t d, int64_t classes, int64_t valid, DType dtype)
      : x(random_tensor({Dims(n, d)}, dtype, 1)),
        w(random_tensor({Dims(classes, d)}, dtype, 2)),
        targets(targets_of(n, classes, valid)) {}

  // chunk 0: linear() and cross_entropy(). `times`: how often, on top of the gradients that are there.
  Outcome run(int64_t chunk, bool x_needs = true, bool w_needs = true, int times = 1) const {
    Tensor input = x.detach(), weight = w.detach();
    if (x_needs) input.set_requires_grad();
    if (w_needs) weight.set_requires_grad();
    Tensor loss;
    for (int i = 0; i < times; ++i) {
      loss = chunk == 0 ? cross_entropy(linear(input, weight), targets)
                        : linear_cross_entropy(input, weight, targets, -100, chunk);
      const Tensor g = Tensor::empty(loss.sizes(), loss.dtype());
      Tensor share = g;
      fill_(share, 0.5);
      if (x_needs || w_needs) backward(loss, share);
    }
    const auto gradient = [](const Tensor& t, bool needed) {
      EXPECT_EQ(t.grad().defined(), needed);
      if (!needed) return V{};
      EXPECT_EQ(t.grad().sizes(), t.sizes());
      EXPECT_EQ(t.grad().dtype(), gradient_dtype_of(t.dtype(), true));
      EXPECT_EQ(t.grad().category(), Category::kGradient);
      return t.grad().to_vector();
    };
    return {loss.to_vector(), gradient(input, x_needs), gradient(weight, w_needs)};
  }
  Tensor x, w, targets;
};

void expect_close(const V& got, const V& want, double relative, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0, worst = 0;
  for (const double v : want) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  EXPECT_LE(worst, relative * largest) << what;
}

TEST(LinearCrossEntropy, Cases) {
  for (const auto& [rows, d, classes] : {std::tuple(Dims(300), 3, 5), {Dims(2, 257), 2, 3}, {Dims(513), 1, 1}})
    for (const int64_t ignore : {-100, 2}) {
      Dims size = rows;
      size[size.rank++] = d;
      OpCase c{"linear_cross_entropy " + str(size) + " of " + std::to_string(classes),
               {{size}, {Dims(classes, d)}, {rows, Input::kIndex, classes}},
               [ignore = ignore](const auto& x) { return linear_cross_entropy(x[0], x[1], x[2], ignore, 256); }};
      c.library_on_card = true;
      run_op_case(c);
    }
}

TEST(LinearCrossEntropy, EqualsLinearAndCrossEntropy) {
  for (const auto& [n, d, classes, valid] :
       {std::tuple(700, 40, 130, 700), {513, 17, 33, 100}, {1536, 64, 257, 1111}, {300, 300, 20, 1}})
    for (const auto& [dtype, loss_error, error] :
         {std::tuple(DType::kF64, 1e-14, 1e-13), {DType::kF32, 2e-6, 2e-5}, {DType::kBF16, 1e-6, 0.01}})
      for (const int64_t chunk : {256, 512}) {
        const Problem p(n, d, classes, valid, dtype);
        const Outcome want = p.run(0), got = p.run(chunk);
        const std::string what =
            std::to_string(n) + " rows in chunks of " + std::to_string(chunk) + " " + name_of(dtype);
        expect_close(got.loss, want.loss, loss_error, "loss of " + what);
        expect_close(got.dx, want.dx, error, "dx of " + what);
        expect_close(got.dw, want.dw, error, "dw of " + what);
        const Outcome only_x = p.run(chunk, true, false), only_w = p.run(chunk, false, true),
                      none = p.run(chunk, false, false);
        EXPECT_EQ(only_x.dx, got.dx) << what;
        EXPECT_EQ(only_w.dw, got.dw) << what;
        EXPECT_EQ(none.loss, got.loss) << what;
      }
}

// A division by a power of two commutes with every rounding: all gradients are those of linear() and cross_entropy().
TEST(LinearCrossEntropy, GradientsHaveTheSameBits) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16})
    for (const auto& [n, d, classes] : {std::tuple(700, 40, 130), {1300, 33, 65}}) {
      const Problem p(n, d, classes, 512, dtype);
      const Outcome want = p.run(0);
      for (const int64_t chunk : {256, 512, 1024}) {
        const Outcome got = p.run(chunk);
        EXPECT_EQ(got.dx, want.dx) << name_of(dtype) << " " << chunk;
        EXPECT_EQ(got.dw, want.dw) << name_of(dtype) << " " << chunk;
      }
    }
}

// Mean and gradients do not depend on the chunks; against one chunk, where cross_entropy() joins the losses in an order
// of its own, only the mean's last bits may.
TEST(LinearCrossEntropy, ChunksDoNotShow) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem p(2100, 24, 50, 1999, dtype);
    const Outcome one = p.run(256);
    for (const int64_t chunk : {512, 768, 2048}) {
      const Outcome other = p.run(chunk);
      EXPECT_EQ(one.loss, other.loss) << chunk;
      EXPECT_EQ(one.dx, other.dx) << chunk;
      EXPECT_EQ(one.dw, other.dw) << chunk;
    }
    EXPECT_NEAR(one.loss[0], p.run(2304).loss[0], 1e-6 * one.loss[0]);
    EXPECT_EQ(p.run(2304).loss, p.run(0).loss);
    EXPECT_EQ(p.run(2304).dw, p.run(0).dw);
  }
}

// The bits of every row's loss, which a chunk shows when all other targets are ignored.
TEST(LinearCrossEntropy, RowsHaveTheSameBits) {
  NoGrad quiet;
  const int64_t n = 600, classes = 90;
  Problem p(n, 20, classes, n, DType::kF32);
  const V each = cross_entropy(linear(p.x, p.w), p.targets, -100, Reduction::kNone).to_vector();
  for (const int64_t row : {0, 1, 255, 256, 300, 511, 512, 599}) {
    std::vector<int32_t> alone(static_cast<size_t>(n), -100);
    alone[static_cast<size_t>(row)] = p.targets.data<int32_t>()[row];
    for (const int64_t chunk : {256, 512})
      EXPECT_EQ(linear_cross_entropy(p.x, p.w, Tensor::from(alone, Dims(n)), -100, chunk).item(), each[row]) << row;
  }
}

TEST(LinearCrossEntropy, EverythingIgnored) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const Outcome r = Problem(600, 5, 7, 0, dtype).run(256);
    EXPECT_TRUE(std::isnan(r.loss[0]));
    EXPECT_EQ(r.dx, V(600 * 5, 0.0));
    EXPECT_EQ(r.dw, V(7 * 5, 0.0));
  }
}

// On top of gradients that are there: sums, rounded once.
TEST(LinearCrossEntropy, GradientsAdd) {
  for (const auto& [dtype, error] : {std::pair(DType::kF64, 1e-13), {DType::kF32, 2e-5}, {DType::kBF16, 0.01}}) {
    const Problem p(600, 30, 44, 555, dtype);
    const Outcome want = p.run(0, true, true, 3), got = p.run(256, true, true, 3);
    expect_close(got.dx, want.dx, error, "dx");
    expect_close(got.dw, want.dw, error, "dw");
  }
}

// The weight is in the path to x too, and x is an activation that is handed over: its gradient is written over it.
TEST(LinearCrossEntropy, TiedWeight) {
  for (const auto& [dtype, error] : {std::pair(DType::kF64, 1e-13), {DType::kF32, 2e-5}, {DType::kBF16, 0.02}}) {
    const Problem p(520, 32, 32, 490, dtype);
    V gradients[3][2];
    for (int way = 0; way < 3; ++way) {  // 0: linear and cross_entropy, 1: x kept, 2: x handed over
      Tensor x = p.x.detach(), w = p.w.detach();
      x.set_requires_grad(), w.set_requires_grad();
      VerifyLaunches verify;
      Tensor hidden = linear(x, w), kept;
      if (way == 1) kept = hidden;
      const V before = hidden.to_vector();
      const Tensor loss = way == 0 ? cross_entropy(linear(hidden, w), p.targets)
                                   : linear_cross_entropy(std::move(hidden), w, p.targets, -100, 256);
      backward(loss);
      if (kept.defined()) {
        EXPECT_EQ(kept.to_vector(), before);
      }
      gradients[way][0] = x.grad().to_vector(), gradients[way][1] = w.grad().to_vector();
    }
    EXPECT_EQ(gradients[1][0], gradients[2][0]);
    EXPECT_EQ(gradients[1][1], gradients[2][1]);
    expect_close(gradients[1][0], gradients[0][0], error, "dx");
    expect_close(gradients[1][1], gradients[0][1], error, "dw");
  }
}

TEST(LinearCrossEntropy, TargetsInI64AndOtherIgnored) {
  const Problem p(400, 6, 9, 400, DType::kF32);
  const Tensor ids = to(p.targets, DType::kI64);
  EXPECT_EQ(linear_cross_entropy(p.x, p.w, ids, 3, 256).item(),
            linear_cross_entropy(p.x, p.w, p.targets, 3, 256).item());
  EXPECT_NEAR(linear_cross_entropy(p.x, p.w, ids, 3, 256).item(), cross_entropy(linear(p.x, p.w), ids, 3).item(), 1e-6);
}

// The same costs and memory on meta, and products' FLOPs those of linear(); the peak is lower by nearly the logits.
TEST(LinearCrossEntropy, MetaAndMemory) {
  const int64_t n = 4096, d = 64, classes = 2000;
  const auto run = [&](Device device, int64_t chunk, bool gradients) {
    Tensor x = Tensor::empty(Dims(n, d), DType::kBF16, device),
           w = Tensor::empty(Dims(classes, d), DType::kBF16, device);
    Tensor ids = Tensor::empty(Dims(n), DType::kI32, device);
    fill_(x, 0), fill_(w, 0), fill_(ids, 3);
    if (gradients) x.set_requires_grad(), w.set_requires_grad();
    LedgerGuard guard;
    Tensor loss = chunk == 0 ? cross_entropy(linear(x, w), ids) : linear_cross_entropy(x, w, ids, -100, chunk);
    if (gradients) backward(loss);
    return std::pair(guard.ledger().cost(), guard.ledger().peak_bytes());
  };
  for (const bool gradients : {true, false}) {
    const auto whole = run(kMetaCpu, 0, gradients), meta = run(kMetaCpu, 256, gradients),
               cpu = run(kCpu, 256, gradients);
    EXPECT_TRUE(meta == cpu);
    EXPECT_EQ(meta.first.matmul_flops, whole.first.matmul_flops);
    const int64_t logits = n * classes * 2, chunk = 256 * classes * 2, sums = gradients ? classes * d * 4 : 0;
    EXPECT_LE(meta.second, whole.second - logits + chunk + sums + 300000) << gradients;
    EXPECT_LT(meta.second, whole.second / 4) << gradients;
  }
}

TEST(LinearCrossEntropy, ChunkRows) {
  const auto rows = [](int64_t n, int64_t classes, DType dtype) {
    return head_chunk_rows(n, Tensor::empty(Dims(classes, 8), dtype, kMetaCpu));
  };
  EXPECT_EQ(rows(65536, 50304, DType::kBF16), 5120);
  EXPECT_EQ(rows(5336, 50304, DType::kBF16), 5336);  // 512 MiB, nearly
  EXPECT_EQ(rows(5337, 50304, DType::kBF16), 2816);  // two chunks
  EXPECT_EQ(rows(65536, 50304, DType::kF32), 2560);
  EXPECT_EQ(rows(1000000, 100, DType::kF32), 1000000);
  EXPECT_EQ(rows(1000, 10000000, DType::kF32), 256);
  EXPECT_EQ(rows(0, 0, DType::kF32), 0);
}

TEST(LinearCrossEntropy, Errors) {
  const Problem p(300, 4, 6, 300, DType::kF32);
  p.targets.data<int32_t>()[290] = 6;
  expect_error([&] { linear_cross_entropy(p.x, p.w, p.targets, -100, 256); },
               "target 6 at position 290 is outside 0..5");
  expect_error([&] { linear_cross_entropy(p.x, p.w, p.targets, -100, 100); },
               "chunks of 100 rows are no multiple of 256");
  expect_error([&] { linear_cross_entropy(p.x, p.x, p.x); }, "indices are i32 or i64, not f32");
  expect_error([&] { linear_cross_entropy(p.x, Tensor::empty(Dims(6, 5)), p.targets); },
               "input (300, 4) does not fit weight (6, 5)");
  expect_error([&] { linear_cross_entropy(p.x, p.w, targets_of(299, 6, 299)); },
               "targets of shape (299,) do not fit an input of shape (300, 4)");
  expect_error([&] { linear_cross_entropy(p.x, Tensor::empty(Dims(6, 4), DType::kF64), p.targets); }, "f32 and f64");
}

}  // namespace
}  // namespace tally::test
