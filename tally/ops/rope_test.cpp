#include "tally/ops/rope.h"

#include "tally/base/parallel.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::NumberOf;

const bool table_reference = test::register_reference<RopeTableArgs>([](const RopeTableArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto& out = io.out(a.out);
  for (int64_t t = 0; t < a.out.size[0]; ++t)
    for (int64_t i = 0; i < a.out.size[1]; ++i) {
      const double frequency = std::pow(a.theta, -static_cast<double>(2 * i) / (2 * a.out.size[1]));
      const N angle = N(static_cast<double>(a.first_position + t)) * N(frequency);
      out(t, i, 0) = test::num_cos(angle);
      out(t, i, 1) = test::num_sin(angle);
    }
});

const bool rope_reference = test::register_reference<RopeArgs>([](const RopeArgs& a, auto& io) {
  using N = NumberOf<decltype(io)>;
  auto x = io.in(a.x);
  auto table = io.in(a.table);
  auto& out = io.out(a.out);
  const int64_t pairs = a.out.size[3] / 2;
  for (int64_t b = 0; b < a.out.size[0]; ++b)
    for (int64_t t = 0; t < a.out.size[1]; ++t)
      for (int64_t h = 0; h < a.out.size[2]; ++h)
        for (int64_t i = 0; i < pairs; ++i) {
          const bool together = a.style == RopeStyle::kInterleaved;
          const int64_t first = together ? 2 * i : i, second = together ? 2 * i + 1 : i + pairs;
          const N c = table(t, i, 0), s = a.inverse ? -table(t, i, 1) : table(t, i, 1);
          out(b, t, h, first) = x(b, t, h, first) * c - x(b, t, h, second) * s;
          out(b, t, h, second) = x(b, t, h, second) * c + x(b, t, h, first) * s;
        }
});

test::OpCase rope_case(const Dims& size, RopeStyle style, int64_t first_row, bool on_device) {
  const Tensor table = rope_table(size[1] + first_row + 2, size[3], 1e4);
  const Tensor position = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(first_row)}, Dims(1));
  return {"rope " + str(size) + (on_device ? " with a position" : ""), {{size}}, [=](const auto& in) {
            const Device device = in[0].device();
            return rope(in[0], to(table, device), first_row, style, on_device ? to(position, device) : Tensor());
          }};
}

TEST(Rope, Cases) {
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit})
    for (const Dims& size : {Dims(1, 1, 1, 2), Dims(2, 3, 2, 4), Dims(1, 5, 3, 6), Dims(2, 4, 1, 64), Dims(1, 2, 2, 34),
                             Dims(1, 2, 1, 520), Dims(0, 3, 2, 4), Dims(2, 0, 2, 4), Dims(1, 2, 0, 4)})
      for (const bool on_device : {false, true}) test::run_op_case(rope_case(size, style, size[1] % 3, on_device));
}

TEST(Rope, Table) {
  test::VerifyLaunches verify;
  for (const int64_t d : {0, 2, 6, 64, 514}) rope_table(9, d, 1e4, 3);
  EXPECT_EQ(rope_table(0, 8, 1e4).sizes(), Dims(0, 4, 2));
}

TEST(Rope, TableFromAPositionIsThatPartOfTheTable) {
  const Tensor whole = rope_table(40, 16, 500000.0), part = rope_table(7, 16, 500000.0, 33);
  EXPECT_EQ(slice(whole, 0, 33, 40).to_vector(), part.to_vector());
}

// Course case C16.
TEST(Rope, C16QuarterExample) {
  const Tensor x = Tensor::from(std::vector<float>{1, 0, 1, 0}, {1, 1, 1, 4});
  const std::vector<double> y = rope(x, rope_table(4, 4, 1e4), 1, RopeStyle::kInterleaved).to_vector();
  const double want[4] = {0.5403023, 0.841471, 0.99995, 0.0099998};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y[i], want[i], 1e-6);
}

TEST(Rope, TrapO13LongPositions) {
  const int64_t positions[4] = {2048, 2049, 4095, 131071};
  const double want[4][2] = {
      {0.9497343, -0.3130570}, {0.7765720, 0.6300285}, {-0.0659760, -0.9978212}, {-0.8179835, -0.5752417}};
  for (int i = 0; i < 4; ++i)
    for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit})
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        std::vector<float> values(64, 0.0f);
        values[0] = 1;
        const Tensor x = to(Tensor::from(values, {1, 1, 1, 64}), dtype);
        const std::vector<double> y = rope(x, rope_table(1, 64, 1e4, positions[i]), 0, style).to_vector();
        const double tolerance = dtype == DType::kF32 ? 1e-6 : 4e-3;
        EXPECT_NEAR(y[0], want[i][0], tolerance) << positions[i];
        EXPECT_NEAR(y[style == RopeStyle::kInterleaved ? 1 : 32], want[i][1], tolerance) << positions[i];
      }
}

TEST(Rope, RowsDoNotDependOnThePlaceInTheCall) {
  const Tensor table = rope_table(8, 12, 1e4);
  const Tensor x = test::random_tensor({{2, 8, 3, 12}}, DType::kF32, 5);
  const Tensor all = rope(x, table, 0, RopeStyle::kHalfSplit);
  for (int64_t t = 0; t < 8; ++t)
    EXPECT_EQ(rope(slice(x, 1, t, t + 1), table, t, RopeStyle::kHalfSplit).to_vector(),
              slice(all, 1, t, t + 1).to_vector());
}

TEST(Rope, Errors) {
  const Tensor table = rope_table(4, 8, 1e4);
  const Tensor x = Tensor::empty({1, 4, 1, 8});
  const auto turn = [&](const Tensor& t, int64_t row) { return rope(t, table, row, RopeStyle::kHalfSplit); };
  test::expect_error([&] { rope_table(4, 7, 1e4); }, "head_dim 7 is not even");
  test::expect_error([&] { rope_table(-1, 8, 1e4); }, "neither may be negative");
  test::expect_error([&] { rope_table(4, 8, 1e4, INT64_MAX); }, "neither may be negative");
  test::expect_error([&] { rope_table(4, 8, 0); }, "theta 0");
  test::expect_error([&] { turn(x, 1); }, "4 positions from row 1 on are outside the table of 4 rows");
  test::expect_error([&] { turn(x, INT64_MAX); }, "outside the table");
  test::expect_error([&] { turn(x, -1); }, "outside the table");
  test::expect_error([&] { turn(Tensor::empty({1, 4, 1, 6}), 0); }, "head size 6");
  test::expect_error([&] { turn(Tensor::empty({4, 8}), 0); }, "not (B, T, H, D)");
  test::expect_error([&] { rope(x, table, 0, RopeStyle::kHalfSplit, Tensor::empty({1})); }, "not f32 of shape (1,)");
  test::expect_error([&] { rope(x, Tensor(), 0, RopeStyle::kHalfSplit); }, "rope_table makes it");
}

}  // namespace
}  // namespace tally
