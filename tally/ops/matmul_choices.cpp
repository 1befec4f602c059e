// A line: "KEY... : ALGORITHM... = CHECK": decimal numbers, eight words and a checksum of what stands before it in
// hexadecimal.
#include "tally/ops/matmul_choices.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "tally/base/error.h"
#include "tally/core/hardware.h"

namespace tally {

namespace {

constexpr const char* kBeforeAlgorithm = " :";
constexpr const char* kBeforeCheck = " = ";

std::string text_of(std::span<const int64_t> key) {
  std::string text;
  for (const int64_t k : key) text += (text.empty() ? "" : " ") + std::to_string(k);
  return text;
}

uint64_t checksum(std::string_view text) {  // FNV-1a
  uint64_t sum = 0xCBF29CE484222325u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return sum;
}

// A whole hexadecimal number.
bool number_of(std::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

MatmulChoices::MatmulChoices(fs::path file) : file_(std::move(file)) { read(); }

std::optional<MatmulChoices::Line> MatmulChoices::parsed(std::string_view text) {
  const size_t check = text.rfind(kBeforeCheck), words = text.find(kBeforeAlgorithm);
  uint64_t sum = 0;
  if (check == std::string_view::npos || words == std::string_view::npos || words > check ||
      !number_of(text.substr(check + 3), sum) || sum != checksum(text.substr(0, check)))
    return std::nullopt;
  Line line{std::string(text.substr(0, words)), {}};
  std::string_view rest = text.substr(words + 2, check - words - 2);
  for (uint64_t& word : line.algorithm) {
    if (rest.empty() || rest[0] != ' ') return std::nullopt;
    rest.remove_prefix(1);
    const std::string_view one = rest.substr(0, rest.find(' '));
    if (!number_of(one, word)) return std::nullopt;
    rest.remove_prefix(one.size());
  }
  if (!rest.empty()) return std::nullopt;
  return line;
}

void MatmulChoices::read() {
  lines_.clear();
  std::string text;
  try {
    text = read_file(file_);
  } catch (const Error&) {
    return;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (std::optional<Line> line = parsed(std::string_view(text).substr(at, end - at))) lines_.push_back(*line);
    at = end + 1;
  }
}

std::optional<MatmulChoices::Algorithm> MatmulChoices::find(std::span<const int64_t> key) const {
  const std::string wanted = text_of(key);
  for (const Line& line : lines_)
    if (line.key == wanted) return line.algorithm;
  return std::nullopt;
}

void MatmulChoices::keep(std::span<const int64_t> key, const Algorithm& algorithm) {
  const std::vector<Line> own = lines_;
  read();
  if (lines_.empty()) lines_ = own;  // the file went away: what is known stays known
  const std::string name = text_of(key);
  std::erase_if(lines_, [&](const Line& line) { return line.key == name; });
  if (lines_.size() >= kMost) lines_.erase(lines_.begin(), lines_.end() - (kMost - 1));
  lines_.push_back({name, algorithm});
  std::string text;
  for (const Line& line : lines_) {
    std::string one = line.key + kBeforeAlgorithm;
    for (const uint64_t word : line.algorithm) one += fmt::format(" {:x}", word);
    text += fmt::format("{}{}{:x}\n", one, kBeforeCheck, checksum(one));
  }
  try {
    make_folder(file_.parent_path());
    write_file_atomic(file_, text);
  } catch (const Error&) {
  }
}

fs::path matmul_choices_path(const std::string& card, uint64_t library_version) {
  std::string name = card;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return cache_folder() / fmt::format("matmul-{}-{}.txt", name, library_version);
}

bool matmul_search_wanted() {
  const char* const wanted = std::getenv("TALLY_MATMUL_SEARCH");
  return wanted == nullptr || std::string_view(wanted) != "0";
}

}  // namespace tally
