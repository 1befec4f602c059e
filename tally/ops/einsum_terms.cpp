#include "tally/ops/einsum_terms.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/core/dtype.h"
#include "tally/ops/einops_pattern.h"

namespace tally {

namespace {

constexpr int kEllipsis = -1;
constexpr int kMostAxes = 64;

using Term = std::vector<int>;  // axes by number, kEllipsis
struct Terms {
  std::vector<std::string> names;
  std::vector<Term> inputs;
  Term output;

  int number_of(const std::string& name) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at != names.end()) return static_cast<int>(at - names.begin());
    names.push_back(name);
    return static_cast<int>(names.size()) - 1;
  }
  void check_output(size_t named_by_inputs) const {
    if (names.size() > named_by_inputs) fail_value("axis '{}' of the result is in no operand", names[named_by_inputs]);
    for (size_t i = 0; i < output.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (output[i] == output[j])
          fail_value("axis '{}' stands twice in the result",
                     output[i] == kEllipsis ? "..." : names[static_cast<size_t>(output[i])]);
  }
};

// What a text can mean, and why not.
struct Parsed {
  std::optional<Terms> named, letters;
  std::string named_fault, letters_fault;
};

std::vector<std::string_view> by_commas(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t begin = 0;;) {
    const size_t end = text.find(',', begin);
    all.push_back(text.substr(begin, end - begin));  // to the end where there is no comma
    if (end == std::string_view::npos) return all;
    begin = end + 1;
  }
}

Term named_term(Terms& terms, std::string_view text, PatternRules rules) {
  Term term;
  for (const auto& group : parse_side(text, rules).groups) {
    if (group.empty()) fail_value("axes of size 1 (1 or ()) are not part of einsum; rearrange before");
    if (group.size() > 1) fail_value("composed axes in brackets are not part of einsum; rearrange before");
    if (group[0].number != 0) fail_value("numbers are not axes of einsum: {}", group[0].number);
    term.push_back(group[0].is_ellipsis() ? kEllipsis : terms.number_of(group[0].name));
  }
  return term;
}

Terms parse_named(std::string_view pattern) {
  const PatternHalves halves = split_arrow(pattern);
  Terms terms;
  for (const std::string_view text : by_commas(halves.left))
    terms.inputs.push_back(named_term(terms, text, {true, true}));
  const size_t named = terms.names.size();
  terms.output = named_term(terms, halves.right, {true, false});
  terms.check_output(named);
  return terms;
}

Term letter_term(Terms& terms, std::string_view text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (text.substr(i, 3) == "...") {
      if (std::find(term.begin(), term.end(), kEllipsis) != term.end())
        fail_value("more than one ellipsis (...) in one term");
      term.push_back(kEllipsis);
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      term.push_back(terms.number_of(std::string(1, c)));
    } else if (c == '.') {
      fail_value("dots may stand only in an ellipsis (...)");
    } else {
      fail_value("'{}' is not an axis of one letter", printable(text.substr(i, 1)));
    }
  }
  return term;
}

Terms parse_letters(std::string_view pattern) {
  const bool arrow = pattern.find("->") != std::string_view::npos;
  const PatternHalves halves = arrow ? split_arrow(pattern) : PatternHalves{pattern, {}};
  Terms terms;
  for (const std::string_view text : by_commas(halves.left)) terms.inputs.push_back(letter_term(terms, text));
  const size_t named = terms.names.size();
  if (arrow) {
    terms.output = letter_term(terms, halves.right);
    terms.check_output(named);
    return terms;
  }
  bool ellipsis = false;
  std::map<std::string, int> times;
  for (const Term& term : terms.inputs)
    for (const int axis : term)
      axis == kEllipsis ? void(ellipsis = true) : void(++times[terms.names[static_cast<size_t>(axis)]]);
  if (ellipsis) terms.output.push_back(kEllipsis);
  for (const auto& [name, n] : times)
    if (n == 1) terms.output.push_back(terms.number_of(name));
  return terms;
}

Parsed parse(std::string_view pattern) {
  Parsed p;
  try {
    p.named = parse_named(pattern);
  } catch (const Error& e) {
    p.named_fault = e.what();
  }
  try {
    p.letters = parse_letters(pattern);
  } catch (const Error& e) {
    p.letters_fault = e.what();
  }
  return p;
}

bool has_ellipsis(const Term& term) { return std::find(term.begin(), term.end(), kEllipsis) != term.end(); }

// Why terms do not fit the number of operands and of their axes, or nothing.
std::string misfit(const Terms& terms, const std::vector<Dims>& shapes) {
  if (terms.inputs.size() != shapes.size())
    return fmt::format("{} terms for {} operands", terms.inputs.size(), shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const bool some = has_ellipsis(terms.inputs[i]);
    const int axes = static_cast<int>(terms.inputs[i].size()) - (some ? 1 : 0);
    if (some ? shapes[i].rank < axes : shapes[i].rank != axes)
      return fmt::format("{}{} axes for operand {} of shape {}", some ? "at least " : "", axes, i, str(shapes[i]));
  }
  return "";
}

// Whether a text that fits neither way was meant as names: words apart, or more than letters.
bool names_apart(std::string_view pattern) {
  const auto word = [](char c) { return c != ' ' && c != ',' && c != '-' && c != '>'; };
  char last = ',';  // before the spaces
  bool spaces = false;
  for (const char c : pattern) {
    if (c != ' ' && word(c) && word(last) && spaces) return true;
    if (word(c) && c != '.' && !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return true;
    spaces = c == ' ';
    if (!spaces) last = c;
  }
  return false;
}

const Terms& chosen(const Parsed& p, std::string_view pattern, const std::vector<Dims>& shapes) {
  const std::string named = p.named ? misfit(*p.named, shapes) : p.named_fault;
  if (named.empty()) return *p.named;
  const std::string letters = p.letters ? misfit(*p.letters, shapes) : p.letters_fault;
  if (letters.empty()) return *p.letters;
  fail_value("{}", names_apart(pattern) ? named : letters);
}

// One operand's axes with the ellipsis written out; sizes are joined.
class Binder {
 public:
  explicit Binder(const Terms& terms) : named_(static_cast<int>(terms.names.size())) {
    axes_.names = terms.names;
    axes_.sizes.assign(terms.names.size(), kUnknown);
    first_.assign(terms.names.size(), 0);
  }

  void bind(const Term& term, const Dims& shape, int operand) {
    Dims all;
    const int under = shape.rank - static_cast<int>(term.size()) + 1;  // axes under an ellipsis
    for (const int axis : term) {
      if (axis != kEllipsis) add(all, axis, shape, operand);
      for (int i = under - 1; axis == kEllipsis && i >= 0; --i) {
        while (static_cast<int>(axes_.sizes.size()) <= named_ + i) {
          axes_.sizes.push_back(kUnknown), axes_.names.emplace_back("..."), first_.push_back(operand);
        }
        add(all, named_ + i, shape, operand);
      }
    }
    axes_.inputs.push_back(all);
  }

  EinsumAxes finish(const Term& output) {
    for (const int axis : output) {
      if (axis != kEllipsis) push(axes_.output, axis);
      for (int i = static_cast<int>(axes_.sizes.size()) - 1; axis == kEllipsis && i >= named_; --i)
        push(axes_.output, i);
    }
    if (axes_.sizes.size() > kMostAxes) fail_value("{} different axes; at most {}", axes_.sizes.size(), kMostAxes);
    return std::move(axes_);
  }

 private:
  static constexpr int64_t kUnknown = -1;

  void add(Dims& all, int axis, const Dims& shape, int operand) {
    const int64_t size = shape[all.rank];
    const auto at = static_cast<size_t>(axis);
    for (int i = 0; i < all.rank; ++i)
      if (all[i] == axis && shape[i] != size)
        fail_value("axis '{}' stands twice in operand {} with sizes {} and {}", axes_.names[at], operand, shape[i],
                   size);
    int64_t& known = axes_.sizes[at];
    if (known == kUnknown || known == 1) {
      known = size;
      first_[at] = operand;
    } else if (size != 1 && size != known) {
      fail_value("axis '{}' has size {} in operand {} and {} in operand {}", axes_.names[at], known, first_[at], size,
                 operand);
    }
    push(all, axis);
  }

  int named_;
  EinsumAxes axes_;
  std::vector<int> first_;  // the operand that gave a size
};

thread_local PatternCache<Parsed> the_patterns;

}  // namespace

EinsumAxes einsum_axes(std::string_view pattern, const std::vector<Dims>& shapes) {
  try {
    const auto parsed = the_patterns.get(pattern, parse);
    const Terms& terms = chosen(*parsed, pattern, shapes);
    Binder binder(terms);
    for (size_t i = 0; i < shapes.size(); ++i) binder.bind(terms.inputs[i], shapes[i], static_cast<int>(i));
    return binder.finish(terms.output);
  } catch (const Error& e) {
    std::string all;
    for (const Dims& shape : shapes) all += (all.empty() ? "" : ", ") + str(shape);
    fail_value("einsum: {} in pattern {} for operands of shapes {}", e.what(), in_quotes(pattern), all);
  }
}

}  // namespace tally
