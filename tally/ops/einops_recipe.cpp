#include "tally/ops/einops_recipe.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/ops/einops_pattern.h"

namespace tally {

namespace {

constexpr int kEllipsis = -1;
constexpr int64_t kUnknown = -1;

// A pattern with its names as numbers: the left side's axes in order, then those only on the right.
struct Transform {
  std::vector<std::string> names;
  std::vector<int64_t> sizes;                 // of axes that are numbers; else kUnknown
  std::vector<std::vector<int>> left, right;  // groups of axes; kEllipsis
  bool ellipsis = false;                      // on the left

  int find(std::string_view name) const {
    const auto at = std::find(names.begin(), names.end(), name);
    return at == names.end() ? -1 : static_cast<int>(at - names.begin());
  }
};

// Axes of `a` that are not in `b`, as einops compares them: numbers are never equal to each other.
std::vector<std::string> only_in(const PatternSide& a, const PatternSide& b) {
  std::vector<std::string> names;
  for (const PatternAxis& axis : a.flat())
    if (axis.number != 0 || !b.has(axis.name)) names.push_back(axis.name);
  return names;
}

void check_sides(EinopsKind kind, const PatternSide& left, const PatternSide& right) {
  if (right.ellipsis && !left.ellipsis) fail_value("an ellipsis on the right side, but not on the left");
  if (left.ellipsis_in_brackets) fail_value("an ellipsis within brackets is not allowed on the left side");
  std::vector<std::string> lost = only_in(left, right);
  const std::vector<std::string> fresh = only_in(right, left);
  if (kind == EinopsKind::kRearrange) {
    if (left.numbers || right.numbers) fail_value("numbers other than 1 are not axes of rearrange");
    lost.insert(lost.end(), fresh.begin(), fresh.end());
    if (!lost.empty()) fail_value("axes only on one side: {}", braces(lost));
  }
  if (kind == EinopsKind::kRepeat && !lost.empty()) fail_value("axes only on the left side: {}", braces(lost));
  if (kind == EinopsKind::kReduce && !fresh.empty()) fail_value("axes only on the right side: {}", braces(fresh));
}

Transform parse(EinopsKind kind, std::string_view pattern) {
  const PatternHalves halves = split_arrow(pattern);
  const PatternSide left = parse_side(halves.left), right = parse_side(halves.right);
  check_sides(kind, left, right);
  Transform t;
  t.ellipsis = left.ellipsis;
  for (const PatternSide* side : {&left, &right}) {
    auto& groups = side == &left ? t.left : t.right;
    for (const auto& group : side->groups) {
      groups.emplace_back();
      for (const PatternAxis& axis : group) {
        int id = axis.is_ellipsis() ? kEllipsis : axis.is_name() ? t.find(axis.name) : -1;
        if (id < 0 && !axis.is_ellipsis()) {
          id = static_cast<int>(t.names.size());
          t.names.push_back(axis.name);
          t.sizes.push_back(axis.number != 0 ? axis.number : kUnknown);
        }
        groups.back().push_back(id);
      }
    }
  }
  return t;
}

thread_local PatternCache<Transform> the_transforms[3];
thread_local int64_t the_parsed = 0;

// ---- a pattern on a shape

// The pattern's groups with the ellipsis written out as axes `first`, `first` + 1, ...
std::vector<std::vector<int>> written_out(const std::vector<std::vector<int>>& groups, int first, int count) {
  std::vector<std::vector<int>> all;
  for (const auto& group : groups) {
    if (group.size() == 1 && group[0] == kEllipsis) {
      for (int i = 0; i < count; ++i) all.push_back({first + i});
      continue;
    }
    all.emplace_back();
    for (const int id : group) {
      if (id != kEllipsis) all.back().push_back(id);
      for (int i = 0; id == kEllipsis && i < count; ++i) all.back().push_back(first + i);
    }
  }
  return all;
}

class Solver {
 public:
  Solver(EinopsKind kind, const Transform& t, const Dims& shape, const AxisSizes& given)
      : kind_(kind), t_(t), shape_(shape), size_(t.sizes) {
    const int axes = static_cast<int>(t.left.size()) - (t.ellipsis ? 1 : 0);
    if (t.ellipsis ? shape.rank < axes : shape.rank != axes)
      fail_value("the pattern has {}{} axes, the tensor {}", t.ellipsis ? "at least " : "", axes, shape.rank);
    const int first = static_cast<int>(t.names.size()), count = t.ellipsis ? shape.rank - axes : 0;
    size_.resize(static_cast<size_t>(first + count), kUnknown);
    left_ = written_out(t.left, first, count);
    right_ = written_out(t.right, first, count);
    take_sizes(given);
    for (int axis = 0; axis < shape.rank; ++axis) solve_axis(axis);
  }

  EinopsRecipe recipe() const {
    EinopsRecipe r;
    std::vector<int> place(size_.size(), -1);  // among the axes that remain
    std::vector<bool> stays(size_.size(), kind_ != EinopsKind::kReduce);
    for (const auto& group : right_)
      for (const int id : group) stays[static_cast<size_t>(id)] = true;
    int remaining = 0;
    for (const auto& group : left_) {
      push(r.move.parts, static_cast<int64_t>(group.size()));
      for (const int id : group) {
        if (stays[static_cast<size_t>(id)])
          place[static_cast<size_t>(id)] = remaining++;
        else
          push(r.reduced, r.move.split.rank);
        push(r.move.split, size_[static_cast<size_t>(id)]);
      }
    }
    for (const auto& group : right_) {
      push(r.move.merged, static_cast<int64_t>(group.size()));
      for (const int id : group) {
        const int64_t n = size_[static_cast<size_t>(id)];
        if (n == kUnknown) fail_value("give the size of the new axis '{}'", t_.names[static_cast<size_t>(id)]);
        push(r.move.from, place[static_cast<size_t>(id)]);
        push(r.move.full, n);
      }
    }
    return r;
  }

 private:
  void take_sizes(const AxisSizes& given) {
    for (size_t i = 0; i < given.size(); ++i) {
      const auto& [name, size] = given[i];
      if (const std::string fault = axis_name_fault(name); !fault.empty())
        fail_value("a size for '{}', which is no axis name: {}", printable(name), fault);
      const int id = t_.find(name);
      if (id < 0) fail_value("a size for axis '{}', which is not in the pattern", name);
      if (size < 0) fail_value("axis '{}' cannot have the size {}", name, size);
      for (size_t j = 0; j < i; ++j)
        if (given[j].first == name) fail_value("the size of axis '{}' is given twice", name);
      size_[static_cast<size_t>(id)] = size;
    }
  }

  // The one unknown size of a group, or a check that the known ones fit.
  void solve_axis(int axis) {
    const int64_t length = shape_[axis];
    const auto& group = left_[static_cast<size_t>(axis)];
    int64_t known = 1;
    int unknown = -1;
    std::vector<std::string> names;
    bool fits = true;
    for (const int id : group) {
      const int64_t n = size_[static_cast<size_t>(id)];
      if (n != kUnknown) {
        fits = !__builtin_mul_overflow(known, n, &known) && fits;
      } else {
        unknown = id;
        if (group.size() > 1) names.push_back(t_.names[static_cast<size_t>(id)]);
      }
    }
    if (names.size() > 1) fail_value("sizes of {} cannot be inferred; give all but one", braces(names));
    if (unknown < 0) {
      if (!fits || known != length) fail_value("axis {} has size {}, the pattern's is {}", axis, length, known);
    } else if (!fits || known == 0 || length % known != 0) {
      fail_value("axis {} of size {} cannot be divided into parts of {}", axis, length, known);
    } else {
      size_[static_cast<size_t>(unknown)] = length / known;
    }
  }

  EinopsKind kind_;
  const Transform& t_;
  const Dims& shape_;
  std::vector<int64_t> size_;  // by axis
  std::vector<std::vector<int>> left_, right_;
};

}  // namespace

const char* name_of(EinopsKind kind) {
  return kind == EinopsKind::kRearrange ? "rearrange" : kind == EinopsKind::kReduce ? "reduce" : "repeat";
}
int64_t patterns_parsed() { return the_parsed; }

EinopsRecipe recipe_of(EinopsKind kind, const Tensor& x, std::string_view pattern, const AxisSizes& sizes) {
  if (!x.defined()) fail("{}: an input is missing", name_of(kind));
  try {
    const auto transform = the_transforms[static_cast<int>(kind)].get(pattern, [kind](std::string_view p) {
      ++the_parsed;
      return parse(kind, p);
    });
    return Solver(kind, *transform, x.sizes(), sizes).recipe();
  } catch (const Error& e) {
    fail_value("{}: {} in pattern {} for a tensor of shape {}", name_of(kind), e.what(), in_quotes(pattern),
               str(x.sizes()));
  }
}

}  // namespace tally
