// What the scanners of scan_*.h share: the class of the character at a place and the end of a run of classes. Runs of
// ASCII letters go 16 bytes a step; other ASCII is one load from a table, other characters are decoded and looked up.
// A byte that is not part of valid UTF-8 is a character of its own of the class of U+FFFD (S), so that any bytes are
// split and the pieces join to the input again. Included through pattern.h: everything inlines into its loop.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "tally/text/unicode_tables.h"
#include "tally/text/utf8.h"

namespace tally::scan {

using namespace classes;

constexpr std::array<CharClass, 256> make_ascii_classes() {
  std::array<CharClass, 256> table{};  // bytes from 0x80 on have no class, so a run of ASCII ends before them
  for (size_t b = 0x21; b < 0x7F; ++b) table[b] = kPunctuation;
  for (size_t b = '0'; b <= '9'; ++b) table[b] = kNumber;
  for (size_t b = 'A'; b <= 'Z'; ++b) table[b] = kUpper, table[b + 32] = kLower;
  for (size_t b = '\t'; b <= '\r'; ++b) table[b] = kBlank;
  table[' '] = kBlank, table['\r'] = kNewline, table['\n'] = kNewline;
  return table;
}
inline constexpr std::array<CharClass, 256> kAscii = make_ascii_classes();

inline bool is_ascii(char c) { return static_cast<signed char>(c) >= 0; }
inline CharClass ascii_class(char c) { return kAscii[static_cast<unsigned char>(c)]; }

// Is c an ASCII letter? The scanners ask this of the first characters before anything else, one branch after another:
// a predicted branch lets the search for the piece's end begin before the loads of the bytes are back, which sums of
// conditions do not.
inline bool is_ascii_letter(char c) { return (ascii_class(c) & kLetter) != 0; }

struct Char {
  uint32_t code_point;
  uint32_t length;
  CharClass bits;
};

inline Char wide_char_at(const char* p, size_t n, const uint8_t* table) {
  const Utf8Char c = utf8_next(p, n);
  if (c.status != Utf8Status::kValid) return {0xFFFD, 1, kPunctuation};
  return {c.code_point, c.length, char_class(c.code_point, table)};
}

// The character at the start of the n > 0 bytes at p.
inline Char char_at(const char* p, size_t n, const uint8_t* table) {
  if (is_ascii(*p)) return {static_cast<unsigned char>(*p), 1, ascii_class(*p)};
  return wide_char_at(p, n, table);
}

// End of the bytes of [First, Last] from i on; with Fold, of both cases of the letters.
template <char First, char Last, bool Fold>
inline size_t ascii_run_end(const char* p, size_t i, size_t n) {
#ifdef __SSE2__
  for (; i + 16 <= n; i += 16) {
    __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
    if constexpr (Fold) bytes = _mm_or_si128(bytes, _mm_set1_epi8(0x20));  // bytes from 0x80 on stay negative
    const __m128i inside = _mm_and_si128(_mm_cmpgt_epi8(bytes, _mm_set1_epi8(First - 1)),
                                         _mm_cmplt_epi8(bytes, _mm_set1_epi8(Last + 1)));
    const uint32_t outside = static_cast<uint32_t>(_mm_movemask_epi8(inside)) ^ 0xFFFFu;
    if (outside != 0) return i + static_cast<size_t>(std::countr_zero(outside));
  }
#else
  // Eight bytes a step: adding 0x80 - First sets a byte's high bit from First on, adding 0x7F - Last from Last + 1 on.
  constexpr uint64_t kOnes = 0x0101010101010101u, kHigh = 0x8080808080808080u;
  for (; i + 8 <= n; i += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, p + i, 8);
    if constexpr (std::endian::native == std::endian::big) bytes = __builtin_bswap64(bytes);
    const uint64_t low = (Fold ? bytes | (0x20 * kOnes) : bytes) & ~kHigh;
    const uint64_t inside = (low + (0x80 - First) * kOnes) & ~(low + (0x7F - Last) * kOnes) & ~bytes;
    const uint64_t outside = ~inside & kHigh;
    if (outside != 0) return i + static_cast<size_t>(std::countr_zero(outside)) / 8;
  }
#endif
  for (; i < n; ++i) {
    const int c = Fold ? p[i] | 0x20 : p[i];
    if (c < First || c > Last) break;
  }
  return i;
}

// End of the run of characters whose class is one of `Wanted`, from i on. (kOther is in no set: use run_end_without.)
template <CharClass Wanted>
inline size_t run_end(const char* p, size_t i, size_t n, const uint8_t* table) {
  for (;;) {
    if constexpr (Wanted == kLetter) {
      i = ascii_run_end<'a', 'z', true>(p, i, n);
    } else {
      while (i < n && (ascii_class(p[i]) & Wanted) != 0) ++i;
    }
    if (i == n || is_ascii(p[i])) return i;
    while (i < n && !is_ascii(p[i])) {
      const Char c = wide_char_at(p + i, n - i, table);
      if ((c.bits & Wanted) == 0) return i;
      i += c.length;
    }
  }
}

// End of the run of characters whose class is none of `Stop`.
template <CharClass Stop>
inline size_t run_end_without(const char* p, size_t i, size_t n, const uint8_t* table) {
  while (i < n) {
    const Char c = char_at(p + i, n - i, table);
    if ((c.bits & Stop) != 0) return i;
    i += c.length;
  }
  return i;
}

// \p{N}{1,Most}, of which one ends at i.
template <int Most>
inline size_t numbers_end(const char* p, size_t i, size_t n, const uint8_t* table) {
  for (int k = 1; k < Most && i < n; ++k) {
    const Char c = char_at(p + i, n - i, table);
    if (c.bits != kNumber) break;
    i += c.length;
  }
  return i;
}

// The white space from 0 on.
struct Spaces {
  size_t end = 0;
  size_t last = 0;           // where its last character starts
  size_t after_newline = 0;  // behind its last CR or LF; 0: there is none
};
inline Spaces spaces_at(const char* p, size_t n, const uint8_t* table) {
  Spaces s;
  while (s.end < n) {
    const Char c = char_at(p + s.end, n - s.end, table);
    if ((c.bits & kSpace) == 0) break;
    s.last = s.end;
    s.end += c.length;
    if (c.bits == kNewline) s.after_newline = s.end;
  }
  return s;
}

// \s+(?!\S)|\s+ : the last character of a run stays for the next piece when something follows it.
inline size_t spaces_but_last(const Spaces& s, size_t n) { return s.end == n || s.last == 0 ? s.end : s.last; }

// '(?:[sdmt]|ll|ve|re) : its length, or 0. p[0] is the apostrophe.
inline size_t contraction(const char* p, size_t n) {
  if (n < 2) return 0;
  const char a = p[1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (n < 3) return 0;
  const char b = p[2];
  return (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e') ? 3 : 0;
}

// '(?i:[sdmt]|ll|ve|re) : ignoring case, U+017F (C5 BF) is an s.
inline size_t contraction_of_any_case(const char* p, size_t n) {
  if (n < 2) return 0;
  const char a = static_cast<char>(p[1] | 0x20);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (n < 3) return 0;
  if (p[1] == '\xC5') return p[2] == '\xBF' ? 3 : 0;
  const char b = static_cast<char>(p[2] | 0x20);
  return (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e') ? 3 : 0;
}

}  // namespace tally::scan
