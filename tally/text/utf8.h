// UTF-8, strict (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), one character a call.
// A broken sequence is cut as Unicode recommends (chapter 3.9, "maximal subparts") and as Python and browsers do, so
// that replacing each broken part by U+FFFD gives the same text as theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

enum class Utf8Status : uint8_t {
  kValid,       // `code_point` stands in the first `length` bytes
  kInvalid,     // the first `length` bytes are one broken part
  kIncomplete,  // all `length` bytes left are the start of a character: more bytes could complete it
};

struct Utf8Char {
  uint32_t code_point;
  uint32_t length;
  Utf8Status status;
};

// The character at the start of the n > 0 bytes at p.
inline Utf8Char utf8_next(const char* p, size_t n) {
  const auto* u = reinterpret_cast<const unsigned char*>(p);
  const uint32_t lead = u[0];
  if (lead < 0x80) return {lead, 1, Utf8Status::kValid};
  if (lead < 0xC2 || lead > 0xF4) return {0, 1, Utf8Status::kInvalid};
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range is narrower after E0 (overlong), ED (surrogates), F0 (overlong) and F4 (above U+10FFFF).
  const uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t code_point = lead & (0x7Fu >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if (i == n) return {0, i, Utf8Status::kIncomplete};
    if (i == 1 ? (u[1] < low || u[1] > high) : (u[i] & 0xC0) != 0x80) return {0, i, Utf8Status::kInvalid};
    code_point = (code_point << 6) | (u[i] & 0x3F);
  }
  return {code_point, length, Utf8Status::kValid};
}

void append_utf8(uint32_t code_point, std::string& out);

// Valid UTF-8 of any bytes: each broken part becomes U+FFFD. The incomplete end is replaced too when `at_end`;
// otherwise its bytes stay in `pending` (at most 3), which is put before `bytes` in the next call.
std::string utf8_repair(std::string_view bytes, std::string& pending, bool at_end);

}  // namespace tally
