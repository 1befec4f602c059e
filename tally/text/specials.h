// Special tokens in text: found from left to right, the longest first where several start at one place. Text between
// them is split and encoded on its own, so nothing merges across a special token. Hundreds of thousands are no slower
// to look for than a few: most places are ruled out by their first byte and by a filter of the first four. cut_text
// makes the parts that threads work on: no part's border lies inside a special token or a pre-token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
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
    size_t index;  // in names()
  };
  // The first match that begins at or after `from`; with `only` (by index in names()) one of those that are set.
  Match find(std::string_view text, size_t from, const std::vector<bool>* only = nullptr) const;

  bool empty() const { return names_.empty(); }
  size_t size() const { return names_.size(); }
  size_t longest() const { return longest_; }  // bytes
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  // Index in names(), or -1.
  int64_t index_of(std::string_view name) const;

 private:
  size_t candidate(std::string_view text, size_t from) const;
  int64_t longest_at(std::string_view rest, const std::vector<bool>* only) const;
  void order();
  void filter();

  std::vector<std::string> names_;
  std::vector<int32_t> ids_;
  std::vector<uint32_t> sorted_;  // indices of names_, ascending by name
  std::vector<int32_t> prefix_;   // by place in sorted_: the place of the longest other name it starts with, or -1
  std::array<uint32_t, 257>
      by_first_{};                  // sorted_[by_first_[b]] is the first name that starts with byte b or a later one
  std::array<bool, 256> starts_{};  // a name starts with this byte
  std::array<bool, 256> starts_short_{};  // one of fewer than four bytes
  std::vector<uint64_t> heads_;           // a bit for each hash of four bytes that a name starts with
  int head_shift_ = 0;
  size_t longest_ = 0;
  int only_first_ = -1;  // the one first byte that all names share, or -1
};

// Parts of about `target` bytes that join to `text`; a text without any safe border stays in one part.
std::vector<std::string_view> cut_text(std::string_view text, const SpecialSet& specials, size_t target,
                                       const Pattern& pattern = Pattern(), const std::vector<bool>* only = nullptr);

// Calls on_text(std::string_view) and on_special(id) in order; texts are not empty.
template <class OnText, class OnSpecial>
void for_each_segment(std::string_view text, const SpecialSet& specials, const OnText& on_text,
                      const OnSpecial& on_special, const std::vector<bool>* only = nullptr) {
  size_t at = 0;
  while (at < text.size()) {
    const SpecialSet::Match match = specials.find(text, at, only);
    if (match.begin > at) on_text(text.substr(at, match.begin - at));
    if (match.end > match.begin) on_special(match.id);
    at = match.end;
  }
}

}  // namespace tally
