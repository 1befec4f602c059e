// Conversions by copy_() and to(): every pair of dtypes, contiguous and strided, against core/number.h one number at a
// time (which core/dtype_test.cpp checks by exact arithmetic).
#include <cstring>
#include <limits>

#include "tally/core/device.h"
#include "tally/core/number.h"
#include "tally/ops/arithmetic.h"
#include "tally/ops/backward.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/op_test.h"
#include "tally/ops/view.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

// Numbers of dtype t in logical order, on the CPU.
Tensor filled(DType t, const Dims& size, uint64_t seed) {
  Tensor x = Tensor::empty(size, t);
  const int64_t n = size.numel();
  for (int64_t i = 0; i < n; ++i) {
    // Any bits: all exponents, NaN and infinities; every other one of a moderate size.
    const uint64_t bits = uint64_t{random_u32(seed, 0, i)} << 32 | random_u32(seed, 1, i);
    const double moderate = (uniform_from_u32(random_u32(seed, 2, i)) - 0.5) * 1000;
    write_number_bits(x.raw().data, item_size(t), i,
                      t == DType::kBool ? bits & 1
                      : i % 2 == 0      ? bits
                                        : number_bits(t, moderate));
  }
  return x;
}

uint64_t bits_at(const View& v, int64_t at) {
  uint64_t bits = 0;
  std::memcpy(&bits, v.ptr<char>() + at * item_size(v.dtype), static_cast<size_t>(item_size(v.dtype)));
  return bits;
}

bool is_nan_at(const View& v, int64_t at) {
  return is_floating(v.dtype) && std::isnan(read_number(v.data, v.dtype, at));
}

// got, contiguous, against every element of x converted; a card may make another NaN.
void expect_converted(const Tensor& x, const Tensor& got, bool saturate) {
  const Tensor host = to(got, kCpu);
  const View from = x.raw(), out = host.raw();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const uint64_t want =
        x.dtype() == got.dtype() ? bits_at(from, i) : convert_bits(got.dtype(), from.data, from.dtype, i, saturate);
    if (bits_at(out, i) == want) continue;
    View wanted = out;
    wanted.data = const_cast<uint64_t*>(&want);
    ASSERT_TRUE(is_nan_at(out, i) && is_nan_at(wanted, 0))
        << name_of(x.dtype()) << " to " << name_of(got.dtype()) << " element " << i << ": "
        << read_number(from.data, from.dtype, i) << " became " << read_number(out.data, out.dtype, i) << ", not "
        << read_number(&want, got.dtype(), 0);
  }
}

// Short rows and axes of small steps go by ways of their own: the same bits as of contiguous tensors.
TEST(Conversions, ShortAndStridedRowsAsContiguousOnes) {
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32})
    for (const int64_t n : {1, 3, 8, 16, 20, 31, 64, 128, 129})
      for (const int64_t m : {1, 2, 9, 40}) {
        const Tensor a = filled(t, Dims(3, m, 1), 1), b = filled(t, Dims(3, 1, n), 2),
                     c = filled(t, Dims(3, n, 2 * m), 3);
        const Tensor rows = expand(a, Dims(3, m, n)), columns = expand(b, Dims(3, m, n));
        const Tensor turned = transpose(slice(c, 2, 0, kToEnd, 2), 1, 2),
                     steps = slice(filled(t, Dims(3, m, 2 * n), 4), 2, 0, kToEnd, 2);
        for (const Tensor& x : {rows, columns, turned, steps}) {
          const Tensor whole = contiguous(x);
          expect_converted(whole, contiguous(to(x, DType::kF64)), true);
          for (const Tensor& y : {rows, turned, steps}) {
            const Tensor got = contiguous(maximum(x, y)), want = maximum(whole, contiguous(y));
            expect_converted(want, got, true);
          }
        }
      }
}

TEST(Conversions, EveryPairOfDtypes) {
  for (int a = 0; a < kDTypes; ++a)
    for (int b = 0; b < kDTypes; ++b) {
      const auto from = static_cast<DType>(a), into = static_cast<DType>(b);
      if (from == DType::kF4E2M1x2 || into == DType::kF4E2M1x2) continue;
      const Tensor x = filled(from, Dims(3, 5, 67), 7), there = to(x, test_device());
      for (const bool saturate : {true, false}) {
        const Tensor y = Tensor::empty(x.sizes(), into, test_device());
        copy_(y, there, saturate);
        ASSERT_NO_FATAL_FAILURE(expect_converted(x, y, saturate));
        // Through strides on both sides.
        const Tensor flipped = Tensor::empty(Dims(67, 5, 3), into, test_device());
        copy_(transpose(flipped, 0, 2), there, saturate);
        const Tensor back = Tensor::empty(x.sizes(), into, test_device());
        copy_(back, transpose(flipped, 0, 2));
        ASSERT_NO_FATAL_FAILURE(expect_converted(x, back, saturate));
        const Tensor again = Tensor::empty(Dims(67, 5, 3), into, test_device());
        copy_(again, transpose(there, 0, 2), saturate);
        copy_(back, transpose(again, 0, 2));
        ASSERT_NO_FATAL_FAILURE(expect_converted(x, back, saturate));
      }
    }
}

TEST(Conversions, SizesAroundVectorsAndBlocks) {
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2};
  for (const DType from : types)
    for (const DType into : types)
      for (const int64_t n : {0, 1, 7, 8, 16, 31, 511, 513, 4096, 20000}) {
        const Tensor x = filled(from, Dims(n), 11), there = to(x, test_device());
        ASSERT_NO_FATAL_FAILURE(expect_converted(x, to(there, into), true)) << n;
        if (n < 8) continue;
        const Tensor part = Tensor::empty(Dims(n - 3), into, test_device());  // not at a multiple of 16 bytes
        copy_(part, slice(there, 0, 3, n));
        const Tensor host = contiguous(slice(x, 0, 3, n));
        Tensor moved = Tensor::empty(host.sizes(), host.dtype());
        copy_(moved, host);
        ASSERT_NO_FATAL_FAILURE(expect_converted(moved, part, true)) << n;
      }
}

// Every order of the axes, of sizes below, at and above the tiles' sides; x begins anywhere.
TEST(Conversions, AxesInAnyOrder) {
  const std::pair<DType, DType> pairs[] = {{DType::kU8, DType::kU8},   {DType::kF16, DType::kF16},
                                           {DType::kF32, DType::kF32}, {DType::kI64, DType::kI64},
                                           {DType::kF32, DType::kF16}, {DType::kBF16, DType::kF8E4M3},
                                           {DType::kF16, DType::kI32}, {DType::kF8E5M2, DType::kBF16}};
  for (const auto& [from, into] : pairs)
    for (const Dims& size :
         {Dims(8, 8), Dims(7, 40), Dims(33, 129), Dims(70, 3, 67), Dims(9, 10, 11), Dims(2, 64, 1, 65)})
      for (int a = 0; a < size.rank; ++a)
        for (int b = 0; b < a; ++b) {
          const Tensor whole = filled(from, Dims(size.numel() + 3), 5);
          const Tensor x = transpose(view(slice(whole, 0, 3, size.numel() + 3), size), a, b);
          const Tensor there = transpose(view(slice(to(whole, test_device()), 0, 3, size.numel() + 3), size), a, b);
          const Tensor got = Tensor::empty(x.sizes(), into, test_device());
          copy_(got, there);
          const Tensor host = to(got, kCpu), dense = Tensor::empty(x.sizes(), from);
          for (int64_t k = 0; k < x.numel(); ++k)  // x in order, one by one
            write_number_bits(dense.raw().data, item_size(from), k, bits_at(x.raw(), flat_offset(x.raw(), k)));
          ASSERT_NO_FATAL_FAILURE(expect_converted(dense, host, true)) << str(size) << " " << a << " " << b;
        }
}

TEST(Conversions, IntegersDoNotGoThroughFloats) {
  Tensor x = Tensor::empty(Dims(3), DType::kI64);
  const int64_t values[] = {(int64_t{1} << 53) + 1, -(int64_t{1} << 53) - 1, INT64_MIN};
  std::memcpy(x.raw().data, values, sizeof values);
  const Tensor copy = Tensor::empty(Dims(3), DType::kI64, test_device());
  copy_(copy, to(x, test_device()));
  const Tensor host = to(copy, kCpu);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(host.data<int64_t>()[i], values[i]);
  EXPECT_EQ(to(to(to(x, test_device()), DType::kI32), kCpu).to_vector(), (std::vector<double>{1, -1, 0}));
  EXPECT_EQ(to(to(x, test_device()), DType::kBool).to_vector(), (std::vector<double>{1, 1, 1}));
}

TEST(Conversions, ToIsDifferentiableBetweenFloats) {
  for (const DType t : {DType::kF64, DType::kBF16, DType::kF16}) {
    Tensor x = to(Tensor::from(std::vector<float>{1, -2, 3}, Dims(3)), test_device());
    x.set_requires_grad();
    const Tensor y = to(x, t);
    backward(y, to(to(Tensor::from(std::vector<float>{0.5f, 2, 4}, Dims(3)), t), test_device()));
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0.5, 2, 4})) << name_of(t);
    EXPECT_EQ(x.grad().dtype(), DType::kF32);
  }
  Tensor x = Tensor::from(std::vector<float>{1}, Dims(1));
  x.set_requires_grad();
  EXPECT_FALSE(to(x, DType::kF8E8M0).requires_grad());
  EXPECT_FALSE(to(x, DType::kI32).requires_grad());
}

// The gradient is cast as the values are: rounded to f8 and cut at its largest number.
TEST(Conversions, GradientsPassThroughF8) {
  for (const bool e4m3 : {true, false}) {
    Tensor x = to(Tensor::from(std::vector<float>{0.3f, 2, -1}, Dims(3)), test_device());
    x.set_requires_grad();
    const Tensor y = to(x, e4m3 ? DType::kF8E4M3 : DType::kF8E5M2);
    EXPECT_TRUE(y.requires_grad());
    backward(to(y, DType::kF32), to(Tensor::from(std::vector<float>{3.3f, 1e6f, 0.5f}, Dims(3)), test_device()));
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{e4m3 ? 3.25 : 3.5, e4m3 ? 448.0 : 57344.0, 0.5}));
    EXPECT_EQ(x.grad().dtype(), DType::kF32);
  }
}

TEST(Conversions, MetaAndRefusals) {
  const Tensor x = Tensor::empty(Dims(4, 6), DType::kF32, kMetaCpu);
  for (int t = 0; t < kDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (dtype == DType::kF4E2M1x2) continue;
    EXPECT_EQ(to(x, dtype).sizes(), x.sizes());
    EXPECT_EQ(to(x, dtype).dtype(), dtype);
  }
  expect_error([&] { to(x, DType::kF4E2M1x2); }, "copy: f32 to f4e2m1x2: a byte of f4e2m1x2 holds two codes; use quan");
  expect_error([&] { to(Tensor::empty(Dims(2), DType::kF4E2M1x2), DType::kF32); }, "use quantize and dequantize");
  expect_error([&] { copy_(Tensor::empty(Dims(2)), Tensor::empty(Dims(3))); }, "copy: shapes (2,) and (3,) differ");
}

TEST(Traps, O05_F8Overflow) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto converted = [](std::vector<double> values, DType t, bool saturate) {
    const Dims size(static_cast<int64_t>(values.size()));
    const Tensor wide = to(to(Tensor::from(values, size), DType::kF32), test_device());
    return to(to(wide, t, saturate), kCpu).to_vector();
  };
  const auto expect_same = [](const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const bool same = std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i];
      EXPECT_TRUE(same) << i << ": " << got[i] << ", not " << want[i];
    }
  };
  const std::vector<double> e4m3 = {448, 464, 465, 480, 1000, -1000, inf, nan, 0x1p-10, 3 * 0x1p-11};
  expect_same(converted(e4m3, DType::kF8E4M3, true), {448, 448, 448, 448, 448, -448, 448, nan, 0, 0.001953125});
  expect_same(converted(e4m3, DType::kF8E4M3, false), {448, 448, nan, nan, nan, nan, nan, nan, 0, 0.001953125});
  const std::vector<double> e5m2 = {57344, 61439, 61440, 65536};
  expect_same(converted(e5m2, DType::kF8E5M2, true), {57344, 57344, 57344, 57344});
  expect_same(converted(e5m2, DType::kF8E5M2, false), {57344, 57344, inf, inf});
}

}  // namespace
}  // namespace tally::test
