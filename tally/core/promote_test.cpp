#include "tally/core/promote.h"

#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;
using enum DType;

// torch.promote_types of PyTorch 2.15, row by row.
TEST(Promote, TableOfPyTorch) {
  const DType types[] = {kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kBool};
  const DType table[10][10] = {{kU8, kI16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kU8},
                               {kI16, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kI8},
                               {kI16, kI16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kI16},
                               {kI32, kI32, kI32, kI32, kI64, kF16, kBF16, kF32, kF64, kI32},
                               {kI64, kI64, kI64, kI64, kI64, kF16, kBF16, kF32, kF64, kI64},
                               {kF16, kF16, kF16, kF16, kF16, kF16, kF32, kF32, kF64, kF16},
                               {kBF16, kBF16, kBF16, kBF16, kBF16, kF32, kBF16, kF32, kF64, kBF16},
                               {kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF64, kF32},
                               {kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64},
                               {kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kBool}};
  for (int i = 0; i < 10; ++i)
    for (int j = 0; j < 10; ++j)
      EXPECT_EQ(promote_types(types[i], types[j]), table[i][j]) << name_of(types[i]) << " " << name_of(types[j]);
}

TEST(Promote, StorageTypesWithThemselvesOnly) {
  EXPECT_EQ(promote_types(kF8E4M3, kF8E4M3), kF8E4M3);
  EXPECT_EQ(promote_types(kU16, kU16), kU16);
  EXPECT_EQ(promote_types(kU16, kF16), kF16);
  for (const DType t : {kF32, kI8, kF8E5M2, kBool})
    expect_error([&] { promote_types(kF8E4M3, t); }, "floats of 8 and 4 bits are for storage; convert with to() first");
  for (const DType t : {kU8, kI64, kBool})
    expect_error([&] { promote_types(t, kU16); }, "u16 is for storage; convert with to() first, to i32");
  try {
    promote_types(kU16, kI8);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::kType);
  }
}

TEST(Promote, ALowerCategoryNeedsAHigherKind) {
  const auto with_axes = [](DType t) { return Tensor::empty(Dims(1), t, kMetaCpu); };
  const auto no_axes = [](DType t) { return Tensor::empty(Dims(), t, kMetaCpu); };
  const Tensor i8 = with_axes(kI8), i32 = with_axes(kI32), f16 = with_axes(kF16), b = with_axes(kBool);
  const Tensor zero_i64 = no_axes(kI64), zero_f64 = no_axes(kF64), zero_bf16 = no_axes(kBF16), zero_b = no_axes(kBool);
  EXPECT_EQ(result_type({i8, zero_i64}), kI8);
  EXPECT_EQ(result_type({i8, 1000}), kI8);
  EXPECT_EQ(result_type({f16, zero_f64}), kF16);
  EXPECT_EQ(result_type({f16, 1e300}), kF16);
  EXPECT_EQ(result_type({i32, zero_bf16}), kBF16);
  EXPECT_EQ(result_type({i32, 1.5}), kF32);
  EXPECT_EQ(result_type({i32, true}), kI32);
  EXPECT_EQ(result_type({b, 1}), kI64);
  EXPECT_EQ(result_type({b, zero_i64}), kI64);
  EXPECT_EQ(result_type({zero_b, 2}), kI64);
  EXPECT_EQ(result_type({zero_i64, 1.5}), kF32);
  EXPECT_EQ(result_type({zero_bf16, 1.5}), kBF16);
  EXPECT_EQ(result_type({zero_i64, zero_bf16}), kBF16);
  EXPECT_EQ(result_type({1, 2.0}), kF32);
  EXPECT_EQ(result_type({true, false}), kBool);
  EXPECT_EQ(result_type({i8, f16, zero_f64, 1.5}), kF16);
}

TEST(Promote, WhatAnInPlaceOpMayWrite) {
  EXPECT_TRUE(can_cast(kF64, kF16));
  EXPECT_TRUE(can_cast(kI64, kF16));
  EXPECT_TRUE(can_cast(kBool, kI8));
  EXPECT_TRUE(can_cast(kI64, kU8));
  EXPECT_FALSE(can_cast(kF16, kI64));
  EXPECT_FALSE(can_cast(kI8, kBool));
  EXPECT_FALSE(can_cast(kF32, kBool));
  EXPECT_EQ(float_type(kI8), kF32);
  EXPECT_EQ(float_type(kF64), kF64);
}

TEST(Scalar, KeepsItsKind) {
  EXPECT_EQ(Scalar(3).dtype(), kI64);
  EXPECT_EQ(Scalar(3u).dtype(), kI64);
  EXPECT_EQ(Scalar(3.0f).dtype(), kF64);
  EXPECT_EQ(Scalar(true).dtype(), kBool);
  EXPECT_EQ(Scalar(INT64_MAX).whole(), INT64_MAX);
  EXPECT_EQ(Scalar(-2.7).whole(), -2);
  EXPECT_EQ(Scalar(1e300).whole(), INT64_MAX);
  EXPECT_EQ(Scalar(-1e300).whole(), INT64_MIN);
  EXPECT_EQ(Scalar(__builtin_nan("")).whole(), 0);
}

}  // namespace
}  // namespace tally
