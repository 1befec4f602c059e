// The splitter against a matcher that follows the pattern's alternatives letter by letter, on every short text.
#include "tally/text/pattern.h"

#include <gtest/gtest.h>

#include <map>

#include "tally/text/specials.h"
#include "tally/text/unicode_tables.h"
#include "tally/text/utf8.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using namespace classes;

struct Char {
  std::string bytes;
  CharClass kind;  // kLetter, kNumber, kSpace or 0
};

CharClass kind_of(uint32_t code_point) {
  const CharClass c = char_class(code_point);
  for (const CharClass kind : {kLetter, kNumber, kSpace})
    if ((c & kind) != 0) return kind;
  return 0;
}

// Characters of the text; each broken byte is one of kind 0.
std::vector<Char> characters(const std::string& text) {
  std::vector<Char> chars;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    const bool valid = c.status == Utf8Status::kValid;
    const size_t length = valid ? c.length : 1;
    chars.push_back({text.substr(i, length), static_cast<CharClass>(valid ? kind_of(c.code_point) : 0)});
    i += length;
  }
  return chars;
}

// Number of characters of the first match at `at`, alternative by alternative.
size_t reference_match(const std::vector<Char>& c, size_t at) {
  for (const std::string suffix : {"s", "d", "m", "t", "ll", "ve", "re"}) {
    std::string seen;
    for (size_t i = at; i < c.size() && i < at + 1 + suffix.size(); ++i) seen += c[i].bytes;
    if (seen == "'" + suffix) return 1 + suffix.size();
  }
  for (const CharClass kind : {kLetter, kNumber, kOther}) {
    for (const size_t blank : {1, 0}) {
      if (blank == 1 && c[at].bytes != " ") continue;
      size_t end = at + blank;
      while (end < c.size() && c[end].kind == kind) ++end;
      if (end > at + blank) return end - at;
    }
  }
  size_t end = at;
  while (end < c.size() && c[end].kind == kSpace) ++end;
  for (size_t stop = end; stop > at; --stop)  // \s+(?!\S), giving back one character at a time
    if (stop == c.size() || c[stop].kind == kSpace) return stop - at;
  return end - at;  // \s+
}

std::vector<std::string> reference_split(const std::string& text) {
  const std::vector<Char> c = characters(text);
  std::vector<std::string> pieces;
  for (size_t at = 0; at < c.size();) {
    const size_t n = reference_match(c, at);
    pieces.emplace_back();
    for (size_t i = at; i < at + n; ++i) pieces.back() += c[i].bytes;
    at += n;
  }
  return pieces;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> pieces;
  for_each_piece(Pattern(), text, [&pieces](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

// Calls f with every text of up to `longest` symbols.
template <class F>
void for_each_text(const std::vector<std::string>& symbols, int longest, const F& f, const std::string& prefix = "") {
  f(prefix);
  if (longest == 0) return;
  for (const std::string& s : symbols) for_each_text(symbols, longest - 1, f, prefix + s);
}

const std::vector<std::string> kSymbols = {"s", "l",        "e",        "1",    " ",       "\n",
                                           "'", "\xC3\xA9", "\xC2\xA0", "\xE2", "\x80\xA8"};  // the last two join

TEST(Pretokenize, EveryShortTextEqualsThePattern) {
  for_each_text(kSymbols, 5, [](const std::string& text) { ASSERT_EQ(split(text), reference_split(text)) << text; });
}

TEST(Pretokenize, ContractionsAndRuns) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(split("I'll've it's 'S 'tis"), (Pieces{"I", "'ll", "'ve", " it", "'s", " '", "S", " '", "tis"}));
  EXPECT_EQ(split("a  b   "), (Pieces{"a", " ", " b", "   "}));
  EXPECT_EQ(split("x\n\n\ny"), (Pieces{"x", "\n\n", "\n", "y"}));
  EXPECT_EQ(split("3.14e10"), (Pieces{"3", ".", "14", "e", "10"}));
  EXPECT_EQ(split("\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x81"), (Pieces{"\xE4\xBD\xA0\xE5\xA5\xBD", "\xEF\xBC\x81"}));
}

// \s has U+0085, U+00A0 and U+3000 but not U+180E, U+200B, U+FEFF or U+001C.
TEST(Pretokenize, WhiteSpaceIsTheUnicodeProperty) {
  for (const uint32_t c : {0x9, 0xD, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000})
    EXPECT_EQ(kind_of(c), kSpace) << c;
  for (const uint32_t c : {0x180E, 0x200B, 0xFEFF, 0x1C, 0x1F}) EXPECT_EQ(kind_of(c), 0) << c;
}

TEST(Pretokenize, TablesHaveTheCountsOfUnicode16) {
  std::map<CharClass, int> counts;
  for (uint32_t c = 0; c < kUnicodeEnd; ++c) ++counts[char_class(c)];
  EXPECT_EQ(counts[kUpper], 1858 + 31);
  EXPECT_EQ(counts[kLower], 2258);
  EXPECT_EQ(counts[kCaseless], 404 + 136477);
  EXPECT_EQ(counts[kMark], 2501);
  EXPECT_EQ(counts[kNumber], 1911);
  EXPECT_EQ(counts[kBlank], 23);
  EXPECT_EQ(counts[kNewline], 2);
  EXPECT_EQ(counts[kPunctuation], 855 + 8514);
  EXPECT_EQ(char_class(0x10D40), kNumber);  // Garay digit zero, new in Unicode 16
  EXPECT_EQ(char_class(kUnicodeEnd), kOther);
}

// Whatever follows, a piece that ends lookahead() bytes before the end of what is known stays as it is.
TEST(Pretokenize, PieceIsFinalBeforeTheLookahead) {
  const Pattern pattern;
  for_each_text(kSymbols, 4, [&pattern](const std::string& text) {
    if (text.empty()) return;
    const std::string padded = text + "\xE3\x80\x80zz \xE2\x80\xA8!!";
    for (size_t known = pattern.lookahead() + 1; known <= padded.size(); ++known) {
      const size_t piece = pattern.piece(std::string_view(padded).substr(0, known), 0);
      if (piece + pattern.lookahead() > known) continue;
      ASSERT_EQ(piece, pattern.piece(padded, 0)) << padded << " known " << known;
    }
  });
}

TEST(Pretokenize, CutAtASafeBorderChangesNoPiece) {
  for_each_text(kSymbols, 5, [](const std::string& text) {
    for (size_t from = 1; from < text.size(); ++from) {
      const size_t border = Pattern().next_safe_border(text, from);
      std::vector<std::string> pieces = split(std::string_view(text).substr(0, border));
      const std::vector<std::string> rest = split(std::string_view(text).substr(border));
      pieces.insert(pieces.end(), rest.begin(), rest.end());
      ASSERT_EQ(pieces, split(text)) << text << " at " << border;
    }
  });
}

TEST(Specials, PartsCutNoSpecialTokenAndNoPiece) {
  const SpecialSet specials({"ab", "b c", "a", "b"}, {7, 8, 9, 10});
  const auto all_of = [&specials](std::string_view text) {
    std::vector<std::string> found;
    for_each_segment(
        text, specials,
        [&found](std::string_view plain) {
          for (auto& p : split(plain)) found.push_back(p);
        },
        [&found](int32_t id) { found.push_back(std::to_string(id)); });
    return found;
  };
  for_each_text({"a", "b", "c", " ", "x"}, 6, [&](const std::string& text) {
    for (const size_t target : {1, 2, 3}) {
      std::vector<std::string> joined;
      std::string bytes;
      for (const std::string_view part : cut_text(text, specials, target)) {
        bytes += part;
        for (auto& p : all_of(part)) joined.push_back(p);
      }
      ASSERT_EQ(bytes, text);
      ASSERT_EQ(joined, all_of(text)) << text << " target " << target;
    }
  });
}

TEST(Specials, LongestWinsAndBadNamesAreErrors) {
  const SpecialSet specials({"<a>", "<a><a>", "<b>"}, {0, 1, 2});
  std::vector<std::string> seen;
  for_each_segment(
      "x<a><a><a><b><", specials, [&seen](std::string_view t) { seen.emplace_back(t); },
      [&seen](int32_t id) { seen.push_back(std::to_string(id)); });
  EXPECT_EQ(seen, (std::vector<std::string>{"x", "1", "0", "2", "<"}));
  test::expect_error([] { SpecialSet({""}, {0}); }, "empty");
  test::expect_error([] { SpecialSet({"a", "a"}, {0, 1}); }, "twice");
  test::expect_error([] { SpecialSet({"a\xFF"}, {0}); }, "not valid UTF-8");
}

TEST(Utf8, BrokenPartsAreCutAsUnicodeRecommends) {
  const auto repaired = [](std::string_view bytes) {
    std::string pending;
    return utf8_repair(bytes, pending, true);
  };
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired("a\xE2\x82z"), "a" + r + "z");  // one part of two bytes
  EXPECT_EQ(repaired("\xF0\x80\x80"), r + r + r);    // F0 80 starts nothing
  EXPECT_EQ(repaired("\xED\xA0\x80"), r + r + r);    // surrogate
  EXPECT_EQ(repaired("\xC0\xAF\xF5"), r + r + r);    // overlong, too large
  EXPECT_EQ(repaired("\xF1\x80\x80\xE1\x80\xC2"
                     "b"),
            r + r + r + "b");  // the example of chapter 3.9
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string s;
    append_utf8(c, s);
    const Utf8Char back = utf8_next(s.data(), s.size());
    ASSERT_TRUE(back.status == Utf8Status::kValid && back.code_point == c && back.length == s.size()) << c;
  }
}

}  // namespace
}  // namespace tally
