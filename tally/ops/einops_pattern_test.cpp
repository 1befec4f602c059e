// Parsing of patterns: what is accepted, what each refusal says, and that no text does harm.
#include "tally/ops/einops_pattern.h"

#include "tally/ops/einops.h"
#include "tally/ops/einops_test.h"
#include "tally/ops/einsum.h"
#include "tally/ops/expect.h"
#include "tests/support/support.h"

namespace tally::test {
namespace {

std::string shown(const PatternSide& side) {
  std::string s;
  for (const auto& group : side.groups) {
    s += "[";
    for (const PatternAxis& axis : group) s += (s.back() == '[' ? "" : " ") + axis.name;
    s += "]";
  }
  return s;
}

TEST(EinopsPattern, Sides) {
  EXPECT_EQ(shown(parse_side("b c (h w)")), "[b][c][h w]");
  EXPECT_EQ(shown(parse_side("  batch   (heads hidden1)...")), "[batch][heads hidden1][...]");
  EXPECT_EQ(shown(parse_side("a () 1 (1) (b 1) ( 1 )")), "[a][][][][b][]");
  EXPECT_EQ(shown(parse_side("a(b c)d")), "[a][b c][d]");
  EXPECT_EQ(shown(parse_side("a 12 (b 2)")), "[a][12][b 2]");
  EXPECT_EQ(shown(parse_side("")), "");
  EXPECT_EQ(shown(parse_side("(b ... c)")), "[b ... c]");
  EXPECT_EQ(shown(parse_side("h\xc3\xb6he x_1")), "[h\xc3\xb6he][x_1]");
  EXPECT_EQ(shown(parse_side("_ _ a", {true, false})), "[_][_][a]");
  EXPECT_EQ(shown(parse_side("i i", {false, true})), "[i][i]");
  EXPECT_TRUE(parse_side("... a").ellipsis);
  EXPECT_FALSE(parse_side("... a").ellipsis_in_brackets);
  EXPECT_TRUE(parse_side("(... a)").ellipsis_in_brackets);
  EXPECT_TRUE(parse_side("2 a").numbers);
  EXPECT_FALSE(parse_side("1 a").numbers);
}

TEST(EinopsPattern, Refusals) {
  const std::pair<const char*, const char*> all[] = {
      {"a (b", "brackets are not balanced: '(' is not closed"},
      {"a b)", "brackets are not balanced: ')' without '('"},
      {"((a) b)", "brackets inside brackets are not allowed"},
      {"a a", "axis 'a' stands twice on one side"},
      {"a (b a)", "axis 'a' stands twice on one side"},
      {"...hidden", "invalid axis name '...hidden': an ellipsis stands apart"},
      {"a.b", "dots may stand only in an ellipsis (...): 'a.b'"},
      {"..", "dots may stand only in an ellipsis"},
      {"... a ...", "more than one ellipsis"},
      {"....", "invalid axis name '....'"},
      {"a 0", "must have a positive size"},
      {"a 99999999999999999999", "is too large"},
      {"2a", "invalid axis name '2a': a name does not begin with a digit"},
      {"_a", "invalid axis name '_a': a name neither begins nor ends with an underscore"},
      {"a_", "neither begins nor ends"},
      {"_", "invalid axis name '_'"},
      {"a-b", "unknown character '-'"},
      {"a*", "unknown character '*'"},
      {"a\tb", "unknown character of code 9"},
  };
  for (const auto& [text, message] : all) {
    try {
      parse_side(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::kValue) << text;
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << text << ": " << e.what();
    }
  }
  expect_error([] { split_arrow("a b"); }, "'->' is missing");
  expect_error([] { split_arrow("a -> b -> c"); }, "'->' stands more than once");
}

TEST(EinopsPattern, ParsedOnce) {
  const Tensor x = Tensor::empty(Dims(6, 2));
  rearrange(x, "(parsed once) b -> parsed (once b)", {{"once", 2}});
  const int64_t before = patterns_parsed();
  for (int64_t n : {1, 2, 3}) rearrange(x, "(parsed once) b -> parsed (once b)", {{"once", n}});
  rearrange(Tensor::empty(Dims(4, 1)), "(parsed once) b -> parsed (once b)", {{"parsed", 2}});
  EXPECT_EQ(patterns_parsed(), before);
  rearrange(x, "parsed_once_more b -> b parsed_once_more");
  EXPECT_EQ(patterns_parsed(), before + 1);
}

TEST(EinopsPattern, CacheStaysSmall) {
  PatternCache<int> cache;
  int made = 0;
  for (int i = 0; i < 10000; ++i) cache.get(std::to_string(i), [&](std::string_view) { return ++made; });
  EXPECT_EQ(made, 10000);
  EXPECT_LE(cache.size(), 4096U);
}

// Texts of a pattern's own characters, and of any: each gives a tensor or an Error of one line.
TEST(EinopsPattern, RandomTextsAreHarmless) {
  static const char* const kPieces[] = {
      "a", "b", "c", "hidden", "(", ")", " ", "->", "...", "1",          "2",  "0", "()",   ",",
      "_", "*", " ", "-",      ">", ".", "i", "j",  "ij",  "a b -> b a", "\n", " ", "\xff", "9999999999999999999"};
  const Tensor tensors[] = {Tensor::empty(Dims(), DType::kF32, kMetaCpu), Tensor::empty(Dims(4), DType::kF32, kMetaCpu),
                            Tensor::empty(Dims(2, 6), DType::kF32, kMetaCpu),
                            Tensor::empty(Dims(2, 0, 3), DType::kF32, kMetaCpu)};
  Dice dice(17, 0);
  const auto pick = [&](size_t n) { return static_cast<size_t>(dice(static_cast<int64_t>(n))); };
  int fine = 0, refused = 0;
  for (int round = 0; round < 8000; ++round) {
    std::string text;
    for (size_t n = pick(12); n > 0; --n) text += kPieces[pick(std::size(kPieces))];
    if (round % 5 == 0)
      for (char& c : text) c = pick(4) == 0 ? static_cast<char>(pick(256)) : c;
    const Tensor &x = tensors[pick(4)], &y = tensors[pick(4)];
    const std::function<void()> calls[] = {[&] { rearrange(x, text); },
                                           [&] {
                                             rearrange(x, text, {{"a", 2}});
                                           },
                                           [&] { reduce(x, text, "sum"); },
                                           [&] {
                                             repeat(x, text, {{"hidden", 3}});
                                           },
                                           [&] {
                                             einsum({x, y}, text);
                                           },
                                           [&] { einsum({x}, text); },
                                           [&] { expect(x, text); },
                                           [&] {
                                             pack({x, x}, text);
                                           },
                                           [&] {
                                             unpack(x, {Dims(1), Dims(-1)}, text);
                                           }};
    for (const auto& call : calls) {
      try {
        call();
        ++fine;
      } catch (const Error& e) {
        ++refused;
        ASSERT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      }
    }
  }
  EXPECT_GT(fine, 500);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace tally::test
