// Unicode's normalization form C (UAX 15): "e" and a combining accent become one character where there is one. Some
// vocabularies (Qwen's) are for text in this form. Bytes that are not UTF-8 stay as they are.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// Whether nfc(text) == text. Plain text takes one pass over its bytes.
bool is_nfc(std::string_view text);
std::string nfc(std::string_view text);
// The start of the last character that neither combines nor changes: what stands before it has its form whatever
// follows. 0 when there is none.
size_t nfc_settled(std::string_view text);

}  // namespace tally
