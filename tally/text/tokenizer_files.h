// What the readers and writers of tokenizer_files.cpp, tokenizer_json*.cpp share; included by these only.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tally/base/error.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/vocab.h"

namespace tally {

// f(); its Error gets `where` in front.
template <class F>
auto naming(const std::string& where, const F& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(where + ": " + e.what(), e.kind);
  }
}

struct NamedId {
  std::string name;
  int32_t id;
};
// Error when an id or a name stands twice.
SpecialSet special_set(std::span<const NamedId> specials, const std::string& where);

// Bytes by id: keys of special tokens as they are, others from GPT-2's printable characters. `name` begins an Error.
TokenTable bpe_tokens(const std::vector<std::string>& keys, const SpecialSet& specials, const std::string& name);

// The merges with their ids. name(line) says where a line stands, `vocab` where the vocabulary does.
std::vector<BpeMerge> bpe_merges(std::span<const MergeLine> lines, const TokenTable& tokens, const SpecialSet& specials,
                                 const std::function<std::string(size_t)>& name, const std::string& vocab);

Tokenizer read_tiktoken_tokenizer(const fs::path& file, const TokenizerFileOptions& options);
std::string tiktoken_tokenizer_text(const TokenizerImpl& impl);  // without special tokens; Error as below
Tokenizer read_tokenizer_json(const fs::path& file);
std::string tokenizer_json_text(const TokenizerImpl& impl);  // Error when the format cannot say it

}  // namespace tally
