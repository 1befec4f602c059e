// Special tokens in text: found from left to right, the longest first where several start at one place. Text between
// them is split and encoded on its own, so nothing merges across a special token.
// cut_text makes the parts that threads work on: no part's border lies inside a special token or a pre-token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tally/text/pattern.h"

namespace tally {

class SpecialSet {
 public:
  SpecialSet() = default;
  // Names must be valid UTF-8, not empty and all different: else Error. ids[i] belongs to names[i].
  SpecialSet(std::vector<std::string> names, std::vector<int32_t> ids);

  struct Match {
    size_t begin, end;  // begin == end == text.size() when there is none
    int32_t id;
  };
  // The first match that begins at or after `from`.
  Match find(std::string_view text, size_t from) const;

  bool empty() const { return names_.empty(); }
  size_t size() const { return names_.size(); }
  size_t longest() const { return longest_; }  // bytes
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  // Index in names(), or -1.
  int64_t index_of(std::string_view name) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::vector<std::string> names_;
  std::vector<int32_t> ids_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
  std::array<std::vector<size_t>, 256> lengths_;  // by first byte: the lengths that occur, longest first
  size_t longest_ = 0;
  int only_first_ = -1;  // the one first byte that all names share, or -1
};

// Parts of about `target` bytes that join to `text`; a text without any safe border stays in one part.
std::vector<std::string_view> cut_text(std::string_view text, const SpecialSet& specials, size_t target,
                                       const Pattern& pattern = Pattern());

// Calls on_text(std::string_view) and on_special(id) in order; texts are not empty.
template <class OnText, class OnSpecial>
void for_each_segment(std::string_view text, const SpecialSet& specials, const OnText& on_text,
                      const OnSpecial& on_special) {
  size_t at = 0;
  while (at < text.size()) {
    const SpecialSet::Match match = specials.find(text, at);
    if (match.begin > at) on_text(text.substr(at, match.begin - at));
    if (match.end > match.begin) on_special(match.id);
    at = match.end;
  }
}

}  // namespace tally
