// A tokenizer folder: tokenizer_config.json, vocab.json, merges.txt and some text, separated in the input by the byte
// 0xFF; an empty part is an absent file. A folder that loads is saved and loads equal; text is encoded as a plain
// reference does, alike at once, in parallel and in chunks, and decodes to its bytes. Text that begins with * is
// encoded as one long piece as well, which is slow.
#include "tally/text/tokenizer.h"

#include <map>

#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/text/nfc.h"
#include "tally/text/pattern.h"
#include "tally/text/utf8.h"
#include "tally/text/vocab.h"
#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kFiles[] = {"tokenizer_config.json", "vocab.json", "merges.txt"};
constexpr std::string_view kText =
    "the cat's  low lower\n\nnewest \xC3\xA9\xE2\x82\xAC 1234 <|endoftext|>\xF0\x9F\x98\x80 \xff";
constexpr size_t kReferenceBytes = 200;  // the reference is slow

// Removes the next part from `rest`.
std::string_view next_part(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('\xff'));
  rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  return part;
}

// Written in place: a plain write is faster than a complete-or-absent one.
void put(const fs::path& path, std::string_view text) {
  if (text.empty()) {
    std::error_code absent;
    fs::remove(path, absent);
    return;
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  require(file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size(), "cannot write a file");
  require(std::fclose(file) == 0, "cannot write a file");
}

void check_files(const Tokenizer& tokenizer) {
  const fs::path first = scratch_folder() / "first", second = scratch_folder() / "second";
  for (const char* name : kFiles) put(first / name, {}), put(second / name, {});
  tokenizer.save(first);
  const Tokenizer back = Tokenizer::load(first);
  require(back.hash() == tokenizer.hash() && back.kind() == tokenizer.kind(), "a saved tokenizer loads as another");
  require(back.vocab_size() == tokenizer.vocab_size() && back.specials() == tokenizer.specials(), "its ids changed");
  std::vector<std::string> names;
  for (const auto& [name, id] : tokenizer.specials()) names.push_back(name);
  require(tokenizer.with_specials(names).hash() == tokenizer.hash(), "the same special tokens make another tokenizer");
  back.save(second);
  for (const char* name : kFiles) {
    if (!fs::exists(first / name)) continue;
    require(read_file(first / name) == read_file(second / name), std::string(name) + " changed");
  }
}

// The lowest rank first, the leftmost of these first, over byte strings.
using Ranks = std::map<std::pair<std::string, std::string>, size_t>;
void merge_piece(std::string_view piece, const Ranks& ranks, std::vector<std::string>& out) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    size_t best = ranks.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == ranks.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  out.insert(out.end(), parts.begin(), parts.end());
}

// `config` is what save() wrote.
void check_merges(const Tokenizer& tokenizer, const fs::path& merges_file, const Json& config, std::string_view text) {
  if (config.find("ignore_merges") != nullptr || config.find("normalizer") != nullptr) return;
  const Pattern pattern = Pattern::named(config.at("pattern").as_string());
  Ranks ranks;
  for (MergeLine& m : read_merges(merges_file))
    ranks.emplace(std::pair(std::move(m.left), std::move(m.right)), ranks.size());
  std::vector<std::string> expected;
  text = text.substr(0, kReferenceBytes);
  for_each_piece(pattern, text, [&](std::string_view piece) { merge_piece(piece, ranks, expected); });
  const Ids ids = tokenizer.encode(text, false);
  require(ids.size() == expected.size(), "not as many tokens as by the merges one by one");
  for (size_t i = 0; i < ids.size(); ++i)
    require(tokenizer.token_bytes(ids[i]) == expected[i], "a token is not that of the merges one by one");
}

Ids encode_in_chunks(const Tokenizer& tokenizer, std::string_view text, bool allow_special) {
  StreamEncoder encoder(tokenizer, allow_special);
  Ids ids;
  for (size_t chunk = 1; !text.empty(); chunk = chunk * 2 % 61) {
    const std::string_view part = text.substr(0, chunk);
    encoder.push(part, ids);
    text.remove_prefix(part.size());
  }
  encoder.finish(ids);
  return ids;
}

bool valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    if (c.status != Utf8Status::kValid) return false;
    i += c.length;
  }
  return true;
}

// False when the vocabulary lacks a byte or a character of the text.
bool check_text(const Tokenizer& tokenizer, std::string_view text, bool allow_special) {
  Ids ids, chunked;
  const bool taken = accepted("", [&] { ids = tokenizer.encode(text, allow_special); });
  const bool taken_in_chunks = accepted("", [&] { chunked = encode_in_chunks(tokenizer, text, allow_special); });
  require(taken == taken_in_chunks, "a stream takes what the whole text does not, or the other way round");
  if (!taken) return false;
  require(chunked == ids, "a stream gives other ids");
  require(tokenizer.encode_parallel(text, allow_special) == ids, "encode_parallel gives other ids");
  const std::string back = tokenizer.decode(ids);
  if (tokenizer.kind() == TokenizerKind::kWord || (back != text && nfc(back) == nfc(text))) return true;
  require(back == text, "the ids do not decode to the text");
  const std::string shown = tokenizer.decode_text(ids);
  require(valid_utf8(shown), "decode_text is not UTF-8");
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) streamed += decoder.push(id);
  require(streamed + decoder.finish() == shown, "a stream decodes to another text");
  const auto offsets = tokenizer.char_offsets(ids);
  require(offsets.size() == ids.size(), "char_offsets has another length");
  for (const auto& [first, last] : offsets)
    require(first >= 0 && first <= last && last <= static_cast<int64_t>(text.size()), "char_offsets is out of range");
  return true;
}

// Merging has three ways, by the length of a piece: a text of letters only, as long as the third needs.
void check_long_piece(const Tokenizer& tokenizer, std::string_view text) {
  std::string piece;
  for (const char c : text)
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) piece += c;
  while (!piece.empty() && piece.size() < 4200) piece += piece;
  Ids ids;
  if (!accepted("", [&] { ids = tokenizer.encode(piece, false); })) return;
  require(tokenizer.decode(ids) == piece, "the ids of a long piece do not decode to it");
}

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally;
  using namespace tally::fuzz;
  const fs::path folder = scratch_folder() / "given";
  for (const char* name : {"given", "first", "second"}) fs::create_directory(scratch_folder() / name);
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (const char* name : kFiles) put(folder / name, next_part(rest));
  Tokenizer tokenizer;
  if (!accepted(folder.string(), [&] { tokenizer = Tokenizer::load(folder); })) return 0;
  check_files(tokenizer);
  const fs::path saved = scratch_folder() / "first" / "tokenizer_config.json";
  const Json config = Json::parse(read_file(saved), saved.string());
  for (const std::string_view text : {kText, rest}) {
    check_text(tokenizer, text, true);
    if (!check_text(tokenizer, text, false) || tokenizer.kind() != TokenizerKind::kBpe) continue;
    check_merges(tokenizer, folder / "merges.txt", config, text);
  }
  if (rest.starts_with('*')) check_long_piece(tokenizer, rest);
  return 0;
}
