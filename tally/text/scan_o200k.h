// The scanner of o200k:
//   P?U*L+C?|P?U+L*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
// with P = [^\r\n\p{L}\p{N}], U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L = [\p{Ll}\p{Lm}\p{Lo}\p{M}] and
// C = (?i:'s|'t|'re|'ve|'m|'ll|'d). Lm, Lo and M are in both U and L, so U* may give characters back to L+: without a
// lower-case letter behind the run of U, the word ends behind the run's last character that is in both.
#pragma once

#include "tally/text/scan_chars.h"

namespace tally::scan {

struct O200k {
  const uint8_t* table = unicode_class_table();

  size_t piece(const char* p, size_t n) const {
    if (*p == ' ' && n > 2) {
      if (ascii_class(p[1]) == kLower) return with_contraction(p, lower_run_end(p, 2, n), n);
      if (ascii_class(p[1]) == kUpper && ascii_class(p[2]) == kLower)
        return with_contraction(p, lower_run_end(p, 3, n), n);
    } else if (ascii_class(*p) == kLower) {
      return with_contraction(p, lower_run_end(p, 1, n), n);
    }
    const Char first = char_at(p, n, table);
    if ((first.bits & kNumber) != 0) return numbers_end<3>(p, first.length, n, table);
    if ((first.bits & (kNewline | kLetter)) == 0 && first.length < n) {
      const char next = p[first.length];
      const bool word = !is_ascii(next) || (ascii_class(next) & kLetter) != 0;
      if (word) {
        const Word after = word_at(p, first.length, n);
        if (after.lower_end != 0) return with_contraction(p, after.lower_end, n);
        if ((first.bits & kMark) == 0 && after.upper_end > first.length)
          return with_contraction(p, after.upper_end, n);
      }
    }
    if ((first.bits & (kLetter | kMark)) != 0) {
      const Word word = word_at(p, 0, n);
      return with_contraction(p, word.lower_end != 0 ? word.lower_end : word.upper_end, n);
    }
    size_t symbols = first.length;
    if ((first.bits & kSpace) != 0) {
      if (*p != ' ' || n == 1) return spaces(p, n);
      const Char second = char_at(p + 1, n - 1, table);
      if ((second.bits & (kSpace | kNumber)) != 0) return spaces(p, n);
      symbols += second.length;
    }
    size_t i = run_end_without<kSpace | kLetter | kNumber>(p, symbols, n, table);
    while (i < n && (p[i] == '\n' || p[i] == '\r' || p[i] == '/')) ++i;
    return i;
  }

 private:
  static constexpr CharClass kBoth = kCaseless | kMark;

  struct Word {
    size_t lower_end;  // end of U*L+ from where it was asked for, or 0
    size_t upper_end;  // end of U*
  };

  Word word_at(const char* p, size_t start, size_t n) const {
    size_t i = start, both_end = 0;
    for (;;) {
      while (i < n && ascii_class(p[i]) == kUpper) ++i;
      if (i == n) return {both_end, i};
      const Char c = char_at(p + i, n - i, table);
      if (c.bits == kLower) return {lower_run_end(p, i + c.length, n), i};
      if ((c.bits & (kUpper | kBoth)) == 0) return {both_end, i};
      i += c.length;
      if ((c.bits & kBoth) != 0) both_end = i;
    }
  }

  size_t lower_run_end(const char* p, size_t i, size_t n) const {
    for (;;) {
      i = ascii_run_end<'a', 'z', false>(p, i, n);
      if (i == n || is_ascii(p[i])) return i;
      while (i < n && !is_ascii(p[i])) {
        const Char c = wide_char_at(p + i, n - i, table);
        if ((c.bits & (kLower | kBoth)) == 0) return i;
        i += c.length;
      }
    }
  }

  static size_t with_contraction(const char* p, size_t i, size_t n) {
    return i < n && p[i] == '\'' ? i + contraction_of_any_case(p + i, n - i) : i;
  }

  size_t spaces(const char* p, size_t n) const {
    const Spaces s = spaces_at(p, n, table);
    return s.after_newline != 0 ? s.after_newline : spaces_but_last(s, n);
  }
};

}  // namespace tally::scan
