// What a Tokenizer shares between its copies; included by the tokenizer*.cpp files only.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tally/text/bpe.h"
#include "tally/text/specials.h"
#include "tally/text/tokenizer.h"

namespace tally {

inline constexpr const char* kGpt2Pattern = "gpt2";

struct TokenizerImpl {
  TokenizerKind kind = TokenizerKind::kByte;
  TokenTable tokens;
  SpecialSet specials;
  std::optional<BpeModel> bpe;
  std::unordered_map<uint32_t, int32_t> chars;  // code point -> id (char)

  mutable BpeScratchPool scratch;
  mutable std::once_flag hash_once;
  mutable std::string hash;

  // Keys of vocab.json by id: special tokens as they are, bpe tokens in printable bytes, characters as UTF-8.
  std::vector<std::string> keys() const;
  // Text without special tokens. `offset` is where it stands in the caller's text, for messages.
  void encode_plain(std::string_view text, size_t offset, std::vector<int32_t>& out) const;
};

// Builds the kind's index over `tokens` and checks that no special token reads like another entry of vocab.json.
std::shared_ptr<const TokenizerImpl> make_tokenizer(TokenizerKind kind, TokenTable tokens, SpecialSet specials,
                                                    std::vector<BpeMerge> merges);

}  // namespace tally
