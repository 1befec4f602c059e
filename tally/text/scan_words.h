// Scanners of the patterns that know letters, numbers, white space and the rest: gpt2, the family of cl100k, whitespace.
// Each struct gives the bytes of the piece that starts at p; n > 0 bytes are all the text that is left.
#pragma once

#include "tally/text/scan_chars.h"

namespace tally::scan {

// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
struct Gpt2 {
  const uint8_t* table = unicode_class_table();

  size_t piece(const char* p, size_t n) const {
    if (*p == ' ' && n > 1 && is_ascii_letter(p[1])) return run_end<kLetter>(p, 2, n, table);
    if (is_ascii_letter(*p)) return run_end<kLetter>(p, 1, n, table);
    const size_t start = *p == ' ' && n > 1 ? 1 : 0;
    const Char first = char_at(p + start, n - start, table);
    if ((first.bits & kLetter) != 0) return run_end<kLetter>(p, start + first.length, n, table);
    if ((first.bits & kSpace) != 0) return spaces_but_last(spaces_at(p, n, table), n);
    if ((first.bits & kNumber) != 0) return run_end<kNumber>(p, start + first.length, n, table);
    if (*p == '\'') {
      const size_t length = contraction(p, n);
      if (length != 0) return length;
    }
    return run_end_without<kSpace | kLetter | kNumber>(p, start + first.length, n, table);
  }
};

//  ?\S+|\s+(?!\S)|\s+
struct Whitespace {
  const uint8_t* table = unicode_class_table();

  size_t piece(const char* p, size_t n) const {
    const size_t start = *p == ' ' && n > 1 ? 1 : 0;
    const size_t end = run_end_without<kSpace>(p, start, n, table);
    return end > start ? end : spaces_but_last(spaces_at(p, n, table), n);
  }
};

// '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,Digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// with \s++$ before \s*[\r\n]+ when EndFirst: white space at the end of the text stays in one piece though it has
// newlines.
template <int Digits, bool EndFirst>
struct Cl100k {
  const uint8_t* table = unicode_class_table();

  size_t piece(const char* p, size_t n) const {
    if (*p == ' ' && n > 1 && is_ascii_letter(p[1])) return run_end<kLetter>(p, 2, n, table);
    if (is_ascii_letter(*p)) return run_end<kLetter>(p, 1, n, table);
    const Char first = char_at(p, n, table);
    if ((first.bits & kLetter) != 0) return run_end<kLetter>(p, first.length, n, table);
    if ((first.bits & kNumber) != 0) return numbers_end<Digits>(p, first.length, n, table);
    if (*p == '\'') {
      const size_t length = contraction_of_any_case(p, n);
      if (length != 0) return length;
    }
    size_t symbols = first.length;  // a run of symbols may go on here
    if (first.length < n && first.bits != kNewline) {
      const Char second = char_at(p + first.length, n - first.length, table);
      if ((second.bits & kLetter) != 0) return run_end<kLetter>(p, first.length + second.length, n, table);
      if ((first.bits & kSpace) != 0) {
        if (*p != ' ' || (second.bits & (kSpace | kNumber)) != 0) return spaces(p, n);
        symbols += second.length;
      }
    } else if ((first.bits & kSpace) != 0) {
      return spaces(p, n);
    }
    size_t i = run_end_without<kSpace | kLetter | kNumber>(p, symbols, n, table);
    while (i < n && (p[i] == '\n' || p[i] == '\r')) ++i;
    return i;
  }

 private:
  size_t spaces(const char* p, size_t n) const {
    const Spaces s = spaces_at(p, n, table);
    if (EndFirst && s.end == n) return n;
    return s.after_newline != 0 ? s.after_newline : spaces_but_last(s, n);
  }
};

}  // namespace tally::scan
