// Regular expressions on PCRE2 with its just-in-time compiler, for patterns that have no scanner. PCRE2's syntax with
// UTF and Unicode properties (of the Unicode version that PCRE2 was built with; regex_unicode_version() says which), and
//   \s \S [:space:]  White_Space; PCRE2 up to 10.42 counts U+180E too, so \s and \S are spelt out before it sees them
//   $                the end of the text only, as in tiktoken; PCRE2's own also stands before a newline there
//   [..&&..]         refused: other engines intersect classes, PCRE2 would take the ampersands as characters
// An empty match is a border between pieces and the search goes on one character later. Broken UTF-8 is matched as
// U+FFFD, a byte each. An expression that takes too many steps for a piece, too much memory to backtrack, or minutes
// for what should take less than a second is an Error, not a hang.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

class Regex {
 public:
  explicit Regex(std::string expression);  // Error: what is wrong, where
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  const std::string& expression() const { return expression_; }

 private:
  friend class RegexPieces;
  struct Code;   // the compiled expression
  struct State;  // what one search needs; kept for the next
  std::string expression_;
  std::unique_ptr<Code> code_;
};

std::string regex_unicode_version();

// The pieces of one text in order, from text[at] on.
class RegexPieces {
 public:
  RegexPieces(const Regex& regex, std::string_view text, size_t at);
  ~RegexPieces();

  size_t next();  // bytes of the next piece, > 0; to be called only before the end of the text

 private:
  struct Match {
    size_t begin, end;
  };
  Match search(size_t from);          // the first match from `from` on, or two times the end of the text
  size_t raw_length(size_t end);      // moves at_ to `end` and gives the bytes of the caller's text that it passed
  [[noreturn]] void refuse(int code) const;

  const Regex& regex_;
  std::unique_ptr<Regex::State> state_;
  std::string repaired_;           // the text with each broken byte as U+FFFD, when it has any
  std::vector<size_t> replaced_;   // where those stand in it, ascending
  size_t next_replaced_ = 0;
  std::string_view text_;          // repaired or as it came
  size_t at_ = 0;                  // in text_
  Match pending_{0, 0};            // found already and not given yet when pending_.begin > at_ or it has bytes
  bool has_pending_ = false;
  double began_ = 0;               // seconds
  size_t began_at_ = 0, pieces_ = 0;
};

}  // namespace tally
