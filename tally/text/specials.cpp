// A place is ruled out by its first byte (memchr when all names share it) and by a hash of its first four; what is left
// is looked up by bisection. The greatest name that is not greater than the text is the only one to look at, with the
// names that it starts with: whatever else the text starts with is one of those.
#include "tally/text/specials.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "tally/base/error.h"
#include "tally/text/utf8.h"
#include "tally/text/vocab.h"

namespace tally {
namespace {

size_t head_hash(const char* p, int shift) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return (v * 0x9E3779B1u) >> shift;
}

}  // namespace

SpecialSet::SpecialSet(std::vector<std::string> names, std::vector<int32_t> ids)
    : names_(std::move(names)), ids_(std::move(ids)) {
  TALLY_ASSERT(names_.size() == ids_.size());
  for (const std::string& name : names_) {
    if (name.empty()) fail("a special token is empty; give it at least one character");
    for (size_t k = 0; k < name.size();) {
      const Utf8Char c = utf8_next(name.data() + k, name.size() - k);
      if (c.status != Utf8Status::kValid) fail("special token {} is not valid UTF-8", quote_token(name));
      k += c.length;
    }
    longest_ = std::max(longest_, name.size());
  }
  order();
  filter();
}

void SpecialSet::order() {
  sorted_.resize(names_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::stable_sort(sorted_.begin(), sorted_.end(), [this](uint32_t a, uint32_t b) { return names_[a] < names_[b]; });
  std::vector<int32_t> open;  // names that each start with the one before
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const std::string& name = names_[sorted_[i]];
    if (i > 0 && names_[sorted_[i - 1]] == name) fail("special token {} is given twice", quote_token(name));
    while (!open.empty() && !name.starts_with(names_[sorted_[static_cast<size_t>(open.back())]])) open.pop_back();
    prefix_.push_back(open.empty() ? -1 : open.back());
    open.push_back(static_cast<int32_t>(i));
  }
}

void SpecialSet::filter() {
  const int bits = std::max(6, static_cast<int>(std::bit_width(names_.size())) + 5);
  head_shift_ = 32 - std::min(bits, 26);
  heads_.assign(size_t{1} << (32 - head_shift_ - 6), 0);
  std::array<uint32_t, 256> count{};
  for (const std::string& name : names_) {
    const auto first = static_cast<unsigned char>(name[0]);
    ++count[first];
    starts_[first] = true;
    if (name.size() < 4) {
      starts_short_[first] = true;
      continue;
    }
    const size_t head = head_hash(name.data(), head_shift_);
    heads_[head / 64] |= uint64_t{1} << (head % 64);
  }
  int used = 0;
  for (size_t b = 0; b < 256; ++b) {
    by_first_[b + 1] = by_first_[b] + count[b];
    if (starts_[b]) ++used, only_first_ = static_cast<int>(b);
  }
  if (used != 1) only_first_ = -1;
}

// The first place from `from` on where a name could start.
size_t SpecialSet::candidate(std::string_view text, size_t from) const {
  for (size_t i = from; i < text.size(); ++i) {
    if (only_first_ >= 0) {
      const void* hit = std::memchr(text.data() + i, only_first_, text.size() - i);
      if (hit == nullptr) return text.size();
      i = static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    } else {
      while (i < text.size() && !starts_[static_cast<unsigned char>(text[i])]) ++i;
      if (i == text.size()) return i;
    }
    if (starts_short_[static_cast<unsigned char>(text[i])]) return i;
    if (text.size() - i < 4) continue;
    const size_t head = head_hash(text.data() + i, head_shift_);
    if ((heads_[head / 64] >> (head % 64) & 1) != 0) return i;
  }
  return text.size();
}

// Index of the longest name that `rest` starts with, or -1.
int64_t SpecialSet::longest_at(std::string_view rest, const std::vector<bool>* only) const {
  const auto first = static_cast<unsigned char>(rest[0]);
  const auto begin = sorted_.begin() + by_first_[first], end = sorted_.begin() + by_first_[first + 1];
  const auto after =
      std::upper_bound(begin, end, rest, [this](std::string_view r, uint32_t index) { return r < names_[index]; });
  if (after == begin) return -1;
  auto place = static_cast<int32_t>(after - sorted_.begin()) - 1;
  for (; place >= 0; place = prefix_[static_cast<size_t>(place)]) {
    const uint32_t index = sorted_[static_cast<size_t>(place)];
    if (rest.starts_with(names_[index]) && (only == nullptr || (*only)[index])) return index;
  }
  return -1;
}

SpecialSet::Match SpecialSet::find(std::string_view text, size_t from, const std::vector<bool>* only) const {
  for (size_t i = names_.empty() ? text.size() : candidate(text, from); i < text.size(); i = candidate(text, i + 1)) {
    const int64_t found = longest_at(text.substr(i), only);
    if (found < 0) continue;
    const auto index = static_cast<size_t>(found);
    return {i, i + names_[index].size(), ids_[index], index};
  }
  return {text.size(), text.size(), -1, 0};
}

int64_t SpecialSet::index_of(std::string_view name) const {
  const auto found = std::lower_bound(sorted_.begin(), sorted_.end(), name,
                                      [this](uint32_t index, std::string_view n) { return names_[index] < n; });
  return found == sorted_.end() || names_[*found] != name ? -1 : static_cast<int64_t>(*found);
}

std::vector<std::string_view> cut_text(std::string_view text, const SpecialSet& specials, size_t target,
                                       const Pattern& pattern, const std::vector<bool>* only) {
  std::vector<std::string_view> parts;
  size_t part = 0, at = 0;
  const auto cut = [&](size_t where) {
    if (where > part) parts.push_back(text.substr(part, where - part));
    part = where;
  };
  while (at < text.size()) {
    const SpecialSet::Match match = specials.find(text, at, only);
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
