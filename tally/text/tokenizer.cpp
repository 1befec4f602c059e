// Making and decoding; encoding is in tokenizer_encode.cpp, files in tokenizer_files.cpp, training in
// tokenizer_train.cpp, streams in stream.cpp.
#include "tally/text/tokenizer.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

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
    case TokenizerKind::kWord:
      return "word";
  }
  return "";
}

TokenizerKind parse_tokenizer_kind(std::string_view name) {
  for (const TokenizerKind kind :
       {TokenizerKind::kBpe, TokenizerKind::kByte, TokenizerKind::kChar, TokenizerKind::kWord})
    if (name == tokenizer_kind_name(kind)) return kind;
  fail("tokenizer kind {} is not known; it is bpe, byte, char or word", quote_token(name));
}

std::vector<std::string> TokenizerImpl::keys() const {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(tokens.size()));
  for (int32_t id = 0; id < tokens.size(); ++id)
    keys.push_back(kind == TokenizerKind::kChar ? std::string(tokens[id]) : bytes_to_printable(tokens[id]));
  for (size_t i = 0; i < specials.size(); ++i) keys[static_cast<size_t>(specials.ids()[i])] = specials.names()[i];
  return keys;
}

namespace {

// Entries of vocab.json are told apart by their keys.
void check_keys(const TokenizerImpl& impl) {
  const std::vector<std::string> keys = impl.keys();
  std::vector<std::pair<size_t, int32_t>> hashes;
  hashes.reserve(keys.size());
  for (int32_t id = 0; id < impl.tokens.size(); ++id)
    if (!impl.tokens[id].empty()) hashes.emplace_back(std::hash<std::string>{}(keys[static_cast<size_t>(id)]), id);
  std::sort(hashes.begin(), hashes.end());
  for (size_t i = 0; i < hashes.size(); ++i)
    for (size_t k = i + 1; k < hashes.size() && hashes[k].first == hashes[i].first; ++k)
      if (const std::string& key = keys[static_cast<size_t>(hashes[i].second)];
          key == keys[static_cast<size_t>(hashes[k].second)])
        fail("special token {} reads like another entry of the vocabulary (ids {} and {}); choose another name",
             quote_token(key), hashes[i].second, hashes[k].second);
}

void index_chars(TokenizerImpl& impl) {
  std::vector<bool> special(static_cast<size_t>(impl.tokens.size()), false);
  for (const int32_t id : impl.specials.ids()) special[static_cast<size_t>(id)] = true;
  for (int32_t id = 0; id < impl.tokens.size(); ++id) {
    const std::string_view bytes = impl.tokens[id];
    if (special[static_cast<size_t>(id)] || bytes.empty()) continue;
    const Utf8Char c = utf8_next(bytes.data(), bytes.size());
    if (c.status == Utf8Status::kValid && c.length == bytes.size()) impl.chars.emplace(c.code_point, id);
  }
}

// `bpe`: the model of these tokens, merges and specials if there is one already.
std::shared_ptr<const TokenizerImpl> make(TokenizerParts parts, std::shared_ptr<const BpeModel> bpe) {
  auto impl = std::make_shared<TokenizerImpl>();
  impl->kind = parts.kind;
  impl->tokens = std::move(parts.tokens);
  impl->specials = std::move(parts.specials);
  impl->pattern = std::move(parts.pattern);
  impl->encode_words = std::move(parts.encode_words);
  impl->nfc = parts.nfc;
  impl->not_special = std::move(parts.not_special);
  impl->bpe = std::move(bpe);
  impl->decoding = DecodeTable(impl->tokens);
  if (parts.kind == TokenizerKind::kBpe && impl->bpe == nullptr)
    impl->bpe = std::make_shared<BpeModel>(impl->tokens, std::move(parts.merges), impl->specials.ids(), parts.rules);
  if (parts.kind != TokenizerKind::kByte) check_keys(*impl);
  if (parts.kind == TokenizerKind::kChar) index_chars(*impl);
  TALLY_ASSERT(parts.kind != TokenizerKind::kWord || impl->encode_words);
  return impl;
}

}  // namespace

std::shared_ptr<const TokenizerImpl> make_tokenizer(TokenizerParts parts) { return make(std::move(parts), nullptr); }

std::shared_ptr<const TokenizerImpl> make_tokenizer(TokenizerKind kind, TokenTable tokens, SpecialSet specials,
                                                    std::vector<BpeMerge> merges) {
  TokenizerParts parts;
  parts.kind = kind;
  parts.tokens = std::move(tokens);
  parts.specials = std::move(specials);
  parts.merges = std::move(merges);
  return make_tokenizer(std::move(parts));
}

Tokenizer::Tokenizer() {
  static const std::shared_ptr<const TokenizerImpl> bytes = make_tokenizer(TokenizerKind::kByte, byte_tokens(), {}, {});
  impl_ = bytes;
}

TokenizerKind Tokenizer::kind() const { return impl_->kind; }
const Pattern& Tokenizer::pattern() const { return impl_->pattern; }
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
    const int32_t known = found != by_bytes.end() ? found->second : tokens.size();
    ids.push_back(special_id(name).value_or(known));
    if (ids.back() == tokens.size()) tokens.push_back(name);
  }
  // The model depends on which of its tokens are special only.
  const int32_t held = impl_->tokens.size();
  const auto held_ids = [held](std::vector<int32_t> list) {
    std::erase_if(list, [held](int32_t id) { return id >= held; });
    std::sort(list.begin(), list.end());
    return list;
  };
  const bool same = impl_->bpe != nullptr && tokens.size() == held && held_ids(ids) == held_ids(impl_->specials.ids());
  TokenizerParts parts;
  parts.kind = impl_->kind;
  parts.tokens = std::move(tokens);
  for (const int32_t id : impl_->not_special)
    if (std::find(ids.begin(), ids.end(), id) != ids.end()) parts.not_special.push_back(id);
  parts.nfc = impl_->nfc;
  parts.specials = SpecialSet(names, std::move(ids));
  parts.pattern = impl_->pattern;
  parts.encode_words = impl_->encode_words;
  if (impl_->bpe && !same)
    parts.merges = impl_->bpe->rules().merge_by_id ? std::vector<BpeMerge>() : impl_->bpe->merges();
  if (impl_->bpe) parts.rules = impl_->bpe->rules();
  return Tokenizer(make(std::move(parts), same ? impl_->bpe : nullptr));
}

std::string_view Tokenizer::token_bytes(int64_t id) const {
  if (id < 0 || id >= impl_->tokens.size())
    fail("token id {} is outside the vocabulary of {} tokens (0 to {})", id, impl_->tokens.size(),
         impl_->tokens.size() - 1);
  return impl_->tokens[static_cast<int32_t>(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const { return impl_->decoding.decode(impl_->tokens, ids); }

std::vector<std::string> Tokenizer::decode_batch(std::span<const std::vector<int32_t>> ids) const {
  std::vector<std::string> texts(ids.size());
  parallel_for(static_cast<int64_t>(ids.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) texts[i] = decode(ids[i]);
  });
  return texts;
}

std::string Tokenizer::decode_text(std::span<const int32_t> ids) const {
  std::string pending;
  return utf8_repair(decode(ids), pending, true);
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
