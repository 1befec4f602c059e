// A tokenizer: text <-> token ids. One value type for four kinds, cheap to copy, constant and safe to share between
// threads.
//   bpe    byte-level BPE with GPT-2's pattern. A trained one has its special tokens first, then the 256 bytes in the
//          order of vocab.json's printable characters, then the merges (the order of CS336's reference vocabulary)
//   byte   ids 0 to 255 are the bytes, then the special tokens
//   char   the code points of the training text in ascending order, then the special tokens; valid UTF-8 only
//   word   the special tokens, <|unk|> among them for words that are not in the vocabulary, then words (word.h)
//
// A tokenizer folder holds tokenizer_config.json {"kind", "pattern" (bpe, word), "special_tokens": {"<|x|>": id}} and,
// but for byte, vocab.json, and, for bpe, merges.txt. A bpe's may say "ignore_merges": true, "normalizer": "nfc",
// "not_special": [...]. A folder with GPT-2's two files and no tokenizer_config.json is a bpe tokenizer whose special
// token is <|endoftext|> if the vocabulary has it. docs/text.md tells of the other formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/text/bpe_train.h"

namespace tally {

enum class TokenizerKind { kBpe, kByte, kChar, kWord };
const char* tokenizer_kind_name(TokenizerKind kind);        // "bpe", "byte", "char", "word"
TokenizerKind parse_tokenizer_kind(std::string_view name);  // Error names them

enum class TokenizerFormat {
  kByName,
  kFolder,
  kGpt2,
  kTiktoken,
  kJson
};  // kGpt2: a folder of vocab.json and merges.txt

TokenizerFormat tokenizer_format_of(const std::filesystem::path& path);  // by its name: kTiktoken, kJson or kFolder

// What a .tiktoken file does not say. Without a pattern it comes from the file's name (cl100k_base.tiktoken).
struct TokenizerFileOptions {
  std::string pattern;                // a name that Pattern::named knows, or tiktoken's of an encoding (cl100k_base)
  std::vector<std::string> specials;  // "<|x|>" for the next free id, or "<|x|>=ID"
};

// What the special tokens that stand in a text become.
enum class Specials : uint8_t {
  kAllow,   // their ids
  kAsText,  // ordinary text
  kRefuse,  // an Error that names the token, its offset and how to allow it
};

// The same for all special tokens, or some allowed and the rest refused or text.
class SpecialPolicy {
 public:
  SpecialPolicy(Specials all) : rest_(all) {}  // NOLINT: Specials::kAllow is a policy
  // Error when the tokenizer that uses it has no such special token.
  SpecialPolicy(std::vector<std::string> allowed, Specials rest) : rest_(rest), allowed_(std::move(allowed)) {}

  Specials rest() const { return rest_; }
  const std::vector<std::string>& allowed() const { return allowed_; }

 private:
  Specials rest_;
  std::vector<std::string> allowed_;  // recognised whatever `rest` says
};

// Ids with the part of the text that each stands for, [first, last).
struct EncodedText {
  std::vector<int32_t> ids;
  std::vector<std::pair<int64_t, int64_t>> bytes;
  // In code points: a token that holds a part of a character covers it whole (as Tokenizer::char_offsets).
  std::vector<std::pair<int64_t, int64_t>> chars;
};

class Pattern;
struct SpecialFilter;
struct TokenizerImpl;  // tokenizer_impl.h; constant but for its scratch memory

class Tokenizer {
 public:
  Tokenizer();  // the byte tokenizer without special tokens
  explicit Tokenizer(std::shared_ptr<const TokenizerImpl> impl) : impl_(std::move(impl)) {}

  // A folder (ours, GPT-2's two files, or one with tokenizer.json) or a file (.tiktoken, tokenizer.json).
  // Error: one line that names the file (and line, token or place in the JSON) when anything is missing, torn or
  // contradicts itself, or when tokenizer.json has a component that is not supported.
  static Tokenizer load(const std::filesystem::path& path, const TokenizerFileOptions& options = {});
  // Writes the folder's files, each complete or absent, tokenizer_config.json last.
  void save(const std::filesystem::path& folder) const;
  // In another format; by default what the name says: *.tiktoken, *.json, else a folder. What was written loads with
  // the same ids (a .tiktoken file: given the pattern and special tokens again). Error: the format cannot say it.
  void save_as(const std::filesystem::path& path, TokenizerFormat format = TokenizerFormat::kByName) const;

  TokenizerKind kind() const;
  int32_t vocab_size() const;
  const Pattern& pattern() const;  // bpe and word
  // 32 hexadecimal digits: XXH3-128 of the canonical JSON {"kind","pattern","special_tokens","vocab","merges"}.
  const std::string& hash() const;

  // The same tokenizer with these special tokens and no others. One that the vocabulary holds keeps its id, the rest
  // are appended in the order given. Special tokens that are not listed become ordinary text (bpe; otherwise an Error).
  Tokenizer with_specials(const std::vector<std::string>& names) const;

  // Ids of the text. Where several special tokens start at one place the longest is meant. bpe and byte take any
  // bytes. char: Error naming the character or byte and its offset.
  std::vector<int32_t> encode(std::string_view text, const SpecialPolicy& policy) const;
  std::vector<int32_t> encode(std::string_view text, bool allow_special = true) const;  // kAllow or kAsText
  std::vector<int32_t> encode_ordinary(std::string_view text) const { return encode(text, Specials::kAsText); }
  void encode_append(std::string_view text, std::vector<int32_t>& out, const SpecialPolicy& policy) const;
  void encode_append(std::string_view text, std::vector<int32_t>& out, bool allow_special = true) const;
  // The same ids, worked out by all threads of the pool.
  std::vector<int32_t> encode_parallel(std::string_view text, const SpecialPolicy& policy) const;
  std::vector<int32_t> encode_parallel(std::string_view text, bool allow_special = true) const;
  // Of each text, in order, by all threads of the pool.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                 const SpecialPolicy& policy = Specials::kAllow) const;
  // How many ids encode gives; they are not kept.
  int64_t count(std::string_view text, const SpecialPolicy& policy = Specials::kAllow) const;
  EncodedText encode_with_offsets(std::string_view text, const SpecialPolicy& policy = Specials::kAllow) const;
  // BPE-dropout (Provilkov et al. 2020): each merge is passed over with this probability whenever its turn comes. The
  // ids depend on the text, the seed and the probability only; 0 gives encode's. bpe only, otherwise an Error.
  std::vector<int32_t> encode_with_dropout(std::string_view text, double probability, uint64_t seed,
                                           const SpecialPolicy& policy = Specials::kAllow) const;

  // The exact bytes of the ids; decode(encode(x)) == x. Error when an id is outside 0 to vocab_size() - 1, or one that
  // the vocabulary leaves out.
  std::string decode(std::span<const int32_t> ids) const;
  std::string decode_bytes(std::span<const int32_t> ids) const { return decode(ids); }
  std::vector<std::string> decode_batch(std::span<const std::vector<int32_t>> ids) const;
  // As text: bytes that are not valid UTF-8 become U+FFFD.
  std::string decode_text(std::span<const int32_t> ids) const;
  // For each token the code points it touches, [first, last): a token that holds a part of a character covers it
  // whole. Broken bytes count as one character each maximal part (as in decode_text).
  std::vector<std::pair<int64_t, int64_t>> char_offsets(std::span<const int32_t> ids) const;

  // Error when outside the vocabulary; empty for an id that it leaves out.
  std::string_view token_bytes(int64_t id) const;
  std::optional<int32_t> special_id(std::string_view name) const;
  std::vector<std::pair<std::string, int32_t>> specials() const;  // ascending by id

 private:
  friend class StreamEncoder;
  std::shared_ptr<const TokenizerImpl> impl_;
};

// Encodes text that comes in chunks of any size: the ids are those of the whole text at once. Holds back only what
// more text could change: a few bytes, an unfinished pre-token, or a possible start of a special token.
class StreamEncoder {
 public:
  explicit StreamEncoder(Tokenizer tokenizer, bool allow_special = true);
  StreamEncoder(Tokenizer tokenizer, const SpecialPolicy& policy);
  void push(std::string_view chunk, std::vector<int32_t>& out);
  void finish(std::vector<int32_t>& out);  // the rest; the encoder is then empty and can be used again

 private:
  void advance(std::vector<int32_t>& out, bool at_end);
  size_t encode_settled(std::string_view text, std::vector<int32_t>& out, bool at_end) const;

  Tokenizer tokenizer_;
  std::shared_ptr<const SpecialFilter> filter_;  // of the tokenizer's special tokens
  std::string held_;
  size_t try_at_ = 0;    // held bytes at which the next attempt is worth it: doubles, so that work stays linear
  size_t consumed_ = 0;  // bytes encoded so far, for error offsets
};

// Turns ids into text one by one; a character is given out when its last byte is there, broken bytes as U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  std::string push(int32_t id);
  std::string finish();  // what an unfinished character leaves: U+FFFD or nothing

 private:
  Tokenizer tokenizer_;
  std::string pending_;
};

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::kBpe;
  // bpe: 256 bytes + special tokens + merges; the result is smaller when the text runs out of pairs. char, word: the
  // most entries allowed, byte: 256 + special tokens; 0 means whatever it takes (char, word, byte).
  int64_t vocab_size = 0;
  std::vector<std::string> specials;
  BpeTie tie = BpeTie::kGreatestBytes;

  std::optional<Pattern> pattern = {};  // absent: gpt2 (bpe), \w+|. (word)
  int64_t min_frequency = 1;            // bpe: a pair must stand at least this often to be merged
  int64_t max_token_bytes = 0;          // bpe: longer tokens are not made; 0: any length
  bool all_bytes = true;   // bpe: false leaves out bytes that the text lacks; encoding one is then an Error
  int64_t min_count = 1;   // word: rarer words become <|unk|>
  int64_t max_memory = 0;  // bpe, word: bytes; Error naming the need when more is needed; 0: no limit
  // Adds the counts of other processes to those of this one: all must return the same list. The words come ascending
  // by bytes, or in the order in which they were met under kFirstSeen, which must be kept.
  std::function<WordList(WordList)> reduce_words = {};
  TrainProgress progress = {};
};

// Error: no text at all, a vocabulary too small (the message gives the least), bad special tokens; char: invalid UTF-8.
Tokenizer train_tokenizer(const TokenizerSpec& spec, std::span<const std::string_view> texts);
// bpe and word read files in blocks, so that they need not fit in memory (but for a regular expression without a
// scanner, which needs a file as a whole); char maps them. "-" is standard input.
Tokenizer train_tokenizer_files(const TokenizerSpec& spec, std::span<const std::filesystem::path> files);

}  // namespace tally
