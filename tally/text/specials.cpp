// A candidate is found by its first byte (memchr when all names share it), then by one hash look-up a length.
#include "tally/text/specials.h"

#include <algorithm>
#include <cstring>

#include "tally/base/error.h"
#include "tally/text/utf8.h"
#include "tally/text/vocab.h"

namespace tally {

SpecialSet::SpecialSet(std::vector<std::string> names, std::vector<int32_t> ids)
    : names_(std::move(names)), ids_(std::move(ids)) {
  TALLY_ASSERT(names_.size() == ids_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    const std::string& name = names_[i];
    if (name.empty()) fail("a special token is empty; give it at least one character");
    for (size_t k = 0; k < name.size();) {
      const Utf8Char c = utf8_next(name.data() + k, name.size() - k);
      if (c.status != Utf8Status::kValid) fail("special token {} is not valid UTF-8", quote_token(name));
      k += c.length;
    }
    if (!index_.emplace(name, i).second) fail("special token {} is given twice", quote_token(name));
    std::vector<size_t>& lengths = lengths_[static_cast<unsigned char>(name[0])];
    if (std::find(lengths.begin(), lengths.end(), name.size()) == lengths.end()) lengths.push_back(name.size());
    longest_ = std::max(longest_, name.size());
  }
  int used = 0;
  for (int b = 0; b < 256; ++b) {
    std::vector<size_t>& lengths = lengths_[static_cast<size_t>(b)];
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    if (!lengths.empty()) ++used, only_first_ = b;
  }
  if (used != 1) only_first_ = -1;
}

SpecialSet::Match SpecialSet::find(std::string_view text, size_t from) const {
  const Match none{text.size(), text.size(), -1};
  if (names_.empty()) return none;
  for (size_t i = from; i < text.size(); ++i) {
    if (only_first_ >= 0) {
      const void* hit = std::memchr(text.data() + i, only_first_, text.size() - i);
      if (hit == nullptr) return none;
      i = static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    }
    for (const size_t length : lengths_[static_cast<unsigned char>(text[i])]) {
      if (length > text.size() - i) continue;
      const auto found = index_.find(text.substr(i, length));
      if (found != index_.end()) return {i, i + length, ids_[found->second]};
    }
  }
  return none;
}

int64_t SpecialSet::index_of(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? -1 : static_cast<int64_t>(found->second);
}

std::vector<std::string_view> cut_text(std::string_view text, const SpecialSet& specials, size_t target,
                                       const Pattern& pattern) {
  std::vector<std::string_view> parts;
  size_t part = 0, at = 0;
  const auto cut = [&](size_t where) {
    if (where > part) parts.push_back(text.substr(part, where - part));
    part = where;
  };
  while (at < text.size()) {
    const SpecialSet::Match match = specials.find(text, at);
    while (match.begin - part > target) {
      // Borders inside the segment only: its own start is one, and so is the special token after it.
      const std::string_view segment = text.substr(at, match.begin - at);
      const size_t wanted = part + target;
      cut(wanted <= at ? at : at + pattern.next_safe_border(segment, wanted - at));
      if (part == match.begin) break;
    }
    at = match.end;
  }
  cut(text.size());
  return parts;
}

}  // namespace tally
