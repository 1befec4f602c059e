// The scanner of deepseek-v3, which splits three times, each time what the split before left (tokenizer.json of
// DeepSeek-V3, three Split pre-tokenizers of behaviour Isolated):
//   \p{N}{1,3}
//   [一-龥぀-ゟ゠-ヿ]+
//   [!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// (its first class is spelt out: ASCII punctuation). For the third, a number or a character of the second is the end of
// the text. Characters that it leaves (controls, unassigned) are pieces as long as none of its matches begins.
#pragma once

#include "tally/text/scan_chars.h"

namespace tally::scan {

struct DeepseekV3 {
  const uint8_t* table = unicode_class_table();

  size_t piece(const char* p, size_t n) const {
    const Char first = at(p, 0, n);
    if (first.bits == kNumber) return numbers_end<3>(p, first.length, n, table);
    if (first.bits == kIdeograph) return ideographs_end(p, first.length, n);
    if ((first.bits & (kLetter | kMark)) != 0) return letters_end(p, first.length, n);
    if (first.length == n) return n;
    const Char second = at(p, first.length, n);
    if (first.bits == kPunctuation) {
      if (first.length == 1 && is_ascii(*p) && is_ascii(p[1]) && (second.bits & kLetter) != 0)
        return ascii_run_end<'a', 'z', true>(p, 2, n);
      return symbols_end(p, first.length, n);
    }
    if (first.bits != kNewline && (second.bits & (kLetter | kMark)) != 0 && second.bits != kIdeograph)
      return letters_end(p, first.length + second.length, n);
    if (*p == ' ' && second.bits == kPunctuation) return symbols_end(p, 1 + second.length, n);
    if ((first.bits & kSpace) != 0) return spaces(p, n);
    return unmatched_end(p, first.length, n);
  }

 private:
  static constexpr CharClass kIdeograph = 0xFF;  // of the second split, whatever its class

  Char at(const char* p, size_t i, size_t n) const {
    Char c = char_at(p + i, n - i, table);
    if ((c.code_point >= 0x4E00 && c.code_point <= 0x9FA5) || (c.code_point >= 0x3040 && c.code_point <= 0x30FF))
      c.bits = kIdeograph;
    return c;
  }

  size_t ideographs_end(const char* p, size_t i, size_t n) const {
    while (i < n) {
      const Char c = at(p, i, n);
      if (c.bits != kIdeograph) break;
      i += c.length;
    }
    return i;
  }

  size_t letters_end(const char* p, size_t i, size_t n) const {
    for (;;) {
      i = ascii_run_end<'a', 'z', true>(p, i, n);
      if (i == n || is_ascii(p[i])) return i;
      while (i < n && !is_ascii(p[i])) {
        const Char c = at(p, i, n);
        if ((c.bits & (kLetter | kMark)) == 0 || c.bits == kIdeograph) return i;
        i += c.length;
      }
    }
  }

  size_t symbols_end(const char* p, size_t i, size_t n) const {
    while (i < n) {
      const Char c = at(p, i, n);
      if (c.bits != kPunctuation) break;
      i += c.length;
    }
    while (i < n && (p[i] == '\n' || p[i] == '\r')) ++i;
    return i;
  }

  size_t spaces(const char* p, size_t n) const {
    const Spaces s = spaces_at(p, n, table);
    if (s.after_newline != 0) return s.after_newline;
    if (s.end < n && (at(p, s.end, n).bits & kNumber) != 0) return s.end;  // a number or an ideograph
    return spaces_but_last(s, n);
  }

  // A character of no class ends at i. It goes on while the next is one too and none of them goes with letters.
  size_t unmatched_end(const char* p, size_t i, size_t n) const {
    while (i < n) {
      const Char c = at(p, i, n);
      if (c.bits != kOther) return i;
      const size_t behind = i + c.length;
      if (behind < n) {
        const Char next = at(p, behind, n);
        if ((next.bits & (kLetter | kMark)) != 0 && next.bits != kIdeograph) return i;
      }
      i = behind;
    }
    return i;
  }
};

}  // namespace tally::scan
