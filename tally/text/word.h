// The word tokenizer: each piece of a pattern is one token, and a word that the vocabulary lacks is <|unk|>, so a
// vocabulary has no fixed size and what is cut off is lost: decode gives the text "<|unk|>" for it.
// Ids: the special tokens in the order given, <|unk|> behind them unless it is among them, then the words, the most
// frequent first and those that are equally frequent ascending by bytes.
// On disk: vocab.json with words in GPT-2's printable bytes, <|unk|> among the special tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tally/text/pattern.h"
#include "tally/text/specials.h"
#include "tally/text/tokenizer.h"
#include "tally/text/vocab.h"
#include "tally/text/word_counts.h"

namespace tally {

inline constexpr std::string_view kUnknownWord = "<|unk|>";
// Runs of letters, digits and underscores, and every other character by itself. A line end is a piece too: what an
// expression does not match is not lost.
inline constexpr std::string_view kWordPattern = "regex:\\w+|.";

// The names with <|unk|> behind them unless it is among them.
std::vector<std::string> with_unknown(std::vector<std::string> specials);

// Over the vocabulary of a folder. Without <|unk|> among the specials an unknown word is an Error.
Tokenizer make_word_tokenizer(const Pattern& pattern, TokenTable tokens, SpecialSet specials);

// `specials` are with_unknown(). Words that occur at least min_count times; at most vocab_size entries in all (0: any number).
Tokenizer make_word_vocabulary(const Pattern& pattern, WordList words, std::vector<std::string> specials,
                               int64_t vocab_size, int64_t min_count);

}  // namespace tally
