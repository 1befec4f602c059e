// See word.h. Words are looked up in a hash map over a table that all copies of the tokenizer share.
#include "tally/text/word.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "tally/base/error.h"
#include "tally/text/tokenizer_impl.h"

namespace tally {
namespace {

struct WordIndex {
  Pattern pattern;
  TokenTable tokens;
  std::unordered_map<std::string_view, int32_t> ids;  // views into tokens
  int32_t unknown = -1;

  int32_t id_of(std::string_view word, size_t offset) const {
    const auto found = ids.find(word);
    if (found != ids.end()) return found->second;
    if (unknown < 0)
      fail("the word {} at byte {} is not in the vocabulary, which has no {} for it", quote_token(word), offset,
           kUnknownWord);
    return unknown;
  }
};

}  // namespace

std::vector<std::string> with_unknown(std::vector<std::string> specials) {
  if (std::find(specials.begin(), specials.end(), kUnknownWord) == specials.end()) specials.emplace_back(kUnknownWord);
  return specials;
}

Tokenizer make_word_tokenizer(const Pattern& pattern, TokenTable tokens, SpecialSet specials) {
  const auto index = std::make_shared<WordIndex>();
  index->pattern = pattern;
  index->tokens = tokens;
  std::vector<bool> special(static_cast<size_t>(tokens.size()), false);
  for (size_t i = 0; i < specials.size(); ++i) {
    special[static_cast<size_t>(specials.ids()[i])] = true;
    if (specials.names()[i] == kUnknownWord) index->unknown = specials.ids()[i];
  }
  for (int32_t id = 0; id < index->tokens.size(); ++id)
    if (!special[static_cast<size_t>(id)]) index->ids.emplace(index->tokens[id], id);
  TokenizerParts parts;
  parts.kind = TokenizerKind::kWord;
  parts.pattern = pattern;
  parts.tokens = std::move(tokens);
  parts.specials = std::move(specials);
  parts.encode_words = [index](std::string_view text, size_t offset, std::vector<int32_t>& ids,
                               std::vector<uint32_t>* lengths) {
    for_each_piece(index->pattern, text, [&](std::string_view word) {
      ids.push_back(index->id_of(word, offset + static_cast<size_t>(word.data() - text.data())));
      if (lengths != nullptr) lengths->push_back(static_cast<uint32_t>(word.size()));
    });
  };
  return Tokenizer(make_tokenizer(std::move(parts)));
}

Tokenizer make_word_vocabulary(const Pattern& pattern, WordList words, std::vector<std::string> specials,
                               int64_t vocab_size, int64_t min_count) {
  const auto least = static_cast<int64_t>(specials.size()) + 1;
  if (vocab_size != 0 && vocab_size < least)
    fail("vocab_size {} is too small: a word vocabulary has {} special tokens ({} is one) and words, so at least {}",
         vocab_size, specials.size(), kUnknownWord, least);
  std::vector<WordCount>& list = words.words;
  std::erase_if(list, [min_count](const WordCount& w) { return w.count < min_count; });
  std::sort(list.begin(), list.end(), [](const WordCount& a, const WordCount& b) {
    return a.count != b.count ? a.count > b.count : a.word < b.word;
  });
  const size_t room = static_cast<size_t>(vocab_size > 0 ? vocab_size : INT32_MAX) - specials.size();
  if (list.size() > room) list.resize(room);
  TokenTable tokens;
  std::vector<int32_t> ids;
  for (const std::string& name : specials) {
    ids.push_back(tokens.size());
    tokens.push_back(name);
  }
  for (const WordCount& w : list) tokens.push_back(w.word);
  return make_word_tokenizer(pattern, std::move(tokens), SpecialSet(std::move(specials), std::move(ids)));
}

}  // namespace tally
