// Stated shapes: what is bound, what is refused.
#include "tally/ops/expect.h"

#include "tests/support/support.h"

namespace tally::test {
namespace {

Tensor of(const Dims& size) { return Tensor::empty(size, DType::kF32, kMetaCpu); }

TEST(Expect, BindsNamesToSizes) {
  const Shapes s = expect(of(Dims(2, 3, 4, 5)), "batch seq heads hidden");
  EXPECT_EQ(s["batch"], 2);
  EXPECT_EQ(s["hidden"], 5);
  EXPECT_TRUE(s.has("seq"));
  EXPECT_FALSE(s.has("d"));
  EXPECT_EQ(s.all().size(), 4U);
  expect_error([&] { s["d"]; }, "expect: no axis 'd' has been bound");
}

TEST(Expect, SeveralTensorsAgree) {
  Shapes s;
  s.expect(of(Dims(2, 3, 8)), "batch seq d", "x").expect(of(Dims(8, 5)), "d k", "w");
  EXPECT_EQ(s["k"], 5);
  expect_error([&] { s.expect(of(Dims(7, 5)), "d k", "v"); },
               "expect: v of shape (7, 5) is not \"d k\": axis 0 (d) wants 8, got 7");
  expect_error([&] { s.expect(of(Dims(9, 5, 4)), "new k k"); }, "axis 2 (k) wants 5, got 4");
  EXPECT_FALSE(s.has("new"));  // nothing is bound by a shape that is refused
  expect_error([&] { expect(of(Dims(3, 4)), "n n", "m"); },
               "m of shape (3, 4) is not \"n n\": axis 1 (n) wants 3, got 4");
  expect(of(Dims(3, 3)), "n n");
}

TEST(Expect, NumbersEllipsisAndWildcards) {
  expect(of(Dims(2, 1, 3)), "b 1 3");
  expect(of(Dims(2, 7, 3)), "_ _ 3");
  expect(of(Dims()), "");
  expect(of(Dims()), "...");
  expect(of(Dims(0, 4)), "n 4");
  EXPECT_EQ(expect(of(Dims(2, 3, 4)), "... d")["d"], 4);
  EXPECT_EQ(expect(of(Dims(4)), "... d")["d"], 4);
  const Shapes s = expect(of(Dims(2, 3, 4)), "b ... d");
  EXPECT_EQ(s["b"] * 10 + s["d"], 24);
  expect_error([] { expect(of(Dims(2, 3)), "b 1", "mask"); },
               "mask of shape (2, 3) is not \"b 1\": axis 1 wants 1, got 3");
  expect_error([] { expect(of(Dims(2, 3)), "b 4"); }, "tensor of shape (2, 3) is not \"b 4\": axis 1 wants 4, got 3");
  expect_error([] { expect(of(Dims(2, 3)), "b"); }, "1 axes wanted, 2 there");
  expect_error([] { expect(of(Dims(2)), "a ... b"); }, "at least 2 axes wanted, 1 there");
}

TEST(Expect, BadPatterns) {
  expect_error([] { expect(of(Dims(2)), "(a b)"); },
               "expect: brackets are not part of a shape in pattern \"(a b)\" of tensor");
  expect_error([] { expect(of(Dims(2)), "a-b"); }, "unknown character '-'");
  expect_error([] { expect(of(Dims(2)), "...a"); }, "invalid axis name '...a'");
  expect_error([] { expect(of(Dims(2)), "... ..."); }, "more than one ellipsis");
  expect_error([] { expect(of(Dims(2)), "0"); }, "must have a positive size");
  expect_error([] { expect(Tensor(), "a", "x"); }, "expect: x is missing");
  try {
    expect(of(Dims(2)), "a b");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::kValue);
  }
}

}  // namespace
}  // namespace tally::test
