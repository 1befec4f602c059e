// What a Tokenizer shares between its copies, and how file readers and the trainer make one; included by the
// tokenizer*.cpp files only.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tally/text/bpe.h"
#include "tally/text/decode_table.h"
#include "tally/text/pattern.h"
#include "tally/text/specials.h"
#include "tally/text/tokenizer.h"

namespace tally {

inline constexpr const char* kGpt2Pattern = "gpt2";

// Ids of a text without special tokens, which stands at `offset` of the caller's (for messages), appended to `ids`;
// and, unless null, the bytes of the text that each id stands for, appended to `lengths`.
using EncodeWords = std::function<void(std::string_view text, size_t offset, std::vector<int32_t>& ids,
                                       std::vector<uint32_t>* lengths)>;

// All that a tokenizer is made of.
struct TokenizerParts {
  TokenizerKind kind = TokenizerKind::kBpe;
  Pattern pattern;    // bpe and word
  TokenTable tokens;  // by id; bpe: no bytes for an id that the vocabulary leaves out
  SpecialSet specials;
  std::vector<BpeMerge> merges;      // bpe
  BpeRules rules;                    // bpe
  bool nfc = false;                  // bpe: text between special tokens is put into Unicode's form C first
  std::vector<int32_t> not_special;  // special tokens that tokenizer.json calls added but not special; ascending
  EncodeWords encode_words;          // word
};

// A policy for one set of special tokens.
struct SpecialFilter {
  SpecialFilter(const SpecialSet& set, const SpecialPolicy& policy);
  const SpecialSet& specials;
  Specials rest;
  std::vector<bool> allowed;  // by index in specials; empty: none by name
  bool search() const { return !specials.empty() && (rest != Specials::kAsText || !allowed.empty()); }
  const std::vector<bool>* only() const { return rest == Specials::kAsText ? &allowed : nullptr; }
  // The first match at or after `from`; Error when it is refused. The text stands at `offset` of the caller's.
  SpecialSet::Match find(std::string_view text, size_t from, size_t offset) const;
  void check(const SpecialSet::Match& match, size_t offset) const;
};

struct TokenizerImpl {
  TokenizerKind kind = TokenizerKind::kByte;
  TokenTable tokens;
  SpecialSet specials;
  Pattern pattern;
  std::shared_ptr<const BpeModel> bpe;
  EncodeWords encode_words;
  bool nfc = false;
  std::vector<int32_t> not_special;
  std::unordered_map<uint32_t, int32_t> chars;  // code point -> id (char)
  DecodeTable decoding;

  mutable BpeScratchPool scratch;
  mutable BpeScratchPool stream_scratch{13};  // 450 KB: a stream takes little memory
  mutable std::once_flag hash_once;
  mutable std::string hash;

  // Keys of vocab.json by id: special tokens as they are, bpe tokens in printable bytes, characters as UTF-8.
  std::vector<std::string> keys() const;
  // Text without special tokens. `offset` is where it stands in the caller's text, for messages.
  void encode_plain(std::string_view text, size_t offset, std::vector<int32_t>& out, BpeScratchPool& pool) const;
  // Counts, and appends unless `out` is null.
  int64_t encode(std::string_view text, const SpecialFilter& filter, size_t offset, std::vector<int32_t>* out) const;
};

// Builds the kind's index over the tokens and checks that no special token reads like another entry of vocab.json.
std::shared_ptr<const TokenizerImpl> make_tokenizer(TokenizerParts parts);
std::shared_ptr<const TokenizerImpl> make_tokenizer(TokenizerKind kind, TokenTable tokens, SpecialSet specials,
                                                    std::vector<BpeMerge> merges);

}  // namespace tally
