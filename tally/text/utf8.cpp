// Class table and text repair; see utf8.h and unicode_tables.h.
#include "tally/text/utf8.h"

#include <memory>

#include "tally/text/unicode_tables.h"

namespace tally {

const uint8_t* unicode_class_table() {
  static const std::unique_ptr<const uint8_t[]> table = [] {
    auto classes = std::make_unique<uint8_t[]>(kUnicodeTableEnd);
    for (size_t i = 0; i < kUnicodeRunCount; ++i) {
      const uint32_t value = kUnicodeRuns[i] & 15;
      const uint32_t end = i + 1 < kUnicodeRunCount ? kUnicodeRuns[i + 1] >> 4 : kUnicodeTableEnd;
      for (uint32_t c = kUnicodeRuns[i] >> 4; value != 0 && c < end; ++c)
        classes[c] = static_cast<uint8_t>(1u << (value - 1));
    }
    return classes;
  }();
  return table.get();
}

void append_utf8(uint32_t c, std::string& out) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3F)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

std::string utf8_repair(std::string_view bytes, std::string& pending, bool at_end) {
  std::string joined;
  if (!pending.empty()) {
    joined = pending + std::string(bytes);
    bytes = joined;
    pending.clear();
  }
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = utf8_next(bytes.data() + i, bytes.size() - i);
    if (c.status == Utf8Status::kIncomplete && !at_end) {
      pending.assign(bytes.substr(i));
      break;
    }
    if (c.status == Utf8Status::kValid) {
      out.append(bytes.substr(i, c.length));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    i += c.length;
  }
  return out;
}

}  // namespace tally
