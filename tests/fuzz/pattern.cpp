// The first byte chooses. A pattern with a scanner: the rest is text, whose pieces are those of PCRE2 with the
// pattern's expressions (without the code points that PCRE2's Unicode puts in other classes), stay when the text is cut
// at a safe border, and are final when final_piece says so. Else the rest is an expression, the byte 0xFF and text:
// what compiles gives pieces that join to the text.
#include "tally/text/pattern.h"

#include <array>
#include <memory>

#include "tally/text/pattern_cases.h"
#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {
namespace {

using namespace pattern_cases;
using Pieces = std::vector<std::string>;

bool has_differing(std::string_view text) {
  static const std::vector<bool> differs = [] {
    std::vector<bool> set(kUnicodeEnd);
    for (const uint32_t c : differing_code_points()) set[c] = true;
    return set;
  }();
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    if (c.status == Utf8Status::kValid && differs[c.code_point]) return true;
    i += c.status == Utf8Status::kValid ? c.length : 1;
  }
  return false;
}

Pieces joined(Pieces pieces, const Pieces& more) {
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}

void check_scanner(const std::string& name, std::string_view text) {
  const Pattern pattern = Pattern::named(name);
  static std::array<std::unique_ptr<Splits>, 16> splits;
  std::unique_ptr<Splits>& reference = splits[static_cast<size_t>(pattern.kind())];
  if (reference == nullptr) reference = std::make_unique<Splits>(pattern);
  const Pieces pieces = pieces_of(pattern, text);
  if (!has_differing(text)) require(pieces == reference->pieces(text), name + ": not the pieces of the expression");
  for (size_t from = 0; from < text.size(); from += 1 + from) {
    const size_t border = pattern.next_safe_border(text, from);
    require(border > 0 && border <= text.size(), name + ": a border out of range");
    require(joined(pieces_of(pattern, text.substr(0, border)), pieces_of(pattern, text.substr(border))) == pieces,
            name + ": a safe border cuts a piece");
  }
  size_t at = 0;
  for (size_t k = 0; at < text.size(); at += pieces[k++].size())
    for (size_t known = at + 1; known <= text.size(); known += 1 + (known - at) / 2) {
      const size_t length = pattern.final_piece(text.substr(0, known), at);
      require(length == 0 || length == pieces[k].size(), name + ": a final piece was not");
    }
  require(at == text.size(), name + ": the pieces do not join to the text");
}

void check_regex(std::string_view given) {
  const size_t end = std::min(given.find('\xff'), given.size());
  const std::string_view text = given.substr(std::min(end + 1, given.size()));
  accepted("", [&] {
    const Pattern pattern = Pattern::regex(std::string(given.substr(0, end)));
    require(Pattern::named(pattern.name()) == pattern, "the name is not the pattern's");
    std::string all;
    for_each_piece(pattern, text, [&all](std::string_view piece) {
      require(!piece.empty(), "an empty piece");
      all += piece;
    });
    require(all == text, "the pieces do not join to the text");
  });
}

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t choice = data[0] % 10;
  if (choice < pattern_cases::kNames.size()) {
    fuzz::check_scanner(pattern_cases::kNames[choice], rest);
  } else {
    fuzz::check_regex(rest);
  }
  return 0;
}
