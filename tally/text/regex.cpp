// One pcre2_jit_match call a piece. What PCRE2 cannot bound itself is bounded here: starting places are tried some
// hundreds at a time, with a look at the thread's clock in between.
#include "tally/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "tally/base/error.h"
#include "tally/text/utf8.h"
#include "tally/text/vocab.h"

namespace tally {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;          // steps for one starting place
constexpr size_t kStackBytes = size_t{64} << 20;      // what the compiled code may use to backtrack
constexpr size_t kStartsAtOnce = 512;                 // bytes of starting places between two looks at the clock
constexpr size_t kPiecesAtOnce = 4096;                // and pieces
constexpr double kPatience = 20, kSlowest = 20'000;   // after so many seconds: at least so many bytes a second
constexpr size_t kShownBytes = 200;                   // of an expression in a message

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, Deleter<Free>>;
using CodePointer = Owned<pcre2_code, pcre2_code_free>;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? fmt::format("error {}", code)
                                                               : std::string(reinterpret_cast<const char*>(text));
}

std::string shown(const std::string& expression) { return quote_token(expression.substr(0, kShownBytes)); }

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

CodePointer compile(std::string_view expression, int& error, size_t& at) {
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  return CodePointer(pcre2_compile(units(expression), expression.size(), kOptions, &error, &at, context.get()));
}

// Does this PCRE2's \s take U+180E, which has not been white space since Unicode 6.3?
bool spaces_are_wrong() {
  static const bool wrong = [] {
    int error;
    size_t at;
    const CodePointer code = compile("\\s", error, at);
    const Owned<pcre2_match_data, pcre2_match_data_free> data(
        pcre2_match_data_create_from_pattern(code.get(), nullptr));
    return pcre2_match(code.get(), units("\xE1\xA0\x8E"), 3, 0, 0, data.get(), nullptr) > 0;
  }();
  return wrong;
}

constexpr std::string_view kSpaceRanges =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpaceRanges =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";

// The expression as PCRE2 gets it, and for each of its bytes the place in the one given.
struct Spelling {
  std::string text;
  std::vector<size_t> origin;
  void put(std::string_view part, size_t from) {
    text += part;
    origin.resize(text.size(), from);
  }
};

// Walks an expression: classes, escapes, \Q..\E and comments of (?x) are told apart, \s and \S spelt out.
Spelling spell(const std::string& given) {
  Spelling out;
  bool in_class = false, extended = false;
  size_t class_start = 0;
  const std::string_view e = given;
  for (size_t i = 0; i < e.size();) {
    const std::string_view rest = e.substr(i);
    size_t length = 1;
    if (rest.starts_with("\\Q")) {
      length = std::min(rest.find("\\E"), rest.size());
    } else if (rest[0] == '\\' && rest.size() > 1) {
      length = 2;
      if (spaces_are_wrong() && (rest[1] == 's' || rest[1] == 'S')) {
        if (!in_class) out.put(rest[1] == 's' ? "[" : "[^", i);
        out.put(rest[1] == 's' || !in_class ? kSpaceRanges : kNotSpaceRanges, i);
        if (!in_class) out.put("]", i);
        i += 2;
        continue;
      }
    } else if (in_class) {
      if (rest.starts_with("&&"))
        fail_value("the regular expression {} has && in a class at offset {}, which PCRE2 does not read as other "
                   "engines do; write \\&\\& for two ampersands",
                   shown(given), i);
      if (rest.starts_with("[:space:]") && spaces_are_wrong()) {
        out.put(kSpaceRanges, i);
        i += 9;
        continue;
      }
      if (rest.starts_with("[:")) length = std::min(rest.find(":]"), rest.size() - 2) + 2;
      if (rest[0] == ']' && i != class_start) in_class = false;
    } else if (rest[0] == '[') {
      in_class = true;
      if (rest.starts_with("[^")) length = 2;
      class_start = i + length;  // a ] that comes first is a character
    } else if (rest.starts_with("(?#")) {
      length = std::min(rest.find(')'), rest.size());
    } else if (rest.starts_with("(?") && !rest.starts_with("(?<") && !rest.starts_with("(?P")) {
      const std::string_view flags = rest.substr(2, rest.find_first_of(":)", 2) - 2);
      extended |= flags.find_first_not_of("imsxnJU-^") == flags.npos && flags.find('x') != flags.npos;
    } else if (rest[0] == '#' && extended) {
      length = std::min(rest.find('\n'), rest.size());
    }
    out.put(rest.substr(0, length), i);
    i += length;
  }
  out.origin.push_back(given.size());
  return out;
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

struct Regex::State {
  Owned<pcre2_match_data, pcre2_match_data_free> data;
  Owned<pcre2_match_context, pcre2_match_context_free> context;
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack;
};

struct Regex::Code {
  CodePointer code;
  bool compiled = false;  // to machine code
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<State>> free;

  std::unique_ptr<State> take() const {
    {
      const std::lock_guard lock(mutex);
      if (!free.empty()) {
        std::unique_ptr<State> state = std::move(free.back());
        free.pop_back();
        return state;
      }
    }
    auto state = std::make_unique<State>();
    state->data.reset(pcre2_match_data_create_from_pattern(code.get(), nullptr));
    state->context.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(state->context.get(), kMatchLimit);
    pcre2_set_heap_limit(state->context.get(), kStackBytes >> 10);
    if (compiled) {
      state->stack.reset(pcre2_jit_stack_create(size_t{64} << 10, kStackBytes, nullptr));
      pcre2_jit_stack_assign(state->context.get(), nullptr, state->stack.get());
    }
    return state;
  }

  void give(std::unique_ptr<State> state) const {
    const std::lock_guard lock(mutex);
    free.push_back(std::move(state));
  }
};

Regex::Regex(std::string expression) : expression_(std::move(expression)), code_(std::make_unique<Code>()) {
  const Spelling spelling = spell(expression_);
  int error = 0;
  size_t at = 0;
  code_->code = compile(spelling.text, error, at);
  if (code_->code == nullptr)
    fail_value("the regular expression {} is wrong at offset {}: {}", shown(expression_),
               spelling.origin[std::min(at, spelling.text.size())], message_of(error));
  code_->compiled = pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;

std::string regex_unicode_version() {
  char version[64] = {};
  return pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version) > 0 ? version : "";
}

RegexPieces::RegexPieces(const Regex& regex, std::string_view text, size_t at)
    : regex_(regex), state_(regex.code_->take()), text_(text), at_(at), began_(thread_seconds()) {
  size_t good = 0;  // the text before it is in repaired_ already
  size_t repaired_at = at;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<signed char>(text[i]) >= 0) {
      ++i;
      continue;
    }
    const Utf8Char c = utf8_next(text.data() + i, text.size() - i);
    if (c.status != Utf8Status::kValid) {
      repaired_.append(text, good, i - good);
      replaced_.push_back(repaired_.size());
      repaired_ += "\xEF\xBF\xBD";
      good = i + 1;
      if (i < at) repaired_at += 2;
    }
    i = c.status == Utf8Status::kValid ? i + c.length : i + 1;
  }
  if (!replaced_.empty()) {
    repaired_.append(text, good, text.size() - good);
    text_ = repaired_;
    at_ = repaired_at;
    while (next_replaced_ < replaced_.size() && replaced_[next_replaced_] < at_) ++next_replaced_;
  }
  began_at_ = at_;
}

RegexPieces::~RegexPieces() { regex_.code_->give(std::move(state_)); }

void RegexPieces::refuse(int code) const {
  const std::string expression = shown(regex_.expression());
  if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_JIT_STACKLIMIT || code == PCRE2_ERROR_HEAPLIMIT ||
      code == PCRE2_ERROR_DEPTHLIMIT || code == 0)
    fail_run("the regular expression {} takes too {} at byte {} of the text; write it with less to try again "
             "(possessive ++, *+), or use a pattern with a name",
             expression,
             code == 0                         ? "long for each byte"
             : code == PCRE2_ERROR_MATCHLIMIT ? "many steps for one piece"
                                               : "much memory for one piece",
             at_);
  fail_run("the regular expression {} failed at byte {} of the text: {}", expression, at_, message_of(code));
}

RegexPieces::Match RegexPieces::search(size_t from) {
  const Regex::Code& code = *regex_.code_;
  const auto next_char = [this](size_t i) {
    do ++i;
    while (i < text_.size() && (text_[i] & 0xC0) == 0x80);
    return i;
  };
  for (size_t start = from; start < text_.size();) {
    size_t last = std::min(start + kStartsAtOnce, text_.size() - 1);
    while (last > start && (text_[last] & 0xC0) == 0x80) --last;
    pcre2_set_offset_limit(state_->context.get(), last);
    const auto match = code.compiled ? pcre2_jit_match : pcre2_match;
    const int found = match(code.code.get(), units(text_), text_.size(), start, PCRE2_NO_UTF_CHECK, state_->data.get(),
                            state_->context.get());
    if (found >= 0) {
      const size_t* ends = pcre2_get_ovector_pointer(state_->data.get());
      const size_t begin = std::max(ends[0], from);
      return {begin, std::max(ends[1], begin)};
    }
    if (found != PCRE2_ERROR_NOMATCH) refuse(found);
    start = next_char(last);
    const double seconds = thread_seconds() - began_;
    if (seconds > kPatience && static_cast<double>(start - began_at_) < kSlowest * seconds) refuse(0);
  }
  return {text_.size(), text_.size()};
}

size_t RegexPieces::raw_length(size_t end) {
  size_t length = end - at_;
  for (; next_replaced_ < replaced_.size() && replaced_[next_replaced_] < end; ++next_replaced_) length -= 2;
  at_ = end;
  return length;
}

size_t RegexPieces::next() {
  TALLY_ASSERT(at_ < text_.size());
  if (++pieces_ % kPiecesAtOnce == 0) {
    const double seconds = thread_seconds() - began_;
    if (seconds > kPatience && static_cast<double>(at_ - began_at_) < kSlowest * seconds) refuse(0);
  }
  Match m = has_pending_ ? pending_ : search(at_);
  has_pending_ = false;
  if (m.begin == at_ && m.end > at_) return raw_length(m.end);
  if (m.begin == at_) {  // empty: a border
    size_t after = at_ + 1;
    while (after < text_.size() && (text_[after] & 0xC0) == 0x80) ++after;
    m = search(after);
  }
  pending_ = m;
  has_pending_ = m.begin < text_.size();
  return raw_length(m.begin);
}

}  // namespace tally
