// Training of the three kinds; ids are given here (see tokenizer.h for their order).
#include <algorithm>
#include <unordered_map>

#include "tally/base/error.h"
#include "tally/base/file.h"
#include "tally/text/tokenizer.h"
#include "tally/text/tokenizer_impl.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

Tokenizer train_bpe_tokenizer(const TokenizerSpec& spec, const SpecialSet& specials,
                              std::span<const std::string_view> texts) {
  const auto n_specials = static_cast<int64_t>(specials.size());
  const int64_t least = 256 + n_specials;
  if (spec.vocab_size < least)
    fail("vocab_size {} is too small: a bpe vocabulary has 256 bytes and {} special tokens, so at least {}",
         spec.vocab_size, n_specials, least);
  if (spec.vocab_size > INT32_MAX) fail("vocab_size {} is larger than token ids can count", spec.vocab_size);
  const BpeTrained trained = train_bpe(texts, specials, spec.vocab_size - least, spec.tie);
  TokenTable tokens;
  for (const std::string& name : specials.names()) tokens.push_back(name);
  std::vector<int32_t> id_of(static_cast<size_t>(trained.tokens.size()));
  for (const uint8_t byte : printable_byte_order()) {
    id_of[byte] = tokens.size();
    tokens.push_back(trained.tokens[byte]);
  }
  std::vector<BpeMerge> merges;
  for (int32_t t = 256; t < trained.tokens.size(); ++t) {
    const auto& [left, right] = trained.merges[static_cast<size_t>(t - 256)];
    id_of[static_cast<size_t>(t)] = tokens.size();
    merges.push_back({id_of[static_cast<size_t>(left)], id_of[static_cast<size_t>(right)], tokens.size()});
    tokens.push_back(trained.tokens[t]);
  }
  return Tokenizer(make_tokenizer(TokenizerKind::kBpe, std::move(tokens), specials, std::move(merges)));
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

Tokenizer train(const TokenizerSpec& spec, std::span<const std::string_view> texts,
                std::span<const std::string> names) {
  std::vector<int32_t> ids(spec.specials.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const SpecialSet specials(spec.specials, ids);
  if (std::all_of(texts.begin(), texts.end(), [](std::string_view t) { return t.empty(); }))
    fail("{}: there is no text to train a tokenizer on", names.empty() ? "the input" : names[0]);
  switch (spec.kind) {
    case TokenizerKind::kBpe:
      return train_bpe_tokenizer(spec, specials, texts);
    case TokenizerKind::kChar:
      return train_char_tokenizer(spec, specials, texts, names);
    case TokenizerKind::kByte:
      return train_byte_tokenizer(spec);
    case TokenizerKind::kWord:
      break;
  }
  fail("the tokenizer kind is not known; it is bpe, byte or char");
}

}  // namespace

Tokenizer train_tokenizer(const TokenizerSpec& spec, std::span<const std::string_view> texts) {
  return train(spec, texts, {});
}

Tokenizer train_tokenizer_files(const TokenizerSpec& spec, std::span<const fs::path> files) {
  if (files.empty()) fail("no input file to train a tokenizer on");
  std::vector<MappedFile> maps;
  std::vector<std::string> names;
  std::string standard_input;
  std::vector<std::string_view> texts;
  maps.reserve(files.size());
  for (const fs::path& file : files) {
    names.push_back(file == "-" ? "standard input" : file.string());
    if (file == "-") {
      if (!standard_input.empty()) fail("standard input (-) is given twice as a training text");
      standard_input += read_file(file);
      texts.emplace_back(standard_input);
      continue;
    }
    maps.emplace_back(file);
    const std::span<const std::byte> bytes = maps.back().bytes();
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return train(spec, texts, names);
}

}  // namespace tally
