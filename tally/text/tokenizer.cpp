// Encoding and decoding; files are in tokenizer_files.cpp, training in tokenizer_train.cpp, streams in stream.cpp.
#include "tally/text/tokenizer.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

constexpr size_t kParallelPartBytes = size_t{1} << 18;

void encode_chars(const TokenizerImpl& impl, std::string_view text, size_t offset, std::vector<int32_t>& out) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    if (c.status != Utf8Status::kValid)
      fail("byte 0x{:02x} at offset {} is not valid UTF-8, which a char tokenizer needs",
           static_cast<unsigned char>(text[i]), offset + i);
    const auto found = impl.chars.find(c.code_point);
    if (found == impl.chars.end())
      fail("character {} (U+{:04X}) at byte {} is not in the char vocabulary; train the tokenizer on text that has it",
           quote_token(text.substr(i, c.length)), c.code_point, offset + i);
    out.push_back(found->second);
    i += c.length;
  }
}

TokenTable byte_tokens() {
  TokenTable tokens;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    tokens.push_back({&byte, 1});
  }
  return tokens;
}

}  // namespace

const char* tokenizer_kind_name(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kBpe:
      return "bpe";
    case TokenizerKind::kByte:
      return "byte";
    case TokenizerKind::kChar:
      return "char";
  }
  return "";
}

TokenizerKind parse_tokenizer_kind(std::string_view name) {
  for (const TokenizerKind kind : {TokenizerKind::kBpe, TokenizerKind::kByte, TokenizerKind::kChar})
    if (name == tokenizer_kind_name(kind)) return kind;
  fail("tokenizer kind {} is not known; it is bpe, byte or char", quote_token(name));
}

std::vector<std::string> TokenizerImpl::keys() const {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(tokens.size()));
  for (int32_t id = 0; id < tokens.size(); ++id)
    keys.push_back(kind == TokenizerKind::kChar ? std::string(tokens[id]) : bytes_to_printable(tokens[id]));
  for (size_t i = 0; i < specials.size(); ++i) keys[static_cast<size_t>(specials.ids()[i])] = specials.names()[i];
  return keys;
}

void TokenizerImpl::encode_plain(std::string_view text, size_t offset, std::vector<int32_t>& out) const {
  if (kind == TokenizerKind::kByte) {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  } else if (kind == TokenizerKind::kChar) {
    encode_chars(*this, text, offset, out);
  } else {
    std::unique_ptr<BpeScratch> borrowed = scratch.take();
    bpe->encode_text(text, out, *borrowed);
    scratch.give(std::move(borrowed));
  }
}

std::shared_ptr<const TokenizerImpl> make_tokenizer(TokenizerKind kind, TokenTable tokens, SpecialSet specials,
                                                    std::vector<BpeMerge> merges, TokenizerOptions options) {
  auto impl = std::make_shared<TokenizerImpl>();
  impl->kind = kind;
  impl->tokens = std::move(tokens);
  impl->specials = std::move(specials);
  impl->options = std::move(options);
  if (kind == TokenizerKind::kBpe) impl->bpe.emplace(impl->tokens, std::move(merges), impl->specials.ids());
  if (kind != TokenizerKind::kByte) {
    std::unordered_map<std::string, int32_t> by_key;
    const std::vector<std::string> keys = impl->keys();
    for (int32_t id = 0; id < impl->tokens.size(); ++id) {
      if (keys[static_cast<size_t>(id)].empty()) continue;
      const auto [other, is_new] = by_key.emplace(keys[static_cast<size_t>(id)], id);
      if (!is_new)
        fail("special token {} reads like another entry of the vocabulary (ids {} and {}); choose another name",
             quote_token(other->first), other->second, id);
    }
  }
  if (kind == TokenizerKind::kChar) {
    std::vector<bool> special(static_cast<size_t>(impl->tokens.size()), false);
    for (const int32_t id : impl->specials.ids()) special[static_cast<size_t>(id)] = true;
    for (int32_t id = 0; id < impl->tokens.size(); ++id) {
      const std::string_view bytes = impl->tokens[id];
      if (special[static_cast<size_t>(id)] || bytes.empty()) continue;
      const Utf8Char c = utf8_next(bytes.data(), bytes.size());
      if (c.status == Utf8Status::kValid && c.length == bytes.size()) impl->chars.emplace(c.code_point, id);
    }
  }
  return impl;
}

Tokenizer::Tokenizer() {
  static const std::shared_ptr<const TokenizerImpl> bytes = make_tokenizer(TokenizerKind::kByte, byte_tokens(), {}, {});
  impl_ = bytes;
}

TokenizerKind Tokenizer::kind() const { return impl_->kind; }
int32_t Tokenizer::vocab_size() const { return impl_->tokens.size(); }

Tokenizer Tokenizer::with_specials(const std::vector<std::string>& names) const {
  if (kind() != TokenizerKind::kBpe)
    for (const std::string& old : impl_->specials.names())
      if (std::find(names.begin(), names.end(), old) == names.end())
        fail("special token {} of a {} tokenizer cannot become ordinary text; list it too", quote_token(old),
             tokenizer_kind_name(kind()));
  TokenTable tokens = impl_->tokens;
  std::unordered_map<std::string_view, int32_t> by_bytes;
  for (int32_t id = 0; id < impl_->tokens.size(); ++id) by_bytes.emplace(impl_->tokens[id], id);
  std::vector<int32_t> ids;
  for (const std::string& name : names) {
    if (kind() == TokenizerKind::kByte && name.size() == 1)
      fail("special token {} is a single byte, which a byte tokenizer has already", quote_token(name));
    const auto found = by_bytes.find(name);
    const int32_t held = found != by_bytes.end() ? found->second : tokens.size();
    ids.push_back(special_id(name).value_or(held));
    if (ids.back() == tokens.size()) tokens.push_back(name);
  }
  std::vector<BpeMerge> merges;
  if (impl_->bpe) merges = impl_->bpe->merges();
  return Tokenizer(
      make_tokenizer(impl_->kind, std::move(tokens), SpecialSet(names, std::move(ids)), std::move(merges)));
}

void Tokenizer::encode_append(std::string_view text, std::vector<int32_t>& out, bool allow_special) const {
  static const SpecialSet none;
  for_each_segment(
      text, allow_special ? impl_->specials : none,
      [&](std::string_view plain) { impl_->encode_plain(plain, static_cast<size_t>(plain.data() - text.data()), out); },
      [&out](int32_t id) { out.push_back(id); });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool allow_special) const {
  std::vector<int32_t> ids;
  ids.reserve(impl_->kind == TokenizerKind::kBpe ? text.size() / 3 + 1 : text.size());
  encode_append(text, ids, allow_special);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_parallel(std::string_view text, bool allow_special) const {
  // Character offsets in messages must be those of the whole text, and that path is fast anyway.
  if (impl_->kind != TokenizerKind::kBpe) return encode(text, allow_special);
  static const SpecialSet none;
  const std::vector<std::string_view> parts =
      cut_text(text, allow_special ? impl_->specials : none, kParallelPartBytes);
  std::vector<std::vector<int32_t>> ids(parts.size());
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      ids[i] = encode(parts[i], allow_special);
  });
  size_t total = 0;
  for (const auto& part : ids) total += part.size();
  std::vector<int32_t> out;
  out.reserve(total);
  for (auto& part : ids) {
    out.insert(out.end(), part.begin(), part.end());
    std::vector<int32_t>().swap(part);
  }
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= impl_->tokens.size())
    fail("token id {} is outside the vocabulary of {} tokens (0 to {})", id, impl_->tokens.size(),
         impl_->tokens.size() - 1);
  return impl_->tokens[id];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  size_t total = 0;
  for (const int32_t id : ids) total += token_bytes(id).size();
  std::string out;
  out.reserve(total);
  for (const int32_t id : ids) out += impl_->tokens[id];
  return out;
}

std::string Tokenizer::decode_text(std::span<const int32_t> ids) const {
  std::string pending;
  return utf8_repair(decode(ids), pending, true);
}

std::vector<std::pair<int64_t, int64_t>> Tokenizer::char_offsets(std::span<const int32_t> ids) const {
  const std::string bytes = decode(ids);
  std::vector<int64_t> char_of_byte(bytes.size());
  int64_t chars = 0;
  for (size_t i = 0; i < bytes.size(); ++chars) {
    const Utf8Char c = utf8_next(bytes.data() + i, bytes.size() - i);
    std::fill_n(char_of_byte.begin() + static_cast<ptrdiff_t>(i), c.length, chars);
    i += c.length;
  }
  std::vector<std::pair<int64_t, int64_t>> offsets;
  size_t at = 0;
  for (const int32_t id : ids) {
    const size_t end = at + impl_->tokens[id].size();
    const int64_t first = at < bytes.size() ? char_of_byte[at] : chars;
    offsets.emplace_back(first, end > at ? char_of_byte[end - 1] + 1 : first);
    at = end;
  }
  return offsets;
}

std::optional<int32_t> Tokenizer::special_id(std::string_view name) const {
  const int64_t i = impl_->specials.index_of(name);
  if (i < 0) return std::nullopt;
  return impl_->specials.ids()[static_cast<size_t>(i)];
}

std::vector<std::pair<std::string, int32_t>> Tokenizer::specials() const {
  std::vector<std::pair<std::string, int32_t>> list;
  for (size_t i = 0; i < impl_->specials.size(); ++i)
    list.emplace_back(impl_->specials.names()[i], impl_->specials.ids()[i]);
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return list;
}

}  // namespace tally
