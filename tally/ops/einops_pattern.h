// Patterns of axes: one side of an einops pattern such as "b (h d) ... 1", parsed into names, and whole patterns, each
// parsed once and kept. Rules and refusals are those of einops 0.8 (Rogozhnikov, "Einops: clear and reliable tensor
// manipulations with Einstein-like notation", ICLR 2022); einsum reads the same terms without brackets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tally/core/view.h"

namespace tally {

// A name, a number above 1 ("2": an axis of that size without a name) or the ellipsis.
struct PatternAxis {
  std::string name;    // as written; "..." for the ellipsis
  int64_t number = 0;  // of an axis without a name
  bool is_ellipsis() const { return name == "..."; }
  bool is_name() const { return number == 0 && !is_ellipsis(); }
};

// "b (h d) ... 1": four groups. An axis of size 1, written 1 or (), is an empty group.
struct PatternSide {
  std::vector<std::vector<PatternAxis>> groups;
  bool ellipsis = false, ellipsis_in_brackets = false, numbers = false;
  bool has(std::string_view name) const;
  // All axes in order, brackets left out.
  std::vector<PatternAxis> flat() const;
};

struct PatternRules {
  bool underscore = false;  // "_" is a name, as often as wanted
  bool duplicates = false;  // a name may stand twice
};
// Throws a value Error with what is wrong in `text`; the caller adds the pattern.
PatternSide parse_side(std::string_view text, PatternRules rules = {});
// Why `name` cannot name an axis, or nothing.
std::string axis_name_fault(std::string_view name, bool underscore = false);
// {a, b}
std::string braces(const std::vector<std::string>& names);

// Adds a size or an axis. Throws Error beyond kMaxRank.
void push(Dims& d, int64_t n);

// The two sides of "left -> right". Throws Error when there is not exactly one arrow.
struct PatternHalves {
  std::string_view left, right;
};
PatternHalves split_arrow(std::string_view pattern);

// What was made of a pattern, by its text, for one thread: parsing happens once and takes no lock. Programs have few
// patterns; one that makes them up without end starts anew at kMost.
template <class T>
class PatternCache {
 public:
  // T is made by `parse(pattern)` the first time. What throws is not kept.
  template <class F>
  std::shared_ptr<const T> get(std::string_view pattern, const F& parse) {
    if (const auto it = kept_.find(pattern); it != kept_.end()) return it->second;
    auto made = std::make_shared<const T>(parse(pattern));
    if (kept_.size() >= kMost) kept_.clear();
    kept_.emplace(std::string(pattern), made);
    return made;
  }
  size_t size() const { return kept_.size(); }

 private:
  static constexpr size_t kMost = 4096;
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, std::shared_ptr<const T>, Hash, std::equal_to<>> kept_;
};

}  // namespace tally
