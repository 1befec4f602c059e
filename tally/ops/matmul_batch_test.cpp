// matmul() and its relatives: every combination of ranks, batches that broadcast, integers.
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"
#include "tally/ops/matmul_int_kernels.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

using V = std::vector<double>;

const bool int_reference = register_reference<MatmulIntArgs>([](const MatmulIntArgs& p, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto a = io.in(p.a), b = io.in(p.b);
  auto& c = io.out(p.c);
  for (int64_t n = 0; n < p.c.size[0]; ++n)
    for (int64_t i = 0; i < p.c.size[1]; ++i)
      for (int64_t j = 0; j < p.c.size[2]; ++j) {
        c(n, i, j) = N(0.0);
        for (int64_t k = 0; k < p.a.size[2]; ++k) mul_add(c(n, i, j), a(n, i, k), b(n, k, j));
      }
});

// Batches of a and b; the matrices are (2, 3) and (3, 4), or vectors.
const std::pair<Dims, Dims> kBatches[] = {{{}, {}},
                                          {Dims(3), {}},
                                          {{}, Dims(3)},
                                          {Dims(3), Dims(3)},
                                          {Dims(1), Dims(3)},
                                          {Dims(3), Dims(1)},
                                          {Dims(2, 3), {}},
                                          {{}, Dims(2, 3)},
                                          {Dims(2, 3), 3},
                                          {3, Dims(2, 3)},
                                          {Dims(2, 1), Dims(3)},
                                          {Dims(2, 1, 2), Dims(3, 1)},
                                          {Dims(1, 2), Dims(3, 1, 1)},
                                          {Dims(2, 2, 2), Dims(2, 1, 2)},
                                          {Dims(2, 1, 1, 3), Dims(2, 2, 1)},
                                          {Dims(0), {}},
                                          {Dims(2, 0), Dims(1)},
                                          {Dims(2, 2, 2, 2), Dims(2, 1, 2, 1)}};

Dims joined(Dims batch, std::initializer_list<int64_t> more) {
  for (const int64_t n : more) batch[batch.rank++] = n;
  return batch;
}

void run(const Dims& a, const Dims& b) {
  OpCase c{"matmul " + str(a) + " " + str(b), {{a}, {b}}, [](const auto& x) { return matmul(x[0], x[1]); }};
  c.library_on_card = true;
  run_op_case(c);
}

TEST(MatmulBatch, EveryRank) {
  for (const auto& [a, b] : kBatches) {
    run(joined(a, {2, 3}), joined(b, {3, 4}));
    if (b.rank == 0) run(joined(a, {2, 3}), Dims(3));
    if (a.rank == 0) run(Dims(3), joined(b, {3, 4}));
  }
  run(Dims(3), Dims(3));
}

// Against a product of copies, on batches that take each of the ways.
TEST(MatmulBatch, BroadcastIsTheCopiesProduct) {
  for (const auto& [a, b] : {std::pair{Dims(40, 1, 2, 3), Dims(1, 3, 3, 2)},
                             {Dims(2, 1, 3, 2, 3), Dims(3, 1, 3, 2)},
                             {Dims(2, 3, 5, 3), Dims(1, 1, 3, 4)},
                             {Dims(50, 1, 2, 3), Dims(50, 3, 4)}}) {
    const Tensor x = to(random_tensor({a}, DType::kF32, 1), test_device());
    const Tensor y = to(random_tensor({b}, DType::kF32, 2), test_device());
    const Tensor z = matmul(x, y);
    Dims full_a = z.sizes(), full_b = z.sizes();
    full_a[z.dim() - 1] = x.size(-1), full_b[z.dim() - 2] = x.size(-1);
    const Tensor copies = matmul(contiguous(expand(x, full_a)), contiguous(expand(y, full_b)));
    if (test_device() == kCpu) {
      EXPECT_EQ(z.to_vector(), copies.to_vector()) << str(a) << " " << str(b);
    }
  }
}

// A shared matrix is not copied for each item, and its gradient needs no batch.
TEST(MatmulBatch, NoCopiesWhereStridesAllow) {
  LedgerGuard guard;
  const auto empty = [](const Dims& size) { return Tensor::empty(size, DType::kF32, kMetaCpu); };
  Tensor x = empty(Dims(8, 1, 64, 32)).set_requires_grad(), w = empty(Dims(16, 32, 64)).set_requires_grad();
  const Tensor y = matmul(x, w);
  EXPECT_EQ(y.sizes(), Dims(8, 16, 64, 64));
  const int64_t data = (x.numel() + w.numel() + y.numel()) * 4;
  EXPECT_LE(guard.ledger().peak_bytes(), data + 3 * int64_t{1572864} + 4096);
  Tensor tokens = empty(Dims(64, 128, 32)).set_requires_grad(), shared = empty(Dims(32, 64)).set_requires_grad();
  LedgerGuard inner;
  backward(matmul(tokens, shared), empty(Dims(64, 128, 64)));
  EXPECT_LE(inner.ledger().peak_bytes(),
            (2 * 64 * 128 * 64 + tokens.numel() + shared.numel()) * 4 + 2 * 1572864 + 4096);
}

TEST(MatmulBatch, Relatives) {
  const auto product = [](const char* name, const Dims& a, const Dims& b, auto f) {
    OpCase c{name, {{a}, {b}}, [f](const auto& x) { return f(x[0], x[1]); }};
    c.library_on_card = true;
    run_op_case(c);
  };
  product("mm", Dims(3, 4), Dims(4, 2), mm);
  product("bmm", Dims(2, 3, 4), Dims(2, 4, 2), bmm);
  product("mv", Dims(3, 4), Dims(4), mv);
  product("dot", Dims(4), Dims(4), dot);
  product("outer", Dims(3), Dims(4), outer);
  OpCase c{"baddbmm", {{Dims(3, 1)}, {Dims(2, 3, 4)}, {Dims(2, 4, 5)}}, [](const auto& x) {
             return baddbmm(x[0], x[1], x[2], 0.5, -2);
           }};
  c.library_on_card = true;
  run_op_case(c);
  expect_error([] { mm(Tensor::empty(Dims(2, 3)), Tensor::empty(Dims(2, 3))); },
               "cannot be multiplied: (2, 3) and (2, 3)");
  expect_error([] { mm(Tensor::empty(Dims(2)), Tensor::empty(Dims(2, 3))); }, "mm: takes two matrices");
  expect_error([] { bmm(Tensor::empty(Dims(2, 3, 4)), Tensor::empty(Dims(1, 4, 4))); }, "bmm: takes");
  expect_error([] { mv(Tensor::empty(Dims(3)), Tensor::empty(Dims(3))); }, "mv: takes");
  expect_error([] { dot(Tensor::empty(Dims(3)), Tensor::empty(Dims(4))); }, "dot: takes");
  expect_error([] { matmul(Tensor::empty(Dims(2)), Tensor::empty({})); }, "need to be at least 1D");
  expect_error([] { matmul(Tensor::empty(Dims(2, 3)), Tensor::empty(Dims(3), DType::kI64)); },
               "expected m1 and m2 to have the same dtype, not f32 and i64");
  expect_error([] { matmul(Tensor::empty(Dims(2, 3, 4)), Tensor::empty(Dims(3, 4, 2))); }, "do not broadcast");
}

TEST(MatmulBatch, Integers) {
  VerifyLaunches verify;
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8}) {
    const auto ints = [dtype](const std::vector<int32_t>& v, const Dims& size) {
      return to(to(Tensor::from(v, size), test_device()), dtype);
    };
    const Tensor a = ints({1, 2, 3, 4, 5, 6}, Dims(2, 3)), b = ints({1, 0, 2, 1, 0, 3}, Dims(3, 2));
    const Tensor c = matmul(a, b);
    EXPECT_EQ(c.dtype(), dtype);
    EXPECT_EQ(c.to_vector(), (V{5, 11, 14, 23}));
    EXPECT_EQ(matmul(transpose(b, 0, 1), transpose(a, 0, 1)).to_vector(), (V{5, 14, 11, 23}));
    EXPECT_EQ(dot(ints({1, 2}, Dims(2)), ints({3, 4}, Dims(2))).to_vector(), (V{11}));
    EXPECT_EQ(matmul(ints({1, 2, 3, 4}, Dims(2, 2, 1)), ints({5, 6}, Dims(1, 2))).to_vector(),
              (V{5, 6, 10, 12, 15, 18, 20, 24}));
    EXPECT_EQ(matmul(ints({}, Dims(2, 0)), ints({}, Dims(0, 2))).to_vector(), (V{0, 0, 0, 0}));
  }
  const Tensor big = to(to(Tensor::from(std::vector<int32_t>{100}, Dims(1)), test_device()), DType::kI8);
  set_launch_observer(nullptr);
  EXPECT_EQ(dot(big, big).item(), 16);  // 10000 - 39 * 256
  expect_error([] { dot(Tensor::empty(Dims(2), DType::kBool), Tensor::empty(Dims(2), DType::kBool)); }, "not bool");
}

}  // namespace
}  // namespace tally::test
