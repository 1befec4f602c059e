// Files of openai/tiktoken: one token a line, base64 of its bytes, one space, its rank, which is its id too. The file
// says neither how text is cut nor what the special tokens are: both come from the encoding's name.
//
// tiktoken gives a piece that is a token that token's id, and merges the others: of two neighbours whose joined bytes
// are a token, the pair with the lowest rank first (CoreBPE, tiktoken/src/lib.rs). Here merges are keyed by pairs. Of
// the ways to cut a token in two, only the one by which its own bytes merge can ever occur: up to the moment when the
// token arises nothing outside of its bytes takes part, so these go the same way in any text. derive_merges finds it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/text/bpe.h"
#include "tally/text/vocab.h"

namespace tally {

// What tiktoken_ext/openai_public.py says of an encoding.
struct TiktokenEncoding {
  std::string_view name;
  std::string_view pattern;  // a name that Pattern::named knows
  int32_t tokens;            // lines of the file, or 0 where files differ
  std::vector<std::pair<std::string, int32_t>> specials;
};
// By the name without its ending ("cl100k_base"); nullptr when it is not known.
const TiktokenEncoding* find_tiktoken_encoding(std::string_view name);
std::string tiktoken_encoding_names();  // "gpt2, r50k_base, ..."

// Ranks that no line has are gaps: tokens without bytes. `lines` gets the number of tokens.
TokenTable read_tiktoken(const fs::path& path, int32_t* lines = nullptr);
std::string tiktoken_text(const TokenTable& tokens);  // tokens without bytes are left out

struct DerivedMerges {
  std::vector<BpeMerge> merges;      // by rank of the result
  std::vector<int32_t> underivable;  // tokens of two bytes and more that merging their bytes does not give
};
// Every token's rank is its id. Work in proportion to the bytes of the tokens, times the logarithm for long ones, as
// long as tokens are not long beginnings of each other: each merge looks up the bytes that it joins.
DerivedMerges derive_merges(const TokenTable& tokens);

}  // namespace tally
