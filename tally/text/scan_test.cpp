// Every scanner against PCRE2 with the pattern's own expressions, where texts may be cut, and texts that never end.
// TALLY_PATTERN_TEXTS=1000000 compares that many texts a pattern instead of ten thousand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <iostream>

#include "tally/text/pattern_cases.h"
#include "tally/text/utf8.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using namespace pattern_cases;

std::string shown(const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) {
    out += '[';
    for (const char c : piece) out += c >= ' ' && c < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", c & 0xFF);
    out += ']';
  }
  return out;
}

size_t texts_to_compare() {
  const char* asked = std::getenv("TALLY_PATTERN_TEXTS");
  return asked == nullptr ? 10'000 : std::strtoull(asked, nullptr, 10);
}

class Scanner : public testing::TestWithParam<std::string> {
 protected:
  const Pattern pattern = Pattern::named(GetParam());
};

TEST_P(Scanner, EqualsPcre2WithTheExpression) {
  const Splits splits(pattern);
  const Regex whole(pattern.expression());
  std::mt19937_64 random(1);
  for (size_t i = 0, count = texts_to_compare(); i < count; ++i) {
    const std::string text = random_text(random, 14, i % 4 == 0);
    const std::vector<std::string> pieces = pieces_of(pattern, text), expected = splits.pieces(text);
    ASSERT_EQ(pieces, expected) << shown(pieces) << " not " << shown(expected);
    ASSERT_EQ(pieces_of(whole, text), expected) << shown(expected) << ": the expression in one";
  }
}

// Between the characters of every class, so that each alternative meets each.
TEST_P(Scanner, EqualsPcre2OnCodePointsOfAllUnicode) {
  const Splits splits(pattern);
  std::vector<bool> left_out(kUnicodeEnd);
  for (const uint32_t c : differing_code_points()) left_out[c] = true;
  std::mt19937_64 random(2);
  for (size_t i = 0, count = texts_to_compare() / 4; i < count; ++i) {
    std::string text;
    for (int k = 0; k < 12; ++k) {
      const auto c = static_cast<uint32_t>(random() % (random() % 4 == 0 ? kUnicodeEnd
                                                       : random() % 3    ? 0x3400
                                                                         : 0x20000));
      if (left_out[c] || (c >= 0xD800 && c < 0xE000) || random() % 3 == 0) {
        text += kCharacters[random() % kCharacters.size()];
      } else {
        append_utf8(c, text);
      }
    }
    const std::vector<std::string> pieces = pieces_of(pattern, text), expected = splits.pieces(text);
    ASSERT_EQ(pieces, expected) << shown(pieces) << " not " << shown(expected);
  }
}

TEST_P(Scanner, AnyTwoCharactersOfAllEqualPcre2) {
  const Splits splits(pattern);
  for (const std::string& a : kCharacters)
    for (const std::string& b : kCharacters)
      for (const char* c : {"", "a", " ", "1", "\n", "!"})
        ASSERT_EQ(pieces_of(pattern, a + b + c), splits.pieces(a + b + c)) << shown({a + b + c});
}

TEST_P(Scanner, PieceGivesWhatForEachPieceGives) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_text(random, 20, true);
    size_t at = 0;
    for (const std::string& piece : pieces_of(pattern, text)) {
      ASSERT_EQ(pattern.piece(text, at), piece.size());
      at += piece.size();
    }
    ASSERT_EQ(at, text.size());
  }
  EXPECT_TRUE(pieces_of(pattern, "").empty());
  for (int b = 0; b < 256; ++b) EXPECT_EQ(pattern.piece(std::string(1, static_cast<char>(b)), 0), 1u) << b;
}

TEST_P(Scanner, CutAtASafeBorderChangesNoPiece) {
  std::mt19937_64 random(4);
  size_t borders = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string text = random_text(random, 16, i % 4 == 0);
    if (text.empty()) continue;
    const size_t border = pattern.next_safe_border(text, random() % text.size());
    ASSERT_GT(border, 0u);
    ASSERT_LE(border, text.size());
    borders += border < text.size() ? 1 : 0;
    std::vector<std::string> pieces = pieces_of(pattern, text.substr(0, border));
    for (std::string& piece : pieces_of(pattern, text.substr(border))) pieces.push_back(std::move(piece));
    ASSERT_EQ(pieces, pieces_of(pattern, text)) << shown(pieces) << " at " << border;
  }
  EXPECT_GT(borders, 500u);
  EXPECT_EQ(pattern.next_safe_border("one two", 0), 3u);
}

// Known text of any length, cut anywhere, and whatever follows it.
TEST_P(Scanner, AFinalPieceStaysWhateverFollows) {
  std::mt19937_64 random(5);
  size_t finals = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t k = random() % 8; k > 0; --k) {  // long runs: what decides may be far behind a piece
      const std::string part = random_text(random, 3, i % 8 == 0);
      for (size_t n = random() % 3 == 0 ? random() % 20 : 1; n > 0; --n) text += part;
    }
    if (text.empty()) continue;
    const size_t known = 1 + random() % text.size();
    const size_t piece = pattern.final_piece(std::string_view(text).substr(0, known), 0);
    if (piece == 0) continue;
    ++finals;
    ASSERT_EQ(piece, pattern.piece(text, 0)) << shown({text.substr(0, known), text.substr(known)});
    const size_t lookahead = pattern.lookahead();
    ASSERT_TRUE(lookahead == SIZE_MAX || piece + lookahead <= known);
  }
  EXPECT_GT(finals, 2000u);
  const std::string prose = "Nothing is held that needs no more text to be certain of.";
  EXPECT_EQ(pattern.final_piece(prose, 0), 7u);
  EXPECT_EQ(pattern.final_piece(prose + prose, prose.find("more")), 4u);
}

// 10 MB of one character, and of what makes a scanner look far ahead: linear, so far less than a second each.
TEST_P(Scanner, EndlessTextsTakeLinearTime) {
  for (const std::string& unit :
       {std::string("a"), std::string("A"), std::string(" "), std::string("^"), std::string("7"), std::string("\n"),
        std::string("\U0001f600"), std::string("\u4e2d"), std::string("\u4e2dA"), std::string("\u0301"),
        std::string("\u30fb\u30a2"), std::string(" \n"), std::string("'"), std::string("\x01"), std::string("\xff"),
        std::string("a\u0434\u4e2d\u05d0"), std::string("\xe2\x80"), std::string("\u180e")}) {
    const auto seconds = [&](size_t bytes) {
      std::string text;
      while (text.size() < bytes) text += unit;
      const std::clock_t start = std::clock();  // of this process: the machine may be busy
      size_t total = 0;
      for_each_piece(pattern, text, [&total](std::string_view piece) { total += piece.size(); });
      EXPECT_EQ(total, text.size());
      return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    };
    EXPECT_LT(seconds(10'000'000), 5.0) << shown({unit});
  }
}

// A stream that asks again when its text has doubled, as the encoder does.
TEST_P(Scanner, AnEndlessPieceStreamsInLinearTime) {
  for (const char unit : {' ', 'A', '\n', '\x01'}) {
    const std::string text = std::string("x") + std::string(10'000'000, unit);
    const std::clock_t start = std::clock();  // of this process: the machine may be busy
    size_t at = 0;
    for (size_t known = 64; known < text.size(); known *= 2)
      while (const size_t piece = pattern.final_piece(std::string_view(text).substr(0, known), at)) at += piece;
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Named, Scanner, testing::ValuesIn(kNames), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST(UnicodeTables, CodePointsOfAnotherClassInPcre2AreFew) {
  const std::vector<uint32_t>& list = differing_code_points();
  std::cout << list.size() << " code points differ from PCRE2's Unicode " << regex_unicode_version() << ":";
  for (size_t i = 0; i < list.size();) {  // runs
    size_t last = i;
    while (last + 1 < list.size() && list[last + 1] == list[last] + 1) ++last;
    std::cout << fmt::format(" {:X}", list[i]) << (last == i ? "" : fmt::format("-{:X}", list[last]));
    i = last + 1;
  }
  std::cout << "\n";
  EXPECT_LT(list.size(), 20'000u);  // Unicode 14 to 16 added 4,489 + 627 + 5,185 characters
  for (const uint32_t c : list) EXPECT_GE(c, 0xA0u);
}

TEST(Pattern, WhatLooksFarAheadIsNotFinalBefore) {
  const std::string spaces(100, ' '), capitals(100, 'A');
  for (const char* name : {"cl100k", "llama3", "qwen2", "nanochat", "o200k", "deepseek-v3"}) {
    const Pattern pattern = Pattern::named(name);
    EXPECT_EQ(pattern.final_piece("\n" + spaces, 0), 0u) << name;  // a newline behind would be of the piece
    EXPECT_EQ(pattern.final_piece("\n" + spaces + "\xe2\x80", 0), 0u) << name;  // U+2028 may become of it
    EXPECT_EQ(pattern.final_piece("\n" + spaces + "word word word", 0), 1u) << name;
    EXPECT_EQ(pattern.lookahead(), SIZE_MAX);
  }
  EXPECT_EQ(Pattern().final_piece("\n" + spaces + "word", 0), 0u);
  EXPECT_EQ(Pattern().final_piece("\n" + spaces + "word word", 0), 100u);
  const Pattern o200k = Pattern::named("o200k");
  EXPECT_EQ(o200k.final_piece("\u4e2d" + capitals, 0), 0u);  // a small letter behind would make it one word
  EXPECT_EQ(o200k.final_piece("\u4e2d" + capitals + " and more", 0), 3u);
  EXPECT_EQ(o200k.final_piece("\u4e2d" + capitals + "small and more", 0), 108u);
}

TEST(Pattern, NamesAndExpressionsGiveTheKind) {
  for (const std::string& name : kNames) {
    const Pattern pattern = Pattern::named(name);
    EXPECT_EQ(pattern.name(), name);
    EXPECT_TRUE(pattern.has_borders());
    EXPECT_EQ(Pattern::regex(pattern.expression()), pattern);
    EXPECT_EQ(Pattern::splits(pattern.splits()), pattern);
  }
  for (const char* name : {"r50k", "p50k"}) EXPECT_EQ(Pattern::named(name), Pattern());
  EXPECT_EQ(Pattern().name(), "gpt2");
  EXPECT_EQ(Pattern::regex("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"),
            Pattern());
  EXPECT_EQ(Pattern::named("deepseek-v3").splits().size(), 3u);
  test::expect_error([] { Pattern::named("gpt3"); },
                     "no pattern has the name \"gpt3\"; there are gpt2, r50k, p50k, cl100k");
  test::expect_error([] { Pattern::splits({"a", "b"}); }, "only deepseek-v3's three");
  test::expect_error([] { Pattern::splits({}); }, "0 splits");
}

TEST(Pattern, RegexHasItsNameAndNoBorders) {
  const Pattern pattern = Pattern::regex("\\w+|.");
  EXPECT_EQ(pattern.kind(), PatternKind::kRegex);
  EXPECT_EQ(pattern.name(), "regex:\\w+|.");
  EXPECT_EQ(Pattern::named(pattern.name()), pattern);
  EXPECT_NE(Pattern::named("regex:\\w"), pattern);
  EXPECT_EQ(Pattern::named("regex:" + Pattern::named("o200k").expression()).kind(), PatternKind::kO200k);
  EXPECT_FALSE(pattern.has_borders());
  EXPECT_EQ(pattern.next_safe_border("one two", 0), 7u);
  EXPECT_EQ(pattern.final_piece("one two and more of it", 0), 0u);
  EXPECT_EQ(pattern.lookahead(), SIZE_MAX);
  EXPECT_EQ(pattern.piece("one two", 3), 1u);
}

// Where the patterns differ, by hand.
TEST(Pattern, PiecesOfEach) {
  using Pieces = std::vector<std::string>;
  const auto by = [](const char* name, const std::string& text) { return pieces_of(Pattern::named(name), text); };
  EXPECT_EQ(by("gpt2", "DON'T don't 12345"), (Pieces{"DON", "'", "T", " don", "'t", " 12345"}));
  EXPECT_EQ(by("cl100k", "DON'T $x 12345"), (Pieces{"DON", "'T", " $", "x", " ", "123", "45"}));
  EXPECT_EQ(by("cl100k", "a\n  "), (Pieces{"a", "\n  "}));
  EXPECT_EQ(by("llama3", "a\n  "), (Pieces{"a", "\n", "  "}));
  EXPECT_EQ(by("cl100k", "x;\n\n  y"), (Pieces{"x", ";\n\n", " ", " y"}));
  EXPECT_EQ(by("cl100k", "it'\u017fx"), (Pieces{"it", "'\u017f", "x"}));
  EXPECT_EQ(by("o200k", "HelloWorld DON'T \u4e2dAB"), (Pieces{"Hello", "World", " DON'T", " \u4e2d", "AB"}));
  EXPECT_EQ(by("o200k", "a//\n/b"), (Pieces{"a", "//\n/", "b"}));
  EXPECT_EQ(by("qwen2", "123"), (Pieces{"1", "2", "3"}));
  EXPECT_EQ(by("nanochat", "123"), (Pieces{"12", "3"}));
  EXPECT_EQ(by("deepseek-v3", "a  12.\u4e2d\u30fb\u6587x_y"),
            (Pieces{"a", "  ", "12", ".", "\u4e2d", "\u30fb", "\u6587", "x", "_y"}));
  EXPECT_EQ(by("whitespace", "don't  stop\n"), (Pieces{"don't", " ", " stop", "\n"}));
}

}  // namespace
}  // namespace tally
