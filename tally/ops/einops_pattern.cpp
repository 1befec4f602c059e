#include "tally/ops/einops_pattern.h"

#include <algorithm>
#include <charconv>

#include "tally/base/error.h"
#include "tally/base/json.h"

namespace tally {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// Axis names are ASCII letters, digits and underscores, or any bytes of UTF-8 beyond ASCII.
bool in_name(char c) { return is_letter(c) || is_digit(c) || c == '_' || (static_cast<unsigned char>(c) & 0x80) != 0; }

int64_t number_of(std::string_view digits) {
  int64_t n = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (status != std::errc() || end != digits.data() + digits.size() || n > (int64_t{1} << 40))
    fail_value("an axis of size {} is too large", printable(digits));
  return n;
}

// Collects the groups of one side.
class SideParser {
 public:
  explicit SideParser(PatternRules rules) : rules_(rules) {}

  PatternSide parse(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
      const char c = text[i];
      if (c == ' ') {
        ++i;
      } else if (c == '(' || c == ')') {
        bracket(c);
        ++i;
      } else {
        const size_t begin = i;
        while (i < text.size() && (in_name(text[i]) || text[i] == '.')) ++i;
        if (i == begin) unknown(c);
        add(text.substr(begin, i - begin));
      }
    }
    if (open_) fail_value("brackets are not balanced: '(' is not closed");
    return std::move(side_);
  }

 private:
  [[noreturn]] static void unknown(char c) {
    if (c >= ' ' && c < 0x7f) fail_value("unknown character '{}'", c);
    fail_value("unknown character of code {}", static_cast<int>(static_cast<unsigned char>(c)));
  }

  void bracket(char c) {
    if (c == '(' && open_) fail_value("brackets inside brackets are not allowed");
    if (c == ')' && !open_) fail_value("brackets are not balanced: ')' without '('");
    open_ = c == '(';
    if (open_) side_.groups.emplace_back();
  }

  void add(std::string_view word) {
    PatternAxis axis;
    axis.name = word;
    if (word == "...") {
      if (side_.ellipsis) fail_value("more than one ellipsis (...) on one side");
      side_.ellipsis = true;
      side_.ellipsis_in_brackets = open_;
    } else if (word.find('.') != std::string_view::npos) {
      if (word.find("...") == std::string_view::npos)
        fail_value("dots may stand only in an ellipsis (...): '{}'", printable(word));
      fail_value("invalid axis name '{}': an ellipsis stands apart, as in '... hidden'", printable(word));
    } else if (std::all_of(word.begin(), word.end(), is_digit)) {
      axis.number = number_of(word);
      if (axis.number == 0) fail_value("an axis without a name must have a positive size, not 0");
      if (axis.number == 1) {  // an empty group; within brackets it means nothing
        if (!open_) side_.groups.emplace_back();
        return;
      }
      side_.numbers = true;
    } else {
      if (const std::string fault = axis_name_fault(word, rules_.underscore); !fault.empty())
        fail_value("invalid axis name '{}': {}", printable(word), fault);
      const bool again = !rules_.duplicates && !(rules_.underscore && word == "_") && side_.has(word);
      if (again) fail_value("axis '{}' stands twice on one side", word);
    }
    if (!open_) side_.groups.emplace_back();
    side_.groups.back().push_back(std::move(axis));
  }

  PatternRules rules_;
  PatternSide side_;
  bool open_ = false;  // in brackets
};

}  // namespace

bool PatternSide::has(std::string_view name) const {
  for (const auto& group : groups)
    for (const PatternAxis& axis : group)
      if (axis.name == name) return true;
  return false;
}

std::vector<PatternAxis> PatternSide::flat() const {
  std::vector<PatternAxis> all;
  for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

PatternSide parse_side(std::string_view text, PatternRules rules) { return SideParser(rules).parse(text); }

std::string axis_name_fault(std::string_view name, bool underscore) {
  if (name.empty()) return "it is empty";
  if (is_digit(name[0])) return "a name does not begin with a digit";
  const bool ascii =
      std::all_of(name.begin(), name.end(), [](char c) { return (static_cast<unsigned char>(c) & 0x80) == 0; });
  if (!std::all_of(name.begin(), name.end(), in_name) || (!ascii && printable(name) != name))
    return "names are letters, digits and underscores";
  if ((name[0] == '_' || name.back() == '_') && !(underscore && name == "_"))
    return "a name neither begins nor ends with an underscore";
  return "";
}

std::string braces(const std::vector<std::string>& names) {
  std::string s = "{";
  for (size_t i = 0; i < names.size(); ++i) s += (i ? ", " : "") + names[i];
  return s + "}";
}

void push(Dims& d, int64_t n) {
  if (d.rank == kMaxRank) fail_value("more than {} axes", kMaxRank);
  d[d.rank++] = n;
}

PatternHalves split_arrow(std::string_view pattern) {
  const size_t at = pattern.find("->");
  if (at == std::string_view::npos) fail_value("'->' is missing");
  if (pattern.find("->", at + 2) != std::string_view::npos) fail_value("'->' stands more than once");
  return {pattern.substr(0, at), pattern.substr(at + 2)};
}

}  // namespace tally
