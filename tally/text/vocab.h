// The files of a tokenizer folder. GPT-2 writes each byte of a token as one printable character: bytes that print stand
// for themselves, the other 68 as U+0100 and on (bytes_to_unicode in openai/gpt-2, encoder.py).
//   vocab.json   {"token": id, ...}: each id once; ids may have gaps, as some vocabularies of huggingface/tokenizers do
//   merges.txt   "#version: 0.2" (optional when read), then one merge a line, first merged first: two tokens, one space
// Errors are one line and name the file, and the line or the token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tally {

class Json;
namespace fs = std::filesystem;

// The 256 byte values in the order of their printable characters: '!' first, then the bytes that do not print.
// The ids of a fresh BPE vocabulary follow this order.
const std::vector<uint8_t>& printable_byte_order();

std::string bytes_to_printable(std::string_view bytes);
// False when a character is not one of the 256; `bytes` is then unspecified.
bool printable_to_bytes(std::string_view text, std::string& bytes);

// Token text for a message: in double quotes, at most 40 characters, broken or control bytes as \xNN.
std::string quote_token(std::string_view text);

// Token bytes by id, in one block of memory. An id without bytes is a gap: no token.
class TokenTable {
 public:
  TokenTable() : offsets_{0} {}
  void push_back(std::string_view bytes);
  int32_t size() const { return static_cast<int32_t>(offsets_.size() - 1); }
  std::string_view operator[](int32_t id) const {  // id in [0, size())
    const auto i = static_cast<size_t>(id);
    return {bytes_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
  }

 private:
  std::string bytes_;
  std::vector<size_t> offsets_;
};

// All ids, those of special tokens last. A special token may have the bytes of an ordinary one (" " and GPT-2's
// character for the space); bytes of text mean the ordinary one then.
std::vector<int32_t> ordinary_first(const TokenTable& tokens, std::span<const int32_t> specials);

// read_file; Error when the file is empty.
std::string text_of_file(const fs::path& path);

// Ids of a vocabulary of that many tokens are below this: gaps are allowed, but memory is in proportion to the file.
size_t id_limit(size_t tokens);

// The entries of {"token": id, ...} by id; a gap is an empty key. `name` begins every Error.
std::vector<std::string> keys_by_id(const Json& entries, const std::string& name);
// Keys of vocab.json by id, as they stand in the file.
std::vector<std::string> read_vocab_json(const fs::path& path);

struct MergeLine {
  std::string left, right;  // bytes
  size_t line;              // in the file, from 1
};
// "left right", in printable bytes; `name` begins the Error, and tells the line.
MergeLine parse_merge(std::string_view text, size_t line, const std::function<std::string(size_t)>& name);
std::vector<MergeLine> read_merges(const fs::path& path);

// One key a line, ids ascending; the keys are all different, those of gaps empty.
std::string vocab_json_text(const std::vector<std::string>& keys);
std::string merges_text(const TokenTable& tokens, std::span<const std::pair<int32_t, int32_t>> merges);

}  // namespace tally
