// What the targets of tokenizer files share: a tokenizer that was read is written in each format and read again, and
// encodes alike at once and in chunks.
#pragma once

#include <string>
#include <string_view>

#include "tally/base/file.h"
#include "tally/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {

// Written in place: a plain write is faster than a complete-or-absent one.
inline void put_file(const std::filesystem::path& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  require(file != nullptr, "cannot write a file");
  require(text.empty() || std::fwrite(text.data(), 1, text.size(), file) == text.size(), "cannot write a file");
  require(std::fclose(file) == 0, "cannot write a file");
}

inline void require_equal(const Tokenizer& a, const Tokenizer& b, const std::string& what) {
  require(a.hash() == b.hash() && a.vocab_size() == b.vocab_size() && a.specials() == b.specials(), what);
}

// Through tokenizer.json and our folder.
inline void check_formats(const Tokenizer& tokenizer) {
  const std::filesystem::path folder = scratch_folder() / "ours", json = scratch_folder() / "again.json";
  std::filesystem::remove_all(folder);
  tokenizer.save(folder);
  require_equal(Tokenizer::load(folder), tokenizer, "a saved folder loads as another tokenizer");
  tokenizer.save_as(json);
  require_equal(Tokenizer::load(json), tokenizer, "a tokenizer.json loads as another tokenizer");
  std::string first = read_file(json);
  Tokenizer::load(json).save_as(json);
  require(read_file(json) == first, "tokenizer.json changed");
}

// The ids, or none when a byte has no token.
inline std::vector<int32_t> check_stream(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids, chunked;
  if (!accepted("", [&] { ids = tokenizer.encode(text); })) return {};
  StreamEncoder encoder(tokenizer);
  for (size_t chunk = 1, at = 0; at < text.size(); at += chunk, chunk = chunk * 2 % 61)
    encoder.push(text.substr(at, chunk), chunked);
  encoder.finish(chunked);
  require(chunked == ids, "a stream gives other ids");
  require(tokenizer.count(text) == static_cast<int64_t>(ids.size()), "count gives another number");
  return ids;
}

}  // namespace tally::fuzz
