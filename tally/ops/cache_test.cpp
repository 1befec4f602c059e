#include "tally/ops/cache.h"

#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/op_test.h"
#include "tally/ops/rope.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::NumberOf;
using test::random_tensor;
using test::test_device;

// x turned by the table's row of its position, as rope() does it.
template <class X, class Table, class Y>
void turn_reference(const View& v, const X& x, const Table& table, RopeStyle style, int64_t first, Y& y) {
  const int64_t pairs = v.size[3] / 2;
  for (int64_t b = 0; b < v.size[0]; ++b)
    for (int64_t t = 0; t < v.size[1]; ++t)
      for (int64_t h = 0; h < v.size[2]; ++h)
        for (int64_t p = 0; p < pairs; ++p) {
          const bool together = style == RopeStyle::kInterleaved;
          const int64_t i = together ? 2 * p : p, j = together ? 2 * p + 1 : p + pairs;
          const auto c = table(t, p, 0), s = table(t, p, 1);
          y(b, first + t, h, i) = x(b, t, h, i) * c - x(b, t, h, j) * s;
          y(b, first + t, h, j) = x(b, t, h, j) * c + x(b, t, h, i) * s;
        }
}

const bool write_reference = test::register_reference<CacheWriteArgs>([](const CacheWriteArgs& a, auto& io) {
  const View* const from[2] = {&a.k, &a.v};
  const View* const to[2] = {&a.keys, &a.values};
  const bool turned = a.table.rank() > 0;
  for (int i = 0; i < 2; ++i) {
    auto x = io.in(*from[i]);
    auto& y = io.inout(*to[i]);
    if (turned && i == 0) {
      turn_reference(a.k, x, io.in(a.table), a.style, a.first, y);
      continue;
    }
    for (int64_t b = 0; b < a.k.size[0]; ++b)
      for (int64_t t = 0; t < a.k.size[1]; ++t)
        for (int64_t h = 0; h < a.k.size[2]; ++h)
          for (int64_t c = 0; c < a.k.size[3]; ++c) y(b, a.first + t, h, c) = x(b, t, h, c);
  }
  if (turned) turn_reference(a.q, io.in(a.q), io.in(a.table), a.style, 0, io.out(a.turned));
});

const bool advance_reference = test::register_reference<CacheAdvanceArgs>([](const CacheAdvanceArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  io.inout(a.position).flat(0) += N(static_cast<double>(a.by));
});

Tensor position_of(int64_t first) {
  return to(Tensor::from(std::vector<int32_t>{static_cast<int32_t>(first)}, Dims(1)), test_device());
}

// The cache after k and v were written into one of zeros, keys before values.
test::OpCase write_case(const Dims& size, int64_t capacity, int64_t first, bool on_device) {
  return {"cache_write " + str(size) + " at " + std::to_string(first) + " of " + std::to_string(capacity),
          {{size, test::Input::kNormal, 0, false}, {size, test::Input::kNormal, 0, false}},
          [=](const auto& in) {
            Tensor cache = Tensor::empty({2, size[0], capacity, size[2], size[3]}, in[0].dtype(), in[0].device());
            fill_(cache, 0);
            const Dims one(size[0], capacity, size[2], size[3]);
            const Tensor keys = squeeze(slice(cache, 0, 0, 1), 0), values = squeeze(slice(cache, 0, 1, 2), 0);
            cache_write(keys, values, in[0], in[1], first, on_device ? position_of(first) : Tensor());
            return cache;
          }};
}

TEST(Cache, Cases) {
  for (const bool on_device : {false, true})
    for (const Dims& size : {Dims(1, 1, 1, 1), Dims(2, 1, 2, 8), Dims(2, 3, 2, 6), Dims(3, 1, 4, 64), Dims(1, 40, 3, 5),
                             Dims(2, 0, 2, 4), Dims(0, 1, 2, 4), Dims(1, 2, 0, 4)})
      for (const int64_t first : {0, 3}) {
        test::run_op_case(write_case(size, size[1] + first, first, on_device));
        test::run_op_case(write_case(size, size[1] + first + 2, first, on_device));
      }
}

// The turned queries, then the cache as above. The same numbers, to the bit, as by rope() and cache_write().
TEST(Cache, RopeOnTheWay) {
  for (const bool on_device : {false, true})
    for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit})
      for (const auto& [b, t, heads, kv_heads, d] :
           {std::tuple(1, 1, 1, 1, 2), {2, 1, 4, 2, 8}, {2, 3, 6, 2, 6}, {1, 1, 32, 4, 64}, {2, 1, 5, 5, 10}}) {
        const Dims q(b, t, heads, d), k(b, t, kv_heads, d);
        constexpr int64_t kCapacity = 9, kFirst = 5;
        const auto write = [=](const auto& in, bool at_once) {
          const Tensor table = rope_table(kCapacity, in[1].size(3), 1e4, 0, in[0].device());
          const Tensor position = on_device ? position_of(kFirst) : Tensor();
          Tensor cache = Tensor::empty({2, k[0], kCapacity, k[2], k[3]}, in[0].dtype(), in[0].device());
          fill_(cache, 0);
          const Tensor keys = squeeze(slice(cache, 0, 0, 1), 0), values = squeeze(slice(cache, 0, 1, 2), 0);
          Tensor turned;
          if (at_once) {
            turned = rope_cache_write(keys, values, in[0], in[1], in[2], table, style, kFirst, position);
          } else {
            turned = rope(in[0], table, kFirst, style, position);
            cache_write(keys, values, rope(in[1], table, kFirst, style, position), in[2], kFirst, position);
          }
          return cat({view(turned, Dims(turned.numel())), view(cache, Dims(cache.numel()))}, 0);
        };
        test::OpCase c{
            "rope_cache_write " + str(q) + " and " + str(k), {}, [=](const auto& in) { return write(in, true); }};
        for (const Dims& size : {q, k, k}) c.inputs.push_back({size, test::Input::kNormal, 0, false});
        test::run_op_case(c);
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          std::vector<Tensor> in;
          for (const Dims& size : {q, k, k})
            in.push_back(to(random_tensor({size}, dtype, 1 + in.size()), test_device()));
          EXPECT_EQ(write(in, true).to_vector(), write(in, false).to_vector()) << c.name;
        }
      }
}

TEST(Cache, ThePositionMoves) {
  test::VerifyLaunches verify;
  const Tensor position = position_of(7);
  cache_advance(position, 1);
  cache_advance(position, 30);
  cache_advance(position, -8);
  EXPECT_EQ(position.to_vector(), std::vector<double>{30});
}

TEST(Cache, Errors) {
  const auto shape = [](const Dims& size, DType t = DType::kF32) { return Tensor::empty(size, t); };
  const Tensor cache = shape({1, 4, 2, 8}), k = shape({1, 2, 2, 8});
  test::expect_error([&] { cache_write(cache, cache, k, k, 3); }, "2 positions from 3 on are beyond the capacity of 4");
  test::expect_error([&] { cache_write(cache, cache, k, k, -1); }, "beyond the capacity");
  test::expect_error([&] { cache_write(cache, cache, k, shape({1, 1, 2, 8}), 0); }, "differ");
  test::expect_error([&] { cache_write(cache, cache, shape({1, 2, 1, 8}), shape({1, 2, 1, 8}), 0); }, "does not fit");
  test::expect_error([&] { cache_write(cache, cache, k, shape({1, 2, 2, 8}, DType::kBF16), 0); }, "dtypes");
  test::expect_error([&] { cache_write(shape({4, 2, 8}), shape({4, 2, 8}), k, k, 0); }, "not (B, T, H, D)");
  test::expect_error([&] { cache_write(cache, cache, k, k, 0, shape({1})); }, "an i32 of shape (1,), not f32");
  test::expect_error([&] { cache_write(cache, cache, k, k, 0, shape({2}, DType::kI32)); }, "not i32 of shape (2,)");
  test::expect_error([&] { cache_advance(Tensor(), 1); }, "missing");
}

}  // namespace
}  // namespace tally
