// What the tests and the fuzz target of patterns share: texts that mix the classes a scanner tells apart, and pieces by
// PCRE2 alone, which know nothing of the scanners.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tally/text/pattern.h"

namespace tally::pattern_cases {

inline const std::vector<std::string> kNames = {"gpt2",  "cl100k",      "o200k",    "llama3",
                                                "qwen2", "deepseek-v3", "nanochat", "whitespace"};

// Characters of every class and those that a pattern names: contractions with the long s, kinds of white space and what
// is not, ends of ranges, marks, unassigned.
inline const std::vector<std::string> kCharacters = {
    "a",      "b",          "z",          "A",      "B",          "Z",      "s",      "S",      "t",
    "l",      "L",          "r",          "e",      "E",          "v",      "d",      "M",      "'",
    "'s",     "'LL",        "'\u017f",    "\u017f", "1",          "2",      "\u0661", "\u00bd", " ",
    " ",      " ",          "  ",         "\t",     "\n",         "\r",     "\r\n",   "\x0b",   "\u0085",
    "\u00a0", "\u3000",     "\u2028",     "\u180e", "\u200b",     "!",      ".",      "/",      "$",
    "^",      "_",          "\u00e9",     "\u00c9", "\u01c5",     "\u02b0", "\u0301", "\u093e", "\u4e2d",
    "\u4e00", "\u9fa5",     "\u9fa6",     "\u3042", "\u3099",     "\u309b", "\u30a0", "\u30fb", "\u30ab",
    "\u30ff", "\u3100",     "\u3040",     "\u3097", "\U0001f600", "\u20ac", "\uff01", "\x01",   std::string(1, '\0'),
    "\x1c",   "\U00010400", "\U000e0100", "\ue000", "\U0010ffff"};
inline const std::vector<std::string> kBroken = {"\xff",         "\xc3",         "\xe2\x80", "\x80",
                                                 "\xf0\x9f\x98", "\xed\xa0\x80", "\xc5"};

// Few different characters often, many at times; up to `most` of them.
inline std::string random_text(std::mt19937_64& random, size_t most, bool broken = false) {
  const auto pick = [&random](const std::vector<std::string>& from) -> const std::string& {
    return from[random() % from.size()];
  };
  const std::string few[3] = {pick(kCharacters), pick(kCharacters), pick(kCharacters)};
  const bool of_few = random() % 3 != 0;
  std::string text;
  for (size_t n = random() % (most + 1); n > 0; --n) {
    if (broken && random() % 8 == 0) {
      text += pick(kBroken);
    } else {
      text += of_few && random() % 8 != 0 ? few[random() % 3] : pick(kCharacters);
    }
  }
  return text;
}

inline std::vector<std::string> pieces_of(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> pieces;
  for_each_piece(pattern, text, [&pieces](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

inline std::vector<std::string> pieces_of(const Regex& regex, std::string_view text) {
  std::vector<std::string> pieces;
  RegexPieces by_regex(regex, text, 0);
  for (size_t at = 0, length; at < text.size(); at += length)
    pieces.emplace_back(text.substr(at, length = by_regex.next()));
  return pieces;
}

// The isolating splits of a pattern one after the other, each by PCRE2.
class Splits {
 public:
  explicit Splits(const Pattern& pattern) {
    for (std::string& expression : pattern.splits()) stages_.push_back(std::make_unique<Regex>(std::move(expression)));
  }
  std::vector<std::string> pieces(std::string_view text) const {
    std::vector<std::string> pieces;
    if (!text.empty()) pieces.emplace_back(text);
    for (const auto& stage : stages_) {
      std::vector<std::string> finer;
      for (const std::string& piece : pieces)
        for (std::string& part : pieces_of(*stage, piece)) finer.push_back(std::move(part));
      pieces.swap(finer);
    }
    return pieces;
  }

 private:
  std::vector<std::unique_ptr<Regex>> stages_;
};

// The code points whose class in PCRE2's tables (an older or newer Unicode) is not ours, ascending.
inline const std::vector<uint32_t>& differing_code_points() {
  static const std::vector<uint32_t> list = [] {
    std::string all;
    std::vector<uint32_t> code_points;
    for (uint32_t c = 0; c < 0xE0200; ++c) {  // behind kUnicodeTableEnd only the variation selectors have a class
      if (c == 0xD800) c = 0xE000;
      if (c == kUnicodeTableEnd) c = 0xE0000;
      append_utf8(c, all), code_points.push_back(c);
    }
    std::vector<CharClass> theirs(code_points.size(), classes::kOther);
    const auto mark = [&](const char* expression, CharClass bits) {
      const Regex regex(expression);
      RegexPieces pieces(regex, all, 0);
      bool inside = false;  // runs inside and outside of the class take turns; U+0000 is in none
      for (size_t at = 0, index = 0; at < all.size(); inside = !inside)
        for (const size_t end = at + pieces.next(); at < end; ++at) {
          if ((all[at] & 0xC0) == 0x80) continue;
          if (inside) theirs[index] = bits;
          ++index;
        }
    };
    mark("[\\p{Lu}\\p{Lt}]+", classes::kUpper);
    mark("\\p{Ll}+", classes::kLower);
    mark("[\\p{Lm}\\p{Lo}]+", classes::kCaseless);
    mark("\\p{M}+", classes::kMark);
    mark("\\p{N}+", classes::kNumber);
    mark("[\\p{P}\\p{S}]+", classes::kPunctuation);
    mark("\\s+", classes::kBlank);
    mark("[\\r\\n]+", classes::kNewline);
    std::vector<uint32_t> differing;
    for (size_t i = 0; i < code_points.size(); ++i)
      if (theirs[i] != char_class(code_points[i])) differing.push_back(code_points[i]);
    return differing;
  }();
  return list;
}

}  // namespace tally::pattern_cases
