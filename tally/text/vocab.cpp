// Reading and writing of vocab.json and merges.txt; see vocab.h.
#include "tally/text/vocab.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "tally/base/error.h"
#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

constexpr std::string_view kMergesHeader = "#version:";

bool prints(int byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE; }

struct ByteMap {
  std::vector<uint8_t> order;              // bytes by printable character
  std::array<std::string, 256> text;       // byte -> its printable character
  std::array<int, 256 + 68> byte_of_char;  // code point -> byte, or -1
};

const ByteMap& byte_map() {
  static const ByteMap map = [] {
    ByteMap m;
    m.byte_of_char.fill(-1);
    const auto add = [&m](int byte, size_t code_point) {
      m.order.push_back(static_cast<uint8_t>(byte));
      append_utf8(static_cast<uint32_t>(code_point), m.text[static_cast<size_t>(byte)]);
      m.byte_of_char[code_point] = byte;
    };
    for (int b = 0; b < 256; ++b)
      if (prints(b)) add(b, static_cast<size_t>(b));
    size_t next = 256;
    for (int b = 0; b < 256; ++b)
      if (!prints(b)) add(b, next++);
    return m;
  }();
  return map;
}

}  // namespace

std::string text_of_file(const fs::path& path) {
  std::string text = read_file(path);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // a byte order mark, which some editors put there
  if (text.empty()) fail("{}: the file is empty", path.string());
  return text;
}

const std::vector<uint8_t>& printable_byte_order() { return byte_map().order; }

std::string bytes_to_printable(std::string_view bytes) {
  const ByteMap& map = byte_map();
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) out += map.text[static_cast<unsigned char>(c)];
  return out;
}

bool printable_to_bytes(std::string_view text, std::string& bytes) {
  const ByteMap& map = byte_map();
  bytes.clear();
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    if (c.status != Utf8Status::kValid || c.code_point >= map.byte_of_char.size()) return false;
    const int byte = map.byte_of_char[c.code_point];
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    i += c.length;
  }
  return true;
}

std::string quote_token(std::string_view text) {
  std::string out = "\"";
  size_t i = 0;
  for (int shown = 0; i < text.size() && shown < 40; ++shown) {
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    const bool plain = c.status == Utf8Status::kValid && c.code_point >= 0x20 &&
                       !(c.code_point >= 0x7F && c.code_point < 0xA0) && c.code_point != 0x2028 &&
                       c.code_point != 0x2029;
    for (size_t k = i; k < i + c.length; ++k) {
      if (plain) {
        out += text[k];
      } else {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[k]));
      }
    }
    i += c.length;
  }
  return out + (i < text.size() ? "\"..." : "\"");
}

void TokenTable::push_back(std::string_view bytes) {
  TALLY_ASSERT(offsets_.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  bytes_ += bytes;
  offsets_.push_back(bytes_.size());
}

std::vector<int32_t> ordinary_first(const TokenTable& tokens, std::span<const int32_t> specials) {
  std::vector<bool> special(static_cast<size_t>(tokens.size()), false);
  for (const int32_t id : specials) special[static_cast<size_t>(id)] = true;
  std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_partition(ids.begin(), ids.end(), [&](int32_t id) { return !special[static_cast<size_t>(id)]; });
  return ids;
}

size_t id_limit(size_t tokens) { return std::min<size_t>(tokens * 2 + 65536, std::numeric_limits<int32_t>::max()); }

std::vector<std::string> keys_by_id(const Json& entries, const std::string& name) {
  if (!entries.is_object() || entries.as_object().empty()) fail("{}: expected an object of tokens and ids", name);
  const size_t limit = id_limit(entries.as_object().size());
  std::vector<const std::string*> by_id;
  for (const auto& [token, value] : entries.as_object()) {
    if (!value.is_int()) fail("{}: the id of token {} is not a whole number below {}", name, quote_token(token), limit);
    if (value.as_int() < 0 || value.as_int() >= static_cast<int64_t>(limit))
      fail("{}: token {} has id {}; the ids of {} tokens must be 0 to {} at most, each once", name, quote_token(token),
           value.as_int(), entries.as_object().size(), limit - 1);
    const auto id = static_cast<size_t>(value.as_int());
    if (token.empty()) fail("{}: token \"\" (id {}) is empty", name, id);
    if (id >= by_id.size()) by_id.resize(id + 1, nullptr);
    if (by_id[id] != nullptr)
      fail("{}: tokens {} and {} both have id {}", name, quote_token(*by_id[id]), quote_token(token), id);
    by_id[id] = &token;
  }
  std::vector<std::string> keys;
  keys.reserve(by_id.size());
  for (const std::string* key : by_id) keys.push_back(key == nullptr ? std::string() : *key);
  return keys;
}

std::vector<std::string> read_vocab_json(const fs::path& path) {
  return keys_by_id(Json::parse(text_of_file(path), path.string()), path.string());
}

MergeLine parse_merge(std::string_view text, size_t line, const std::function<std::string(size_t)>& name) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos)
    fail("{}: expected two tokens with one space between them, found {}", name(line), quote_token(text));
  MergeLine merge{{}, {}, line};
  if (!printable_to_bytes(text.substr(0, space), merge.left) ||
      !printable_to_bytes(text.substr(space + 1), merge.right))
    fail("{}: {} has a character that is not one of GPT-2's 256 byte characters", name(line), quote_token(text));
  return merge;
}

std::vector<MergeLine> read_merges(const fs::path& path) {
  const std::string text = text_of_file(path);
  const auto name = [&path](size_t line) { return fmt::format("{}:{}", path.string(), line); };
  std::vector<MergeLine> merges;
  size_t line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++line_number;
    if (line_number == 1 && line.starts_with(kMergesHeader)) continue;
    merges.push_back(parse_merge(line, line_number, name));
  }
  return merges;
}

std::string vocab_json_text(const std::vector<std::string>& keys) {
  std::string out = "{";
  for (size_t id = 0; id < keys.size(); ++id) {
    if (keys[id].empty()) continue;
    out += fmt::format("{}\n  {}: {}", out.size() == 1 ? "" : ",", Json(keys[id]).dump(), id);
  }
  return out + "\n}\n";
}

std::string merges_text(const TokenTable& tokens, std::span<const std::pair<int32_t, int32_t>> merges) {
  std::string out = "#version: 0.2\n";
  for (const auto& [left, right] : merges)
    out += bytes_to_printable(tokens[left]) + " " + bytes_to_printable(tokens[right]) + "\n";
  return out;
}

}  // namespace tally
