// How text is cut into pieces (pre-tokens) before BPE. The patterns that people use are scanners written by hand over
// UTF-8 bytes (scan_*.h: general categories of Unicode 16, \s = White_Space); any other regular expression runs on PCRE2.
// Any bytes are split and the pieces join to the text again: what an expression leaves unmatched is a piece of its own
// (as "Isolated" splits do elsewhere), and a byte that is not part of valid UTF-8 is a symbol (as U+FFFD is).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tally/text/regex.h"
#include "tally/text/scan_deepseek.h"
#include "tally/text/scan_o200k.h"
#include "tally/text/scan_words.h"

namespace tally {

enum class PatternKind : uint8_t {
  kGpt2,
  kCl100k,
  kO200k,
  kLlama3,
  kQwen2,
  kDeepseekV3,
  kWhitespace,
  kNanochat,
  kRegex
};

// A value: cheap to copy, constant, safe between threads.
class Pattern {
 public:
  Pattern() = default;  // gpt2

  // "gpt2" (also "r50k", "p50k"), "cl100k", "o200k", "llama3", "qwen2", "deepseek-v3", "nanochat", "whitespace" (words
  // with the space before them), or "regex:" and an expression: what name() gives. Error: names them.
  static Pattern named(std::string_view name);
  // PCRE2's syntax, see regex.h; an expression of one of the scanners, in any of its published spellings, gives that
  // scanner. Error: what is wrong, where.
  static Pattern regex(std::string expression);
  // Splits one after the other, each of what the one before left, as tokenizer.json files have them: one expression is
  // regex(), deepseek-v3's three are its scanner. Error for any other list.
  static Pattern splits(const std::vector<std::string>& expressions);

  PatternKind kind() const { return kind_; }
  const std::string& name() const;         // for configuration files; named(name()) is this pattern
  std::string expression() const;          // the regular expression it equals, for files of others
  std::vector<std::string> splits() const;  // the same as isolating splits in order; more than one for deepseek-v3

  // Bytes of the piece that starts at text[at] (at < size). text is all there is: its end is the end of the text.
  // With kRegex each call reads all of text: use for_each_piece.
  size_t piece(std::string_view text, size_t at) const;

  // A piece depends only on what follows its start (all scanners, not kRegex): text may be cut, streamed, split in
  // parallel.
  bool has_borders() const { return kind_ != PatternKind::kRegex; }
  // The first position in [from, text.size()) where a piece starts whatever stands before it, and where the text before
  // it may end without another piece in it; text.size() when there is none, as always with kRegex. 0 is never given.
  size_t next_safe_border(std::string_view text, size_t from) const;
  // If more may follow text: bytes of the piece at `at` when no further text changes it, else 0. This is what streams
  // use. 0 always with kRegex.
  size_t final_piece(std::string_view text, size_t at) const;
  // A piece is final when it ends at least this many bytes before the end of what is known. No such number
  // (SIZE_MAX) where a long run decides about its start: white space before a newline (all but gpt2 and whitespace),
  // capitals before a small letter (o200k). final_piece knows those.
  size_t lookahead() const;

  bool operator==(const Pattern& other) const { return kind_ == other.kind_ && name() == other.name(); }

  const Regex* regex_engine() const { return regex_.get(); }  // kRegex only

 private:
  PatternKind kind_ = PatternKind::kGpt2;
  std::shared_ptr<const Regex> regex_;
  std::shared_ptr<const std::string> regex_name_;
};

// Calls f(scanner) with the scanner of a kind other than kRegex.
template <class F>
decltype(auto) with_scanner(PatternKind kind, const F& f) {
  switch (kind) {
    case PatternKind::kCl100k: return f(scan::Cl100k<3, true>());
    case PatternKind::kO200k: return f(scan::O200k());
    case PatternKind::kLlama3: return f(scan::Cl100k<3, false>());
    case PatternKind::kQwen2: return f(scan::Cl100k<1, false>());
    case PatternKind::kDeepseekV3: return f(scan::DeepseekV3());
    case PatternKind::kWhitespace: return f(scan::Whitespace());
    case PatternKind::kNanochat: return f(scan::Cl100k<2, false>());
    default: return f(scan::Gpt2());
  }
}

// Calls f(std::string_view piece) for each piece in order.
template <class F>
void for_each_piece(const Pattern& pattern, std::string_view text, const F& f) {
  if (pattern.kind() == PatternKind::kRegex) {
    RegexPieces pieces(*pattern.regex_engine(), text, 0);
    for (size_t at = 0, length; at < text.size(); at += length) f(text.substr(at, length = pieces.next()));
    return;
  }
  with_scanner(pattern.kind(), [&](const auto scanner) {
    const char* p = text.data();
    for (size_t left = text.size(); left > 0;) {
      const size_t length = scanner.piece(p, left);
      f(std::string_view(p, length));
      p += length, left -= length;
    }
  });
}

}  // namespace tally
