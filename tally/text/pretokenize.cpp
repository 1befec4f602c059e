// A run of one class is scanned with a 256-entry table while it is ASCII; other characters are decoded and looked up.
#include "tally/text/pretokenize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "tally/text/unicode_tables.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

constexpr uint8_t kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3, kNotAscii = 4;

constexpr std::array<uint8_t, 256> make_byte_classes() {
  std::array<uint8_t, 256> classes{};
  for (int b = 0; b < 256; ++b) {
    const bool letter = (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z');
    const bool number = b >= '0' && b <= '9';
    const bool space = b == ' ' || (b >= '\t' && b <= '\r');
    classes[static_cast<size_t>(b)] = b >= 0x80 ? kNotAscii
                                      : letter  ? kLetter
                                      : number  ? kNumber
                                      : space   ? kSpace
                                                : kOther;
  }
  return classes;
}
constexpr std::array<uint8_t, 256> kByteClasses = make_byte_classes();

uint8_t byte_class(char c) { return kByteClasses[static_cast<unsigned char>(c)]; }

struct ClassedChar {
  uint8_t char_class;
  size_t length;
};

ClassedChar classify(const char* p, size_t n) {
  const uint8_t ascii = byte_class(*p);
  if (ascii != kNotAscii) return {ascii, 1};
  const Utf8Char c = utf8_next(p, n);
  if (c.status != Utf8Status::kValid) return {kOther, 1};
  return {static_cast<uint8_t>(char_class(c.code_point)), c.length};
}

// End of the ASCII letters from i on, eight bytes a step: a byte with its high bit cleared and lower case forced is a
// letter when adding 0x80 - 'a' sets the high bit and adding 0x7F - 'z' does not.
size_t ascii_letters_end(const char* p, size_t i, size_t n) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kHigh = 0x8080808080808080u;
  for (; i + 8 <= n; i += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, p + i, 8);
    if constexpr (std::endian::native == std::endian::big) bytes = __builtin_bswap64(bytes);
    const uint64_t lower = (bytes | (0x20 * kOnes)) & ~kHigh;
    const uint64_t letters = (lower + (0x80 - 'a') * kOnes) & ~(lower + (0x7F - 'z') * kOnes) & ~bytes;
    const uint64_t others = ~letters & kHigh;
    if (others != 0) return i + static_cast<size_t>(std::countr_zero(others)) / 8;
  }
  while (i < n && byte_class(p[i]) == kLetter) ++i;
  return i;
}

// End of the run of `wanted` characters that starts before i.
size_t run_end(const char* p, size_t i, size_t n, uint8_t wanted) {
  for (;;) {
    if (wanted == kLetter) {
      i = ascii_letters_end(p, i, n);
    } else {
      while (i < n && byte_class(p[i]) == wanted) ++i;
    }
    if (i == n || byte_class(p[i]) != kNotAscii) return i;
    const ClassedChar c = classify(p + i, n - i);
    if (c.char_class != wanted) return i;
    i += c.length;
  }
}

// A run of white space keeps its last character for the next piece when something follows it.
size_t space_piece(const char* p, size_t n) {
  size_t last = 0, end = 0;
  while (end < n) {
    const ClassedChar c = classify(p + end, n - end);
    if (c.char_class != kSpace) return last == 0 ? end : last;
    last = end;
    end += c.length;
  }
  return end;
}

// 's 't 'm 'd, 'll 've 're: their length, or 0.
size_t contraction(const char* p, size_t n) {
  if (n < 2) return 0;
  const char a = p[1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (n < 3) return 0;
  const char b = p[2];
  return (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e') ? 3 : 0;
}

// Is the character that ends before position i > 0 white space? Broken bytes are not.
bool space_before(std::string_view text, size_t i) {
  if (byte_class(text[i - 1]) != kNotAscii) return byte_class(text[i - 1]) == kSpace;
  for (size_t length = 2; length <= std::min<size_t>(3, i); ++length) {
    const Utf8Char c = utf8_next(text.data() + i - length, length);
    if (c.status == Utf8Status::kValid && c.length == length) return char_class(c.code_point) == CharClass::kSpace;
  }
  return false;
}

}  // namespace

size_t gpt2_piece(const char* p, size_t n) {
  if (*p == '\'') {
    const size_t length = contraction(p, n);
    if (length != 0) return length;
  }
  ClassedChar first = classify(p, n);
  size_t start = 0;
  if (*p == ' ' && n > 1) {
    const ClassedChar second = classify(p + 1, n - 1);
    if (second.char_class != kSpace) first = second, start = 1;
  }
  if (first.char_class == kSpace) return space_piece(p, n);
  return run_end(p, start + first.length, n, first.char_class);
}

std::vector<size_t> piece_lengths(std::string_view text) {
  std::vector<size_t> lengths;
  for_each_piece(text, [&lengths](std::string_view piece) { lengths.push_back(piece.size()); });
  return lengths;
}

size_t next_safe_border(std::string_view text, size_t from) {
  for (size_t i = std::max<size_t>(from, 1); i < text.size(); ++i)
    if (byte_class(text[i]) == kSpace && !space_before(text, i)) return i;
  return text.size();
}

}  // namespace tally
