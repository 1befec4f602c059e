// Text is cut where a character stands that neither combines nor changes; what lies between two such places and holds
// others is decomposed, put in the order of combining classes and composed again (UAX 15; Hangul: Unicode 3.12).
#include "tally/text/nfc.h"

#include <algorithm>
#include <vector>

#include "tally/text/nfc_tables.h"
#include "tally/text/utf8.h"

namespace tally {
namespace {

constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kVowelCount = 21, kTailCount = 28, kLeadCount = 19, kSyllableCount = 19 * 21 * 28;
// No character below the first of these, and none from the second to the third, combines or changes.
constexpr uint32_t kFirstMark = 0x300, kIdeographs = 0x3400, kIdeographsEnd = 0xA000;

struct Mark {
  uint32_t code_point;
  uint32_t combining;  // class
};

uint32_t properties(uint32_t code_point) {
  if (code_point < kFirstMark || (code_point >= kIdeographs && code_point < kIdeographsEnd)) return 0;
  const uint32_t* end = kNfcRuns + kNfcRunsCount;
  const uint32_t* run = std::upper_bound(kNfcRuns, end, code_point * 512 + 511);
  return run == kNfcRuns ? 0 : run[-1] & 511;
}

void decompose(uint32_t c, std::vector<Mark>& out) {
  const auto add = [&out](uint32_t part) { out.push_back({part, properties(part) / 2}); };
  if (c - kSyllables < kSyllableCount) {
    const uint32_t i = c - kSyllables;
    add(kLeads + i / (kVowelCount * kTailCount));
    add(kVowels + i / kTailCount % kVowelCount);
    if (i % kTailCount != 0) add(kTails + i % kTailCount);
    return;
  }
  const uint32_t* found = std::lower_bound(kNfcDecomposed, kNfcDecomposed + kNfcDecomposedCount, c);
  if (found == kNfcDecomposed + kNfcDecomposedCount || *found != c) return add(c);
  const auto i = found - kNfcDecomposed;
  for (size_t k = kNfcStarts[i]; k < kNfcStarts[i + 1]; ++k) add(kNfcText[k]);
}

// What the two become, or 0.
uint32_t compose(uint32_t first, uint32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount)
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 && second > kTails &&
      second < kTails + kTailCount)
    return first + (second - kTails);
  const uint64_t pair = (uint64_t{first} << 32) | second;
  const uint64_t* found = std::lower_bound(kNfcPairs, kNfcPairs + kNfcPairsCount, pair);
  return found == kNfcPairs + kNfcPairsCount || *found != pair ? 0 : kNfcComposed[found - kNfcPairs];
}

// The part of valid UTF-8, normalised.
void append_normalised(std::string_view part, std::string& out) {
  std::vector<Mark> marks;
  for (size_t i = 0; i < part.size();) {
    const Utf8Char c = utf8_next(part.data() + i, part.size() - i);
    decompose(c.code_point, marks);
    i += c.length;
  }
  for (size_t i = 0; i < marks.size();) {
    size_t end = i + 1;
    while (marks[i].combining != 0 && end < marks.size() && marks[end].combining != 0) ++end;
    std::stable_sort(marks.begin() + static_cast<ptrdiff_t>(i), marks.begin() + static_cast<ptrdiff_t>(end),
                     [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    i = end;
  }
  size_t kept = 0, starter = marks.size();  // of marks: those that stay, and the one that others join
  for (size_t i = 0; i < marks.size(); ++i) {
    const Mark mark = marks[i];
    // A character between the two with the same class, or with class 0, keeps them apart.
    const bool apart = starter >= kept || (kept - 1 > starter && (marks[kept - 1].combining >= mark.combining));
    const uint32_t joined = apart ? 0 : compose(marks[starter].code_point, mark.code_point);
    if (joined != 0) {
      marks[starter].code_point = joined;
      continue;
    }
    if (mark.combining == 0) starter = kept;
    marks[kept++] = mark;
  }
  for (size_t i = 0; i < kept; ++i) append_utf8(marks[i].code_point, out);
}

// The next part [begin, end) at or after `from` that has to be looked at; begin == size when there is none.
struct Part {
  size_t begin, end;
};
Part next_part(std::string_view text, size_t from) {
  size_t last = from;  // start of the last character that neither combines nor changes
  for (size_t i = from; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      last = i++;
      continue;
    }
    const auto open = [&text](size_t at, uint32_t& length) {
      const Utf8Char c = utf8_next(text.data() + at, text.size() - at);
      length = c.length;
      return c.status == Utf8Status::kValid && properties(c.code_point) != 0;
    };
    uint32_t length = 0;
    if (!open(i, length)) {
      last = i, i += length;
      continue;
    }
    do i += length;
    while (i < text.size() && open(i, length));
    return {last, i};
  }
  return {text.size(), text.size()};
}

}  // namespace

std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Part part = next_part(text, at);
    out += text.substr(at, part.begin - at);
    // What starts the part may be broken bytes, which stay.
    size_t begin = part.begin;
    if (begin < part.end && utf8_next(text.data() + begin, part.end - begin).status != Utf8Status::kValid) {
      const uint32_t length = utf8_next(text.data() + begin, part.end - begin).length;
      out += text.substr(begin, length);
      begin += length;
    }
    append_normalised(text.substr(begin, part.end - begin), out);
    at = part.end;
  }
  return out;
}

size_t nfc_settled(std::string_view text) {
  for (size_t at = text.size(); at > 0;) {
    --at;
    if ((static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80) continue;  // inside a character
    const Utf8Char c = utf8_next(text.data() + at, text.size() - at);
    if (c.status == Utf8Status::kIncomplete) continue;
    if (c.status == Utf8Status::kInvalid || properties(c.code_point) == 0) return at;
  }
  return 0;
}

bool is_nfc(std::string_view text) {
  std::string normal;
  for (size_t at = 0; at < text.size();) {
    const Part part = next_part(text, at);
    normal.clear();
    const std::string_view given = text.substr(part.begin, part.end - part.begin);
    const bool broken = !given.empty() && utf8_next(given.data(), given.size()).status != Utf8Status::kValid;
    const std::string_view valid = broken ? given.substr(utf8_next(given.data(), given.size()).length) : given;
    append_normalised(valid, normal);
    if (normal != valid) return false;
    at = part.end;
  }
  return true;
}

}  // namespace tally
