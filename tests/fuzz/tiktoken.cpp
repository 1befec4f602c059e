// A .tiktoken file, the byte 0xFF and some text. '+' in front: the lines of the 256 bytes come first, so that what
// follows has the ranks from 256 on. A file that loads is written and loads equal in every format; text is encoded as
// tiktoken does it, one merge after the other over the bytes, whose ranks are read from what was written.
#include "tally/text/tiktoken_file.h"

#include <map>

#include "tally/text/pattern.h"
#include "tests/fuzz/formats.h"

namespace tally::fuzz {
namespace {

constexpr std::string_view kText =
    "the cat's  low lower\n\nnewest \xC3\xA9\xE2\x82\xAC 1234 aaaaaaaaaaaaaaaaa abababab \xff";
constexpr size_t kReferenceBytes = 300;  // the reference is slow

void merge_piece(std::string_view piece, const std::map<std::string, int32_t>& ranks, std::vector<int32_t>& out) {
  if (const auto whole = ranks.find(std::string(piece)); whole != ranks.end()) return out.push_back(whole->second);
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    int32_t best = INT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == INT32_MAX) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  for (const std::string& part : parts) out.push_back(ranks.at(part));
}

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally;
  using namespace tally::fuzz;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::string lines;
  if (rest.starts_with('+')) {
    TokenTable bytes;
    for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
    lines = tiktoken_text(bytes);
    rest.remove_prefix(1);
  }
  const size_t end = rest.find('\xff');
  lines += rest.substr(0, end);
  const std::string_view text = end == std::string_view::npos ? kText : rest.substr(end + 1, kReferenceBytes);
  const fs::path file = scratch_folder() / "given.tiktoken", again = scratch_folder() / "again.tiktoken";
  put_file(file, lines);
  Tokenizer tokenizer;
  if (!accepted(file.string(), [&] { tokenizer = Tokenizer::load(file, {"gpt2", {}}); })) return 0;
  tokenizer.save_as(again);
  require_equal(Tokenizer::load(again, {"gpt2", {}}), tokenizer, "a .tiktoken file loads as another tokenizer");
  check_formats(tokenizer);
  std::map<std::string, int32_t> ranks;
  const TokenTable tokens = read_tiktoken(again);
  for (int32_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) ranks.emplace(tokens[id], id);
  std::vector<int32_t> expected;
  for_each_piece(Pattern(), text, [&](std::string_view piece) { merge_piece(piece, ranks, expected); });
  const std::vector<int32_t> ids = check_stream(tokenizer, text);
  require(ids == expected, "not the ids of merging by ranks");
  require(tokenizer.decode(ids) == text, "the ids do not decode to the text");
  return 0;
}
