#include "tally/ops/expect.h"

#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/ops/einops_pattern.h"

namespace tally {

namespace {

thread_local PatternCache<PatternSide> the_patterns;

// Names of one axis each; parse_side() knows brackets, which have no meaning here, and reads 1 as an empty group.
PatternSide parse(std::string_view pattern) {
  if (pattern.find_first_of("()") != std::string_view::npos) fail_value("brackets are not part of a shape");
  return parse_side(pattern, {true, true});
}

}  // namespace

const int64_t* Shapes::find(std::string_view axis) const {
  for (const auto& [name, size] : bound_)
    if (name == axis) return &size;
  return nullptr;
}

int64_t Shapes::operator[](std::string_view axis) const {
  const int64_t* size = find(axis);
  if (size == nullptr) fail_value("expect: no axis '{}' has been bound", printable(axis));
  return *size;
}

Shapes& Shapes::expect(const Dims& shape, std::string_view pattern, std::string_view name) {
  const auto refuse = [&](const std::string& why) {
    fail_value("expect: {} of shape {} is not {}: {}", printable(name), str(shape), in_quotes(pattern), why);
  };
  std::shared_ptr<const PatternSide> side;
  try {
    side = the_patterns.get(pattern, parse);
  } catch (const Error& e) {
    fail_value("expect: {} in pattern {} of {}", e.what(), in_quotes(pattern), printable(name));
  }
  const int axes = static_cast<int>(side->groups.size()) - (side->ellipsis ? 1 : 0);
  if (side->ellipsis ? shape.rank < axes : shape.rank != axes)
    refuse(fmt::format("{}{} axes wanted, {} there", side->ellipsis ? "at least " : "", axes, shape.rank));
  const size_t before = bound_.size();
  int at = 0;
  for (const auto& group : side->groups) {
    if (!group.empty() && group[0].is_ellipsis()) {
      at += shape.rank - axes;
      continue;
    }
    const int64_t size = shape[at++];
    int64_t wanted = group.empty() ? 1 : group[0].number;
    const std::string axis = group.empty() ? "1" : group[0].name;
    if (wanted == 0) {
      if (axis == "_") continue;
      if (const int64_t* known = find(axis)) {
        wanted = *known;
      } else {
        bound_.emplace_back(axis, size);
        continue;
      }
    }
    if (size == wanted) continue;
    bound_.resize(before);
    refuse(group.empty() || group[0].number != 0
               ? fmt::format("axis {} wants {}, got {}", at - 1, wanted, size)
               : fmt::format("axis {} ({}) wants {}, got {}", at - 1, axis, wanted, size));
  }
  return *this;
}

Shapes& Shapes::expect(const Tensor& x, std::string_view pattern, std::string_view name) {
  if (!x.defined()) fail("expect: {} is missing", printable(name));
  return expect(x.sizes(), pattern, name);
}

Shapes expect(const Tensor& x, std::string_view pattern, std::string_view name) {
  Shapes s;
  s.expect(x, pattern, name);
  return s;
}

}  // namespace tally
