// What a Tokenizer shares between its copies; included by the tokenizer*.cpp files only.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tally/text/bpe.h"
#include "tally/text/pattern.h"
#include "tally/text/specials.h"
#include "tally/text/tokenizer.h"

namespace tally {

// How text becomes the pieces and tokens of a bpe tokenizer.
struct TokenizerOptions {
  Pattern pattern;
  bool ignore_merges = false;        // a piece that is a token becomes it, whatever its merges say
  bool nfc = false;                  // text between special tokens is put into Unicode's form C first
  std::vector<int32_t> not_special;  // special tokens that tokenizer.json calls added but not special; ascending
};

struct TokenizerImpl {
  TokenizerKind kind = TokenizerKind::kByte;
  TokenTable tokens;
  SpecialSet specials;
  TokenizerOptions options;
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
                                                    std::vector<BpeMerge> merges, TokenizerOptions options = {});

}  // namespace tally
