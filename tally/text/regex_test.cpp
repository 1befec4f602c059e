// The engine for expressions without a scanner: what it takes, what it refuses, and what PCRE2 alone would get wrong.
#include "tally/text/regex.h"

#include <gtest/gtest.h>

#include <thread>

#include "tally/text/pattern_cases.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(const std::string& expression, std::string_view text) {
  return pattern_cases::pieces_of(Regex(expression), text);
}

TEST(Regex, UnmatchedTextIsAPiece) {
  EXPECT_EQ(split("\\d+", "ab12c3"), (Pieces{"ab", "12", "c", "3"}));
  EXPECT_EQ(split("x", "abc"), (Pieces{"abc"}));
  EXPECT_EQ(split("\\w+|.", "I'll say!"), (Pieces{"I", "'", "ll", " ", "say", "!"}));
  EXPECT_TRUE(split("a", "").empty());
}

TEST(Regex, AnEmptyMatchIsABorder) {
  EXPECT_EQ(split("", "abc"), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(split("a*", "bba\u00e9aa"), (Pieces{"b", "b", "a", "\u00e9", "aa"}));
  EXPECT_EQ(split("(?=b)", "aabb"), (Pieces{"aa", "b", "b"}));
  EXPECT_EQ(split("$", "ab\n"), (Pieces{"ab\n"}));
  EXPECT_EQ(split("b*?", "\U0001f600b"), (Pieces{"\U0001f600", "b"}));
}

TEST(Regex, WhiteSpaceIsTheUnicodeProperty) {
  const std::string text = "a\u180eb\u200bc\u0085d\u3000e\x1c";
  EXPECT_EQ(split("\\s", text), (Pieces{"a\u180eb\u200bc", "\u0085", "d", "\u3000", "e\x1c"}));
  EXPECT_EQ(split("[\\s]", text), split("\\s", text));
  EXPECT_EQ(split("[[:space:]]", text), split("\\s", text));
  EXPECT_EQ(split("\\S+", text), split("[^\\s]+", text));
  EXPECT_EQ(split("[\\Sx]+", text), split("\\S+", text));
  EXPECT_EQ(split("[^\\S\\n]", "a \nb"), (Pieces{"a", " ", "\nb"}));
  EXPECT_EQ(split("\\Q\\s\\E", "a\\s "), (Pieces{"a", "\\s", " "}));  // quoted: two characters
  EXPECT_EQ(split("\\\\s", "a\\s "), (Pieces{"a", "\\s", " "}));
  EXPECT_EQ(split("[]\\s]", "a] "), (Pieces{"a", "]", " "}));
  EXPECT_EQ(split("(?x) [ab] # it's [ \n \\s", "a b"), (Pieces{"a ", "b"}));
}

TEST(Regex, PossessiveLookAheadAndTheEndOfTheText) {
  EXPECT_EQ(split("\\s++$|\\s+(?!\\S)|\\s|\\S+", "a  b  "), (Pieces{"a", " ", " ", "b", "  "}));
  EXPECT_EQ(split("a$", "a\n"), (Pieces{"a\n"}));  // not before a last newline
  EXPECT_EQ(split("(?<=a)b", "bab"), (Pieces{"ba", "b"}));
  EXPECT_EQ(split("(?i:'s)", "x'\u017fy"), (Pieces{"x", "'\u017f", "y"}));
  EXPECT_EQ(split(".", "a\r\n"), (Pieces{"a", "\r", "\n"}));
}

TEST(Regex, BrokenBytesAreSymbols) {
  EXPECT_EQ(split("\\p{L}+|[^\\s\\p{L}]+", "a\xff\xe2\x80z"), (Pieces{"a", "\xff\xe2\x80", "z"}));
  EXPECT_EQ(split("\\p{So}", "\xff\xffz\xef\xbf\xbd"), (Pieces{"\xff", "\xff", "z", "\xef\xbf\xbd"}));
  EXPECT_EQ(split(".", "\xed\xa0\x80"), (Pieces{"\xed", "\xa0", "\x80"}));
  EXPECT_EQ(split("z", "\xff\xff"), (Pieces{"\xff\xff"}));
  const Pattern pattern = Pattern::regex("\\p{L}+");
  const std::string_view text = "\xff\xffzz\xff";
  EXPECT_EQ(pattern.piece(text, 0), 2u);
  EXPECT_EQ(pattern.piece(text, 2), 2u);
  EXPECT_EQ(pattern.piece(text, 4), 1u);
}

TEST(Regex, WrongExpressionsSayWhere) {
  using test::expect_error;
  expect_error([] { Regex("ab(c"); }, "\"ab(c\" is wrong at offset 4: missing closing parenthesis");
  expect_error([] { Regex("\\s\\s[z-a]"); }, "at offset 7: range out of order");
  expect_error([] { Regex("a\xff"); }, "at offset 1");
  expect_error([] { Regex("\\p{Wrong}"); }, "unknown property");
  expect_error([] { Regex("a\\C"); }, "at offset");
  expect_error([] { Regex("[\\p{L}&&[^a]]"); }, "&& in a class at offset 6");
  expect_error([] { Regex(std::string(300, '(')); }, "at offset");
  expect_error([] { Regex(std::string(1'000'000, 'a')); }, "too large");
  for (const char* odd : {"[", "[^", "[]", "[[:", "\\", "\\Q", "(?", "(?#", "(?x", "[\\", "(?x)#", "*", "\\Q\\"}) try {
      Regex{odd};
    } catch (const Error&) {
    }
}

TEST(Regex, RunawayExpressionsAreErrors) {
  const std::string letters(40, 'a'), many(10'000'000, 'a');
  test::expect_error([&] { split("(a+)+$", letters + "b"); }, "too many steps");
  test::expect_error([&] { split("(?:(?:a|aa)+)+$", letters + "b"); }, "too many steps");
  test::expect_error([&] { split("(?:(a)|b)*c", many); }, "too m");
  test::expect_error([&] { split("(a(?1)?b)", many); }, "too much memory");
}

TEST(Regex, TenMegabytesOfOneCharacter) {
  for (const std::string& unit : {std::string("a"), std::string(" "), std::string("\U0001f600"), std::string("\xff")}) {
    std::string text;
    while (text.size() < 10'000'000) text += unit;
    for (const char* expression : {"\\p{L}+| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s", "x", "."}) {
      const Regex regex(expression);
      RegexPieces pieces(regex, text, 0);
      size_t at = 0;
      while (at < text.size()) at += pieces.next();
      ASSERT_EQ(at, text.size());
    }
  }
}

TEST(Regex, OneExpressionInManyThreads) {
  const Pattern pattern = Pattern::regex("[a-z]+|\\d| ");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format("word{} ", i);
  const Pieces expected = pattern_cases::pieces_of(pattern, text);
  std::vector<Pieces> seen(4);
  std::vector<std::thread> threads;
  for (Pieces& pieces : seen) threads.emplace_back([&] { pieces = pattern_cases::pieces_of(pattern, text); });
  for (std::thread& thread : threads) thread.join();
  for (const Pieces& pieces : seen) EXPECT_EQ(pieces, expected);
}

}  // namespace
}  // namespace tally
