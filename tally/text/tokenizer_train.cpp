// Training of the four kinds; ids are given here (see tokenizer.h for their order).
#include <algorithm>
#include <array>
#include <unordered_map>

#include "tally/base/error.h"
#include "tally/base/file.h"
#include "tally/text/tokenizer.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/utf8.h"
#include "tally/text/word.h"

namespace tally {
namespace {

// Ids: special tokens, the bytes in the order of vocab.json's printable characters, merges.
Tokenizer number_bpe(const TokenizerSpec& spec, const SpecialSet& specials, const BpeTrained& trained,
                     const std::array<bool, 256>& used) {
  TokenTable tokens;
  for (const std::string& name : specials.names()) tokens.push_back(name);
  std::vector<int32_t> id_of(static_cast<size_t>(trained.tokens.size()), -1);
  for (const uint8_t byte : printable_byte_order()) {
    if (!used[byte]) continue;
    id_of[byte] = tokens.size();
    tokens.push_back(trained.tokens[byte]);
  }
  TokenizerParts parts;
  for (int32_t t = 256; t < trained.tokens.size(); ++t) {
    const auto& [left, right] = trained.merges[static_cast<size_t>(t - 256)];
    id_of[static_cast<size_t>(t)] = tokens.size();
    parts.merges.push_back({id_of[static_cast<size_t>(left)], id_of[static_cast<size_t>(right)], tokens.size()});
    tokens.push_back(trained.tokens[t]);
  }
  parts.kind = TokenizerKind::kBpe;
  parts.pattern = spec.pattern.value_or(Pattern());
  parts.tokens = std::move(tokens);
  parts.specials = specials;
  return Tokenizer(make_tokenizer(std::move(parts)));
}

Tokenizer train_bpe_tokenizer(const TokenizerSpec& spec, const SpecialSet& specials, WordList words) {
  std::array<bool, 256> used;
  used.fill(spec.all_bytes);
  if (!spec.all_bytes)
    for (const WordCount& w : words.words)
      for (const char c : w.word) used[static_cast<unsigned char>(c)] = true;
  const int64_t bytes = std::count(used.begin(), used.end(), true), n_specials = static_cast<int64_t>(specials.size());
  const int64_t least = bytes + n_specials;
  if (spec.vocab_size < least)
    fail("vocab_size {} is too small: the text has {} different bytes and there are {} special tokens, so at least {}",
         spec.vocab_size, bytes, n_specials, least);
  BpeTrainOptions options;
  options.max_merges = spec.vocab_size - least;
  options.tie = spec.tie;
  options.min_frequency = spec.min_frequency;
  options.max_token_bytes = spec.max_token_bytes;
  options.max_memory = spec.max_memory;
  options.progress = spec.progress;
  return number_bpe(spec, specials, train_bpe(std::move(words), options), used);
}

// What can be refused before the text is read.
void check_bpe(const TokenizerSpec& spec) {
  const auto n_specials = static_cast<int64_t>(spec.specials.size()), least = 256 + n_specials;
  if (spec.all_bytes && spec.vocab_size < least)
    fail("vocab_size {} is too small: a bpe vocabulary has 256 bytes and {} special tokens, so at least {}",
         spec.vocab_size, n_specials, least);
  if (spec.vocab_size > INT32_MAX) fail("vocab_size {} is larger than token ids can count", spec.vocab_size);
  if (spec.min_frequency < 0) fail("min_frequency is {}; it must not be negative", spec.min_frequency);
  if (spec.max_token_bytes < 0) fail("max_token_bytes is {}; it must not be negative", spec.max_token_bytes);
}

// Marks the code points of one text; `where` names it in messages.
void collect_chars(std::string_view text, const SpecialSet& specials, std::vector<bool>& seen) {
  for_each_segment(
      text, specials,
      [&](std::string_view plain) {
        for (size_t i = 0; i < plain.size();) {
          const Utf8Char c = utf8_next(plain.data() + i, plain.size() - i);
          if (c.status != Utf8Status::kValid)
            fail("byte 0x{:02x} at offset {} is not valid UTF-8, which a char tokenizer needs",
                 static_cast<unsigned char>(plain[i]), static_cast<size_t>(plain.data() - text.data()) + i);
          seen[c.code_point] = true;
          i += c.length;
        }
      },
      [](int32_t) {});
}

Tokenizer train_char_tokenizer(const TokenizerSpec& spec, const SpecialSet& specials,
                               std::span<const std::string_view> texts, std::span<const std::string> names) {
  std::vector<bool> seen(0x110000, false);
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      collect_chars(texts[i], specials, seen);
    } catch (const Error& e) {
      if (names.empty()) throw;
      fail("{}: {}", names[i], e.what());
    }
  }
  TokenTable tokens;
  std::string utf8;
  for (uint32_t c = 0; c < seen.size(); ++c) {
    if (!seen[c]) continue;
    utf8.clear();
    append_utf8(c, utf8);
    tokens.push_back(utf8);
  }
  std::vector<int32_t> ids;
  for (const std::string& name : specials.names()) {
    ids.push_back(tokens.size());
    tokens.push_back(name);
  }
  if (spec.vocab_size != 0 && tokens.size() > spec.vocab_size)
    fail("vocab_size {} is too small: the text has {} different characters and {} special tokens, so at least {}",
         spec.vocab_size, tokens.size() - static_cast<int32_t>(specials.size()), specials.size(), tokens.size());
  return Tokenizer(make_tokenizer(TokenizerKind::kChar, std::move(tokens), SpecialSet(specials.names(), ids), {}));
}

Tokenizer train_byte_tokenizer(const TokenizerSpec& spec) {
  const auto size = static_cast<int64_t>(256 + spec.specials.size());
  if (spec.vocab_size != 0 && spec.vocab_size != size)
    fail("vocab_size {} does not fit: a byte vocabulary has 256 bytes and {} special tokens, {} in all",
         spec.vocab_size, spec.specials.size(), size);
  return Tokenizer().with_specials(spec.specials);
}

SpecialSet specials_of(const std::vector<std::string>& names) {
  std::vector<int32_t> ids(names.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  return SpecialSet(names, ids);
}

bool by_words(const TokenizerSpec& spec) {
  return spec.kind == TokenizerKind::kBpe || spec.kind == TokenizerKind::kWord;
}

[[noreturn]] void fail_no_text(const std::string& where) {
  fail("{}: there is no text to train a tokenizer on", where);
}

// bpe and word. `add` gives the counter its text; total_bytes is for progress.
template <class Add>
Tokenizer train_by_words(const TokenizerSpec& spec, const std::string& where, int64_t total_bytes, const Add& add) {
  const bool word = spec.kind == TokenizerKind::kWord;
  if (!word) check_bpe(spec);
  const std::vector<std::string> names = word ? with_unknown(spec.specials) : spec.specials;
  const SpecialSet specials = specials_of(names);
  const Pattern pattern = spec.pattern ? *spec.pattern : word ? Pattern::named(kWordPattern) : Pattern();
  WordCounter counter(pattern, specials, {spec.max_memory, spec.progress, total_bytes});
  add(counter);
  if (counter.bytes_read() == 0 && !spec.reduce_words) fail_no_text(where);
  const WordOrder order = word ? WordOrder::kAny : word_order(spec.tie);
  WordList words = counter.take(spec.reduce_words && order == WordOrder::kAny ? WordOrder::kBytes : order);
  if (spec.reduce_words) words = spec.reduce_words(std::move(words));
  if (word) return make_word_vocabulary(pattern, std::move(words), names, spec.vocab_size, spec.min_count);
  return train_bpe_tokenizer(spec, specials, std::move(words));
}

Tokenizer train_whole(const TokenizerSpec& spec, std::span<const std::string_view> texts,
                      std::span<const std::string> names) {
  const SpecialSet specials = specials_of(spec.specials);
  if (std::all_of(texts.begin(), texts.end(), [](std::string_view t) { return t.empty(); }))
    fail_no_text(names.empty() ? "the input" : names[0]);
  return spec.kind == TokenizerKind::kChar ? train_char_tokenizer(spec, specials, texts, names)
                                           : train_byte_tokenizer(spec);
}

}  // namespace

Tokenizer train_tokenizer(const TokenizerSpec& spec, std::span<const std::string_view> texts) {
  if (!by_words(spec)) return train_whole(spec, texts, {});
  int64_t total = 0;
  for (const std::string_view text : texts) total += static_cast<int64_t>(text.size());
  return train_by_words(spec, "the input", total, [texts](WordCounter& counter) { counter.add(texts); });
}

Tokenizer train_tokenizer_files(const TokenizerSpec& spec, std::span<const fs::path> files) {
  if (files.empty()) fail("no input file to train a tokenizer on");
  std::vector<std::string> names;
  for (const fs::path& file : files) names.push_back(file == "-" ? "standard input" : file.string());
  if (std::count(files.begin(), files.end(), fs::path("-")) > 1)
    fail("standard input (-) is given twice as a training text");
  if (by_words(spec)) {
    int64_t total = 0;
    bool known = true;
    for (const fs::path& file : files) {
      const int64_t size = FileReader(file).size();
      known = known && size >= 0;
      total += size;
    }
    if (!known) total = 0;
    return train_by_words(spec, names[0], total, [files](WordCounter& counter) {
      for (const fs::path& path : files) {
        FileReader file(path);
        counter.add(file);
      }
    });
  }
  std::vector<MappedFile> maps;
  std::string standard_input;
  std::vector<std::string_view> texts;
  maps.reserve(files.size());
  for (const fs::path& file : files) {
    if (file == "-") {
      standard_input = read_file(file);
      texts.emplace_back(standard_input);
      continue;
    }
    maps.emplace_back(file);
    const std::span<const std::byte> bytes = maps.back().bytes();
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return train_whole(spec, texts, names);
}

}  // namespace tally
