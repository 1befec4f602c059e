#include "tally/ops/attention.h"

#include <limits>

#include "tally/base/parallel.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::mul_add;
using test::NumberOf;
using test::random_tensor;

// What the two references share: the sizes, and the score of a pair.
struct Sizes {
  int64_t batch, tq, tk, heads, group, d;
  bool causal;
  template <class A>
  explicit Sizes(const A& a)
      : batch(a.q.size[0]),
        tq(a.q.size[1]),
        tk(a.k.size[1]),
        heads(a.q.size[2]),
        group(a.k.size[2] == 0 ? 1 : a.q.size[2] / a.k.size[2]),
        d(a.q.size[3]),
        causal(a.causal) {}
  int64_t seen(int64_t i) const {
    int64_t n = 0;
    for (int64_t j = 0; j < tk; ++j) n += !causal || j <= i + tk - tq;
    return n;
  }
};

const bool forward_reference = test::register_reference<AttentionArgs>([](const AttentionArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto q = io.in(a.q), k = io.in(a.k), v = io.in(a.v);
  auto& out = io.out(a.out);
  auto& lse = io.out(a.lse);
  const Sizes s(a);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.tq; ++i) {
        const int64_t seen = s.seen(i);
        std::vector<N> score(seen), sums(s.d, N(0));
        N top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = 0; j < seen; ++j) {
          N dot = 0;
          for (int64_t c = 0; c < s.d; ++c) mul_add(dot, q(b, i, h, c), k(b, j, h / s.group, c));
          score[j] = dot * N(a.scale);
          top = test::num_max(top, score[j]);
        }
        for (int64_t j = 0; j < seen; ++j) {
          const N p = test::num_exp(score[j] - top);
          sum += p;
          for (int64_t c = 0; c < s.d; ++c) mul_add(sums[c], p, v(b, j, h / s.group, c));
        }
        lse(b, h, i) = N(-std::numeric_limits<double>::infinity());
        if (seen > 0) {
          const N inverse = N(1) / sum;
          for (N& x : sums) x *= inverse;
          lse(b, h, i) = top + test::num_log(sum);
        }
        for (int64_t c = 0; c < s.d; ++c) out(b, i, h, c) = sums[c];
      }
});

const bool backward_reference =
    test::register_reference<AttentionBackwardArgs>([](const AttentionBackwardArgs& a, auto& io) {
      using N = NumberOf<decltype(io)>;
      auto grad = io.in(a.grad), q = io.in(a.q), k = io.in(a.k), v = io.in(a.v), out = io.in(a.out), lse = io.in(a.lse);
      auto& dq = io.out(a.dq);
      auto& dk = io.out(a.dk);
      auto& dv = io.out(a.dv);
      const Sizes s(a);
      for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
          for (int64_t i = 0; i < s.tq; ++i) {
            const int64_t seen = s.seen(i), kv = h / s.group;
            N delta = 0;
            for (int64_t c = 0; c < s.d && seen > 0; ++c) delta += grad(b, i, h, c) * out(b, i, h, c);
            for (int64_t j = 0; j < seen; ++j) {
              N dot = 0, dp = 0;
              for (int64_t c = 0; c < s.d; ++c) mul_add(dot, q(b, i, h, c), k(b, j, kv, c));
              const N p = test::num_exp(dot * N(a.scale) - lse(b, h, i));
              for (int64_t c = 0; c < s.d; ++c) mul_add(dp, grad(b, i, h, c), v(b, j, kv, c));
              const N ds = p * (dp - delta) * N(a.scale);
              for (int64_t c = 0; c < s.d; ++c) {
                mul_add(dv(b, j, kv, c), p, grad(b, i, h, c));
                mul_add(dq(b, i, h, c), ds, k(b, j, kv, c));
                mul_add(dk(b, j, kv, c), ds, q(b, i, h, c));
              }
            }
          }
    });

struct Shape {
  int64_t b, tq, tk, h, hkv, d;
};

test::OpCase attention_case(const Shape& s, bool causal) {
  const Dims q(s.b, s.tq, s.h, s.d), k(s.b, s.tk, s.hkv, s.d);
  return {"attention " + str(q) + " on " + str(k) + (causal ? " causal" : ""),
          {{q}, {k}, {k}},
          [causal](const auto& in) { return attention(in[0], in[1], in[2], causal); }};
}

TEST(Attention, SmallShapes) {
  for (const int64_t tq : {0, 1, 2, 5})
    for (const int64_t tk : {0, 1, 3, 5})
      for (const int64_t d : {1, 3, 16})
        for (const bool causal : {false, true}) {
          test::run_op_case(attention_case({1, tq, tk, 2, 2, d}, causal));
          test::run_op_case(attention_case({2, tq, tk, 4, 2, d}, causal));
          test::run_op_case(attention_case({2, tq, tk, 3, 1, d}, causal));
        }
  for (const Shape& s : {Shape{0, 2, 2, 2, 1, 4}, {1, 2, 2, 0, 0, 4}, {1, 2, 3, 2, 1, 0}})
    for (const bool causal : {false, true}) test::run_op_case(attention_case(s, causal));
}

// Sizes around a block of keys (64, or 32 for large heads), a tile of rows and a vector; f64 gradients are left out,
// where a small shape has shown the same code.
TEST(Attention, SizesAroundBlocks) {
  const auto run = [](const Shape& s, DType dtype, bool causal) {
    Tensor q = random_tensor({{s.b, s.tq, s.h, s.d}}, dtype, 1).set_requires_grad();
    Tensor k = random_tensor({{s.b, s.tk, s.hkv, s.d}}, dtype, 2).set_requires_grad();
    Tensor v = random_tensor({{s.b, s.tk, s.hkv, s.d}}, dtype, 3).set_requires_grad();
    const Tensor g = random_tensor({{s.b, s.tq, s.h, s.d}}, dtype, 4);
    test::VerifyLaunches verify;
    SCOPED_TRACE(attention_case(s, causal).name);
    backward(attention(q, k, v, causal), g);
  };
  const int64_t damaged = damaged_guards();
  for (const bool causal : {false, true})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const Shape& s : {Shape{1, 63, 63, 1, 1, 16},
                             {1, 64, 64, 1, 1, 32},
                             {1, 65, 65, 1, 1, 48},
                             {1, 97, 97, 2, 1, 64},
                             {1, 130, 130, 1, 1, 17},
                             {1, 7, 150, 3, 1, 80},
                             {1, 150, 70, 2, 2, 20},
                             {2, 50, 50, 2, 1, 128},
                             {1, 34, 70, 2, 1, 130},
                             {1, 60, 33, 1, 1, 256},
                             {1, 1, 200, 4, 2, 64},
                             {1, 33, 161, 5, 1, 8}})
        run(s, dtype, causal);
  EXPECT_EQ(damaged_guards(), damaged);
}

// Trap O04: a query that sees no key gives zeros and finite gradients.
TEST(Attention, TrapO04RowsWithoutKeys) {
  Tensor q = Tensor::from(std::vector<float>{1, 0, 0, 1}, {1, 2, 1, 2}).set_requires_grad();
  Tensor k = Tensor::from(std::vector<float>{1, 0}, {1, 1, 1, 2}).set_requires_grad();
  Tensor v = Tensor::from(std::vector<float>{1, 2}, {1, 1, 1, 2}).set_requires_grad();
  const Tensor y = attention(q, k, v, true);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{0, 0, 1, 2}));
  backward(y, Tensor::from(std::vector<float>{5, 6, 7, 8}, {1, 2, 1, 2}));
  EXPECT_EQ(q.grad().to_vector(), std::vector<double>(4, 0.0));
  EXPECT_EQ(k.grad().to_vector(), std::vector<double>(2, 0.0));
  EXPECT_EQ(v.grad().to_vector(), (std::vector<double>{7, 8}));
}

// One query at a time against a growing cache, a chunk at a time, or all at once: the same bits.
TEST(Attention, DecodingEqualsTheWholeSequence) {
  for (const int64_t d : {20, 64, 160}) {
    const int64_t t = 150;
    const Tensor q = random_tensor({{1, t, 4, d}}, DType::kF32, 1), k = random_tensor({{1, t, 2, d}}, DType::kF32, 2),
                 v = random_tensor({{1, t, 2, d}}, DType::kF32, 3);
    const Tensor whole = attention(q, k, v, true);
    for (const int64_t chunk : {1, 7, 64})
      for (int64_t i = 0; i < t; i += chunk) {
        const int64_t end = std::min(t, i + chunk);
        EXPECT_EQ(attention(slice(q, 1, i, end), slice(k, 1, 0, end), slice(v, 1, 0, end), true).to_vector(),
                  slice(whole, 1, i, end).to_vector())
            << d << " " << i;
      }
  }
}

// The same of a cache that is larger than what is in it, its position beside the host's number.
test::OpCase cached_case(const Shape& s, int64_t capacity) {
  const Dims q(s.b, s.tq, s.h, s.d), cache(s.b, capacity, s.hkv, s.d);
  using test::Input;
  return {"attention_cached " + str(q) + " on " + std::to_string(s.tk) + " of " + str(cache),
          {{q, Input::kNormal, 0, false}, {cache, Input::kNormal, 0, false}, {cache, Input::kNormal, 0, false}},
          [=](const auto& in) {
            const std::vector<int32_t> first = {static_cast<int32_t>(s.tk - s.tq)};
            return attention_cached(in[0], slice(in[1], 1, 0, s.tk), slice(in[2], 1, 0, s.tk),
                                    to(Tensor::from(first, Dims(1)), in[0].device()), capacity);
          },
          /*bf16=*/true,
          /*layouts=*/false};
}

TEST(Attention, Cached) {
  for (const Shape& s : {Shape{1, 1, 1, 1, 1, 1},
                         {2, 1, 3, 4, 2, 16},
                         {2, 3, 5, 3, 1, 32},
                         {1, 1, 70, 40, 2, 32},
                         {2, 2, 130, 20, 1, 64},
                         {1, 5, 20, 2, 2, 20},
                         {1, 1, 9, 4, 2, 128},
                         {2, 0, 3, 2, 1, 8}})
    for (const int64_t more : {0, 9}) test::run_op_case(cached_case(s, s.tk + more));
}

TEST(Attention, CachedHasTheBitsOfTheOther) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor q = random_tensor({{2, 1, 4, 24}}, dtype, 1), k = random_tensor({{2, 90, 2, 24}}, dtype, 2),
                 v = random_tensor({{2, 90, 2, 24}}, dtype, 3);
    for (const int64_t n : {1, 63, 64, 65, 90}) {
      const Tensor keys = slice(k, 1, 0, n), values = slice(v, 1, 0, n);
      const Tensor position = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(n - 1)}, Dims(1));
      EXPECT_EQ(attention_cached(q, keys, values, position, 90).to_vector(),
                attention(q, keys, values, true).to_vector());
    }
  }
}

TEST(Attention, ARowDoesNotDependOnItsBatchOrHeads) {
  const Tensor q = random_tensor({{3, 70, 6, 24}}, DType::kF32, 1), k = random_tensor({{3, 70, 3, 24}}, DType::kF32, 2),
               v = random_tensor({{3, 70, 3, 24}}, DType::kF32, 3);
  const Tensor whole = attention(q, k, v, false);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t h = 0; h < 6; ++h) {
      const auto part = [&](const Tensor& x, int64_t head) { return slice(slice(x, 0, b, b + 1), 2, head, head + 1); };
      EXPECT_EQ(attention(part(q, h), part(k, h / 2), part(v, h / 2), false).to_vector(), part(whole, h).to_vector());
    }
}

// What a causal mask hides may be anything.
TEST(Attention, HiddenKeysAreNeverTouched) {
  const int64_t t = 75, d = 16;
  const Tensor q = random_tensor({{1, t, 1, d}}, DType::kF32, 1), k = random_tensor({{1, t, 1, d}}, DType::kF32, 2),
               v = random_tensor({{1, t, 1, d}}, DType::kF32, 3);
  const std::vector<double> clean = slice(attention(q, k, v, true), 1, 0, 70).to_vector();
  Tensor bad_k = slice(k, 1, 70, t), bad_v = slice(v, 1, 70, t);
  fill_(bad_k, std::numeric_limits<double>::infinity());
  fill_(bad_v, std::nan(""));
  EXPECT_EQ(slice(attention(q, k, v, true), 1, 0, 70).to_vector(), clean);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Tensor q = Tensor::empty({1, 90, 1, 16}), v = random_tensor({{1, 90, 1, 16}}, DType::kF32, 3);
  fill_(q, 100);
  const std::vector<double> y = attention(q, q, v, false).to_vector();
  for (int c = 0; c < 16; ++c) {
    double mean = 0;
    for (int j = 0; j < 90; ++j) mean += v.to_vector()[j * 16 + c] / 90;
    EXPECT_NEAR(y[c], mean, 1e-6);
  }
}

TEST(Attention, MemoryIsLinearInTheLength) {
  const auto peak = [](int64_t t) {
    LedgerGuard guard;
    Tensor q = Tensor::empty({1, t, 2, 64}, DType::kF32, kMetaCpu).set_requires_grad();
    backward(attention(q, q, q, true), Tensor::empty({1, t, 2, 64}, DType::kF32, kMetaCpu));
    return guard.ledger().peak_bytes();
  };
  EXPECT_LE(peak(8192), 2 * peak(4096));
}

TEST(Attention, CostOfACausalPrefix) {
  LedgerGuard guard;
  const Tensor q = Tensor::empty({2, 10, 4, 8}, DType::kF32, kMetaCpu);
  attention(q, q, q, true);
  EXPECT_EQ(guard.ledger().cost().matmul_flops, 2 * 4 * 55 * 4 * 8);
}

TEST(Attention, Errors) {
  const auto shape = [](const Dims& size, DType t = DType::kF32) { return Tensor::empty(size, t); };
  const Tensor q = shape({1, 2, 4, 8}), k = shape({1, 2, 2, 8});
  test::expect_error(
      [&] {
        attention(q, shape({1, 2, 3, 8}), shape({1, 2, 3, 8}), true);
      },
      "4 heads are not a multiple");
  test::expect_error([&] { attention(q, shape({1, 2, 0, 8}), shape({1, 2, 0, 8}), true); }, "not a multiple of 0");
  test::expect_error([&] { attention(q, k, shape({1, 3, 2, 8}), true); }, "differ");
  const Tensor position = shape({1}, DType::kI32);
  test::expect_error([&] { attention_cached(q, k, k, position, 1); }, "2 queries of 2 keys in a cache of 1");
  test::expect_error([&] { attention_cached(q, slice(k, 1, 0, 1), slice(k, 1, 0, 1), position, 8); }, "2 queries of 1");
  test::expect_error([&] { attention_cached(q, k, k, shape({1}), 8); }, "a position is an i32");
  const Tensor turned = transpose(shape({1, 2, 8, 2}), 2, 3);
  test::expect_error([&] { attention_cached(q, turned, turned, position, 8); }, "not contiguous");
  test::expect_error([&] { attention(q, shape({2, 2, 2, 8}), shape({2, 2, 2, 8}), true); }, "batch or head size");
  test::expect_error([&] { attention(q, shape({1, 2, 2, 8}, DType::kBF16), k, true); }, "dtypes");
  test::expect_error([&] { attention(shape({2, 4, 8}), k, k, true); }, "not (B, T, H, D)");
  test::expect_error(
      [&] {
        attention(shape({1, 2, 2, 300}), shape({1, 2, 2, 300}), shape({1, 2, 2, 300}), true);
      },
      "beyond 256");
}

}  // namespace
}  // namespace tally
