// Classes of code points for pre-tokenizers, from Unicode 16.0.0: the version of regex-syntax 0.8.11, which tiktoken 0.14
// is built with (every code point of the classes below was compared). The runs are generated
// (tools/make_unicode_tables.py); look-up is one load from a table of a byte a code point for the planes 0 to 3
// (256 KiB, of which a text touches what its scripts need), filled from the runs at the first use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally {

// A set of classes; a code point has one of them or none (controls, format characters, unassigned: kOther).
using CharClass = uint8_t;
namespace classes {
inline constexpr CharClass kOther = 0;
inline constexpr CharClass kUpper = 1;        // Lu, Lt
inline constexpr CharClass kLower = 2;        // Ll
inline constexpr CharClass kCaseless = 4;     // Lm, Lo
inline constexpr CharClass kMark = 8;         // M
inline constexpr CharClass kNumber = 16;      // N
inline constexpr CharClass kBlank = 32;       // White_Space but for the next
inline constexpr CharClass kNewline = 64;     // CR, LF
inline constexpr CharClass kPunctuation = 128;  // P, S
inline constexpr CharClass kLetter = kUpper | kLower | kCaseless;
inline constexpr CharClass kSpace = kBlank | kNewline;
}  // namespace classes

extern const uint32_t kUnicodeRuns[];  // first code point * 16 + (0 other, 1 + the number of the class's bit), ascending
extern const size_t kUnicodeRunCount;
inline constexpr uint32_t kUnicodeEnd = 0x110000;
inline constexpr uint32_t kUnicodeTableEnd = 0x40000;

// One CharClass a code point below kUnicodeTableEnd.
const uint8_t* unicode_class_table();

// Class of a code point. Above the table there are only the variation selectors, which are marks (the generator checks).
inline CharClass char_class(uint32_t code_point, const uint8_t* table = unicode_class_table()) {
  if (code_point < kUnicodeTableEnd) return table[code_point];
  return code_point >= 0xE0100 && code_point <= 0xE01EF ? classes::kMark : classes::kOther;
}

}  // namespace tally
