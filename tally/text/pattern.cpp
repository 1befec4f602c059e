// Names and expressions of the patterns, and where a text may be cut; the scanners themselves are in scan_*.h.
#include "tally/text/pattern.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tally/base/error.h"
#include "tally/text/vocab.h"

namespace tally {
namespace {

using namespace classes;

// What tiktoken, tokenizer.json files and papers write for each kind. The first expression of a kind is the one that
// expression() gives; the others split alike. Sources: openai/gpt-2 encoder.py; tiktoken_ext/openai_public.py (0.14 and
// 0.3); tokenizer.json of Llama 3, Qwen 2 and DeepSeek-V3; karpathy/nanochat.
struct Spelling {
  PatternKind kind;
  const char* expression;
};
constexpr Spelling kSpellings[] = {
    {PatternKind::kGpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {PatternKind::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {PatternKind::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {PatternKind::kGpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {PatternKind::kCl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    {PatternKind::kO200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {PatternKind::kLlama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {PatternKind::kQwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {PatternKind::kNanochat,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {PatternKind::kWhitespace, R"( ?\S+|\s+(?!\S)|\s+)"},
    // The three splits below in one: numbers; what the third makes of the second's characters; what it makes of others.
    {PatternKind::kDeepseekV3,
     R"(\p{N}{1,3}|(?:(?=[一-龥぀-ゟ゠-ヿ])[^\p{L}\p{P}\p{S}])?(?:(?=[一-龥぀-ゟ゠-ヿ])[\p{L}\p{M}])+|)"
     R"((?:(?=[一-龥぀-ゟ゠-ヿ])[\p{P}\p{S}])+|(?:[\x{3040}\x{3097}\x{3098}](?!(?=[一-龥぀-ゟ゠-ヿ])[\p{L}\p{M}]))+|)"
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
     R"([^\r\n\p{L}\p{P}\p{S}]?(?:(?![一-龥぀-ゟ゠-ヿ])[\p{L}\p{M}])+| ?(?:(?![一-龥぀-ゟ゠-ヿ])[\p{P}\p{S}])+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?![^\s\p{N}一-龥぀-ゟ゠-ヿ])|\s+)"},
};

constexpr const char* kDeepseekSplits[] = {
    R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

struct Name {
  PatternKind kind;
  const std::string name;
};
// The first name of a kind is the one that name() gives.
const std::vector<Name>& names() {
  static const std::vector<Name> list = {
      {PatternKind::kGpt2, "gpt2"},         {PatternKind::kGpt2, "r50k"},
      {PatternKind::kGpt2, "p50k"},         {PatternKind::kCl100k, "cl100k"},
      {PatternKind::kO200k, "o200k"},       {PatternKind::kLlama3, "llama3"},
      {PatternKind::kQwen2, "qwen2"},       {PatternKind::kDeepseekV3, "deepseek-v3"},
      {PatternKind::kNanochat, "nanochat"}, {PatternKind::kWhitespace, "whitespace"}};
  return list;
}

constexpr std::string_view kRegexPrefix = "regex:";

// The character that ends before position i > 0.
scan::Char char_before(std::string_view text, size_t i) {
  if (scan::is_ascii(text[i - 1])) return scan::char_at(text.data() + i - 1, 1, nullptr);
  for (size_t length = 2; length <= std::min<size_t>(4, i); ++length) {
    const Utf8Char c = utf8_next(text.data() + i - length, length);
    if (c.status == Utf8Status::kValid && c.length == length) return {c.code_point, c.length, char_class(c.code_point)};
  }
  return {0xFFFD, 1, kPunctuation};
}

// Where the run of characters of `wanted` from `at` on ends.
size_t class_run_end(std::string_view text, size_t at, CharClass wanted) {
  const uint8_t* table = unicode_class_table();
  while (at < text.size()) {
    const scan::Char c = scan::char_at(text.data() + at, text.size() - at, table);
    if ((c.bits & wanted) == 0) break;
    at += c.length;
  }
  return at;
}

// A decision that looks at a character behind a piece is certain when this many bytes behind the piece are known: the
// last character of white space that a piece gives back (3), and one that may be cut off (up to 4), and one more.
constexpr size_t kNear = 8;

}  // namespace

Pattern Pattern::named(std::string_view name) {
  if (name.starts_with(kRegexPrefix)) return regex(std::string(name.substr(kRegexPrefix.size())));
  Pattern pattern;
  std::string all;
  for (const Name& known : names()) {
    pattern.kind_ = known.kind;
    if (known.name == name) return pattern;
    all += known.name + ", ";
  }
  fail_value("no pattern has the name {}; there are {}and \"regex:\" with a regular expression", quote_token(name),
             all);
}

Pattern Pattern::regex(std::string expression) {
  Pattern pattern;
  for (const Spelling& spelling : kSpellings) {
    pattern.kind_ = spelling.kind;
    if (expression == spelling.expression) return pattern;
  }
  pattern.kind_ = PatternKind::kRegex;
  pattern.regex_name_ = std::make_shared<const std::string>(std::string(kRegexPrefix) + expression);
  pattern.regex_ = std::make_shared<const Regex>(std::move(expression));
  return pattern;
}

Pattern Pattern::splits(const std::vector<std::string>& expressions) {
  if (expressions.size() == 1) return regex(expressions[0]);
  Pattern deepseek;
  deepseek.kind_ = PatternKind::kDeepseekV3;
  if (std::equal(expressions.begin(), expressions.end(), std::begin(kDeepseekSplits), std::end(kDeepseekSplits)))
    return deepseek;
  fail_value("{} splits one after the other are not known as a pattern; only deepseek-v3's three are",
             expressions.size());
}

const std::string& Pattern::name() const {
  if (kind_ == PatternKind::kRegex) return *regex_name_;
  return std::find_if(names().begin(), names().end(), [this](const Name& n) { return n.kind == kind_; })->name;
}

std::string Pattern::expression() const {
  if (kind_ == PatternKind::kRegex) return regex_->expression();
  for (const Spelling& spelling : kSpellings)
    if (spelling.kind == kind_) return spelling.expression;
  return {};
}

std::vector<std::string> Pattern::splits() const {
  if (kind_ != PatternKind::kDeepseekV3) return {expression()};
  return {std::begin(kDeepseekSplits), std::end(kDeepseekSplits)};
}

size_t Pattern::piece(std::string_view text, size_t at) const {
  TALLY_ASSERT(at < text.size());
  if (kind_ == PatternKind::kRegex) return RegexPieces(*regex_, text, at).next();
  return with_scanner(kind_, [&](const auto scanner) { return scanner.piece(text.data() + at, text.size() - at); });
}

// White space behind a character of another kind begins a piece with every scanner, but for the newlines that follow
// symbols into their piece: those count only behind a letter or a number.
size_t Pattern::next_safe_border(std::string_view text, size_t from) const {
  if (!has_borders()) return text.size();
  const bool newlines_join = kind_ != PatternKind::kGpt2 && kind_ != PatternKind::kWhitespace;
  for (size_t i = std::max<size_t>(from, 1); i < text.size(); ++i) {
    const CharClass here = scan::ascii_class(text[i]);
    if ((here & kSpace) == 0) continue;
    const CharClass before = char_before(text, i).bits;
    if (newlines_join && here == kNewline ? (before & (kLetter | kNumber)) != 0 : (before & kSpace) == 0) return i;
  }
  return text.size();
}

size_t Pattern::final_piece(std::string_view text, size_t at) const {
  if (!has_borders()) return 0;
  const size_t length = piece(text, at), end = at + length;
  if (end + kNear > text.size()) return 0;
  if (kind_ == PatternKind::kGpt2 || kind_ == PatternKind::kWhitespace) return length;
  size_t decided = end;  // what decides about the piece ends before it
  if ((char_before(text, end).bits & kSpace) != 0) decided = class_run_end(text, end, kSpace);
  if (kind_ == PatternKind::kO200k) decided = std::max(decided, class_run_end(text, end, kUpper | kCaseless | kMark));
  return decided + kNear > text.size() ? 0 : length;
}

size_t Pattern::lookahead() const {
  return kind_ == PatternKind::kGpt2 || kind_ == PatternKind::kWhitespace ? kNear : SIZE_MAX;
}

}  // namespace tally
