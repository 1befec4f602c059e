// Classes of code points for pre-tokenizers: \p{L}, \p{N} and \s (White_Space) of Unicode 16.0.0, the version that
// the reference encoders of GPT-2's pattern use. The runs are generated (tools/make_unicode_tables.py); look-up is one
// load from a table of two bits a code point (272 KiB), filled from the runs at the first use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally {

enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

extern const uint32_t kUnicodeRuns[];  // first code point * 4 + class, ascending
extern const size_t kUnicodeRunCount;
inline constexpr uint32_t kUnicodeEnd = 0x110000;

// The packed table: four code points a byte.
const uint8_t* unicode_class_table();

// Class of a code point; kOther from kUnicodeEnd on.
inline CharClass char_class(uint32_t code_point, const uint8_t* table = unicode_class_table()) {
  if (code_point >= kUnicodeEnd) return CharClass::kOther;
  return static_cast<CharClass>((table[code_point >> 2] >> ((code_point & 3) * 2)) & 3);
}

}  // namespace tally
