// The scanner of deepseek-v3, which splits three times, each time every piece of the split before (tokenizer.json of
// DeepSeek-V3, three Split pre-tokenizers of behaviour Isolated):
//   \p{N}{1,3}
//   [一-龥぀-ゟ゠-ヿ]+
//   [!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// (its first class is spelt out: ASCII punctuation). So the third sees stretches inside and outside of the second's
// characters, each as a text of its own that a number ends too. Characters that it leaves (controls, unassigned) are
// pieces as long as none of its matches begins.
#pragma once

#include "tally/text/scan_chars.h"

namespace tally::scan {

struct DeepseekV3 {
  const uint8_t* table = unicode_class_table();

  size_t piece(const char* p, size_t n) const {
    if (*p == ' ' && n > 1 && is_ascii_letter(p[1])) return letters_end<false>(p, 2, n);
    const Char first = char_at(p, n, table);
    if (first.bits == kNumber) return numbers_end<3>(p, first.length, n, table);
    return is_ideograph(first) ? third<true>(p, n, first) : third<false>(p, n, first);
  }

 private:
  static constexpr CharClass kEnd = 0xFF;  // the character is not of this stretch
  static constexpr CharClass kWord = kLetter | kMark;

  static bool is_ideograph(const Char& c) {
    return (c.code_point >= 0x4E00 && c.code_point <= 0x9FA5) || (c.code_point >= 0x3040 && c.code_point <= 0x30FF);
  }

  template <bool Inside>
  Char at(const char* p, size_t i, size_t n) const {
    Char c = char_at(p + i, n - i, table);
    if (c.bits == kNumber || is_ideograph(c) != Inside) c.bits = kEnd;
    return c;
  }

  template <bool Inside>
  size_t third(const char* p, size_t n, const Char& first) const {
    if ((first.bits & kWord) != 0) return letters_end<Inside>(p, first.length, n);
    if (first.length == n) return n;
    const Char second = at<Inside>(p, first.length, n);
    if (first.bits == kPunctuation) {
      if (is_ascii(*p) && is_ascii_letter(p[1])) return ascii_run_end<'a', 'z', true>(p, 2, n);
      return symbols_end<Inside>(p, first.length, n);
    }
    if (first.bits != kNewline && second.bits != kEnd && (second.bits & kWord) != 0)
      return letters_end<Inside>(p, first.length + second.length, n);
    if (*p == ' ' && second.bits == kPunctuation) return symbols_end<Inside>(p, 1 + second.length, n);
    if ((first.bits & kSpace) != 0) return spaces(p, n);
    return unmatched_end<Inside>(p, first.length, n);
  }

  template <bool Inside>
  size_t letters_end(const char* p, size_t i, size_t n) const {
    for (;;) {
      if constexpr (!Inside) i = ascii_run_end<'a', 'z', true>(p, i, n);
      if (i == n || is_ascii(p[i])) return i;
      while (i < n && !is_ascii(p[i])) {
        const Char c = at<Inside>(p, i, n);
        if (c.bits == kEnd || (c.bits & kWord) == 0) return i;
        i += c.length;
      }
    }
  }

  template <bool Inside>
  size_t symbols_end(const char* p, size_t i, size_t n) const {
    while (i < n) {
      const Char c = at<Inside>(p, i, n);
      if (c.bits != kPunctuation) break;
      i += c.length;
    }
    while (!Inside && i < n && (p[i] == '\n' || p[i] == '\r')) ++i;
    return i;
  }

  size_t spaces(const char* p, size_t n) const {
    const Spaces s = spaces_at(p, n, table);
    if (s.after_newline != 0) return s.after_newline;
    if (s.end < n && at<false>(p, s.end, n).bits == kEnd) return s.end;
    return spaces_but_last(s, n);
  }

  // A character of no class ends at i. It goes on while the next is one too and none of them goes with letters.
  template <bool Inside>
  size_t unmatched_end(const char* p, size_t i, size_t n) const {
    while (i < n) {
      const Char c = at<Inside>(p, i, n);
      if (c.bits != kOther) return i;
      const size_t behind = i + c.length;
      if (behind < n) {
        const Char next = at<Inside>(p, behind, n);
        if (next.bits != kEnd && (next.bits & kWord) != 0) return i;
      }
      i = behind;
    }
    return i;
  }
};

}  // namespace tally::scan
