// Patterns as steps of a pre-tokenizer; see tokenizer_json.h.
#include "tally/base/error.h"
#include "tally/text/tokenizer_json.h"

namespace tally {
namespace {

// tiktoken's expression of cl100k has possessive quantifiers and $, which mean something else in Oniguruma, the regular
// expressions of huggingface/tokenizers. The same pieces without these:
constexpr const char* kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Line ends stand in files as themselves or escaped.
std::vector<std::string> with_escapes(const std::vector<std::string>& expressions) {
  std::vector<std::string> out;
  for (const std::string& expression : expressions) {
    std::string& text = out.emplace_back();
    for (const char c : expression) text += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

}  // namespace

Pattern pattern_of_splits(const std::vector<std::string>& expressions) {
  TALLY_ASSERT(!expressions.empty());
  const std::vector<std::string> escaped = with_escapes(expressions);
  if (escaped.size() == 1 && escaped[0] == kCl100k) return Pattern::named("cl100k");
  Pattern pattern = Pattern::splits(escaped);
  return pattern.kind() == PatternKind::kRegex && escaped != expressions ? Pattern::splits(expressions) : pattern;
}

std::vector<std::string> splits_of_pattern(const Pattern& pattern) {
  if (pattern.kind() == PatternKind::kGpt2) return {};
  if (pattern.kind() == PatternKind::kCl100k) return {kCl100k};
  return pattern.splits();
}

std::string digits_expression(bool individual) {
  // Behind a run of white space stands a digit, the end, or something else: only before the last is one left over.
  return std::string(individual ? R"(\p{N})" : R"(\p{N}+)") +
         R"(|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+)";
}

}  // namespace tally
