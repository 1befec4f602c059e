// tally tokenizer info FILE... --text F: tokenizers side by side on the same text. Of each: entries, tokens, bytes a
// token, how much of the text it does not know, how much of the vocabulary the text uses, the speed of one thread, the
// longest entries; of characters also how sparse a vocabulary by code point would be.
#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "cli/files.h"
#include "cli/inspect.h"
#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/base/json.h"
#include "tally/text/pattern.h"
#include "tally/text/tokenizer.h"
#include "tally/text/utf8.h"
#include "tally/text/word.h"
#include "tally/train/report.h"

namespace tally::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Text {
  std::vector<std::string> files;  // each a text of its own
  int64_t bytes = 0, characters = 0;
};

Text read_texts(const std::vector<std::string>& patterns) {
  Text text;
  for (const fs::path& path : expand_inputs(patterns)) {
    text.files.push_back(read_file(path == "-" ? fs::path("/dev/stdin") : path));
    const std::string& t = text.files.back();
    for (size_t at = 0; at < t.size(); at += utf8_next(t.data() + at, t.size() - at).length) ++text.characters;
    text.bytes += static_cast<int64_t>(t.size());
  }
  if (text.bytes == 0) fail("--text: holds nothing");
  return text;
}

struct Info {
  std::string name, kind, pattern;
  int64_t entries = 0, specials = 0;
  int64_t tokens = 0, used = 0, unknown = 0;  // of the text; unknown: characters (char) or tokens (word)
  double unknown_rate = 0, bytes_per_token = 0, megabytes_per_second = 0;
  int64_t range = 0;  // char: the largest code point and one more, what a vocabulary by code point needs
  std::vector<std::pair<std::string, int32_t>> longest;
};

// The text without the characters that a character tokenizer does not know, and how many they are.
std::pair<std::string, int64_t> known_characters(const Tokenizer& t, std::string_view text) {
  std::unordered_set<std::string_view> known;
  for (int32_t id = 0; id < t.vocab_size(); ++id) known.insert(t.token_bytes(id));
  std::string out;
  int64_t unknown = 0;
  for (size_t at = 0, n = 0; at < text.size(); at += n) {
    n = utf8_next(text.data() + at, text.size() - at).length;
    if (known.contains(text.substr(at, n)))
      out.append(text, at, n);
    else
      ++unknown;
  }
  return {std::move(out), unknown};
}

// The five longest entries; special tokens, which nobody learned, are left out.
std::vector<std::pair<std::string, int32_t>> longest_entries(const Tokenizer& t) {
  std::unordered_set<int32_t> special;
  for (const auto& [name, id] : t.specials()) special.insert(id);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < t.vocab_size(); ++id)
    if (!special.contains(id)) ids.push_back(id);
  const size_t n = std::min<size_t>(ids.size(), 5);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n), ids.end(), [&](int32_t a, int32_t b) {
    const size_t x = t.token_bytes(a).size(), y = t.token_bytes(b).size();
    return x != y ? x > y : a < b;
  });
  std::vector<std::pair<std::string, int32_t>> longest;
  for (size_t i = 0; i < n; ++i) longest.emplace_back(t.decode_text({&ids[i], 1}), ids[i]);
  return longest;
}

void measure(const Tokenizer& t, const Text& text, double seconds, Info& info) {
  std::vector<std::string> known;
  const std::vector<std::string>* files = &text.files;
  if (t.kind() == TokenizerKind::kChar) {
    for (const std::string& file : text.files) {
      auto [rest, unknown] = known_characters(t, file);
      known.push_back(std::move(rest)), info.unknown += unknown;
    }
    files = &known;
    info.unknown_rate = static_cast<double>(info.unknown) / static_cast<double>(text.characters);
  }
  std::vector<int32_t> ids;
  int64_t encoded = 0;
  double spent = 0;
  std::vector<double> rates;
  do {
    ids.clear(), encoded = 0;
    const auto start = Clock::now();
    for (const std::string& file : *files)
      t.encode_append(file, ids, false), encoded += static_cast<int64_t>(file.size());
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    rates.push_back(static_cast<double>(encoded) / std::max(took, 1e-9) / 1e6), spent += took;
  } while (spent < seconds);
  std::nth_element(rates.begin(), rates.begin() + static_cast<ptrdiff_t>(rates.size() / 2), rates.end());
  info.megabytes_per_second = rates[rates.size() / 2];
  info.tokens = static_cast<int64_t>(ids.size());
  info.bytes_per_token = static_cast<double>(encoded) / static_cast<double>(std::max<size_t>(ids.size(), 1));
  if (const std::optional<int32_t> unknown = t.special_id(kUnknownWord); unknown && t.kind() == TokenizerKind::kWord) {
    info.unknown = std::count(ids.begin(), ids.end(), *unknown);
    info.unknown_rate = static_cast<double>(info.unknown) / static_cast<double>(std::max<size_t>(ids.size(), 1));
  }
  std::sort(ids.begin(), ids.end());
  info.used = std::unique(ids.begin(), ids.end()) - ids.begin();
}

Info look_at(const std::string& name, const Text& text, double seconds) {
  const Tokenizer t = Tokenizer::load(name);
  Info info;
  info.name = name, info.kind = tokenizer_kind_name(t.kind());
  info.pattern = t.kind() == TokenizerKind::kBpe || t.kind() == TokenizerKind::kWord ? t.pattern().name() : "";
  info.entries = t.vocab_size(), info.specials = static_cast<int64_t>(t.specials().size());
  info.longest = longest_entries(t);
  if (t.kind() == TokenizerKind::kChar)
    for (int32_t id = 0; id < t.vocab_size(); ++id)
      if (const std::string_view c = t.token_bytes(id); !t.special_id(c))
        info.range = std::max<int64_t>(info.range, utf8_next(c.data(), c.size()).code_point + 1);
  if (text.bytes > 0) measure(t, text, seconds, info);
  return info;
}

Json json_of(const Info& i, bool with_text) {
  Json json = Json::object();
  json.set("tokenizer", i.name).set("kind", i.kind);
  if (!i.pattern.empty()) json.set("pattern", i.pattern);
  json.set("entries", i.entries).set("special_tokens", i.specials);
  if (with_text)
    json.set("tokens", i.tokens)
        .set("bytes_per_token", i.bytes_per_token)
        .set("unknown", i.unknown)
        .set("unknown_rate", i.unknown_rate)
        .set("entries_used", i.used)
        .set("megabytes_per_second", i.megabytes_per_second);
  if (i.range > 0) json.set("code_point_range", i.range);
  Json longest = Json::array();
  for (const auto& [text, id] : i.longest) longest.push_back(Json::object().set("id", int64_t{id}).set("text", text));
  return json.set("longest", longest);
}

std::string percent(double rate) { return rate == 0 ? "0" : fmt::format("{:.3g}%", rate * 100); }

// One line of a token that may hold anything.
std::string shown(const std::string& text) {
  const std::string quoted = Json(text.substr(0, 40)).dump();
  return quoted + (text.size() > 40 ? "..." : "");
}

std::string table_of(const std::vector<Info>& all, const Text& text) {
  std::vector<std::vector<std::string>> rows = {{"tokenizer", "kind", "pattern", "entries"}}, longest;
  if (text.bytes > 0)
    for (const char* name : {"tokens", "bytes/token", "unknown", "entries used", "MB/s"}) rows[0].push_back(name);
  std::string sparse;
  for (const Info& i : all) {
    rows.push_back({i.name, i.kind, i.pattern.empty() ? "-" : i.pattern.substr(0, 20), with_commas(i.entries)});
    if (text.bytes > 0)
      for (std::string& cell : std::vector<std::string>{
               with_commas(i.tokens), fmt::format("{:.2f}", i.bytes_per_token), percent(i.unknown_rate),
               percent(static_cast<double>(i.used) / static_cast<double>(std::max<int64_t>(i.entries, 1))),
               fmt::format("{:.1f}", i.megabytes_per_second)})
        rows.back().push_back(std::move(cell));
    if (i.range > 0)
      sparse += fmt::format("{}: a vocabulary by code point would have {} entries, of which these {} are {}\n", i.name,
                            with_commas(i.range), with_commas(i.entries - i.specials),
                            percent(static_cast<double>(i.entries - i.specials) / static_cast<double>(i.range)));
    std::string line;
    for (const auto& [token, id] : i.longest) line += (line.empty() ? "" : ", ") + shown(token);
    longest.push_back({i.name, line});
  }
  std::string out;
  if (text.bytes > 0)
    out = fmt::format("{} bytes, {} characters\n", with_commas(text.bytes), with_commas(text.characters));
  return out + columns_text(rows, 99) + sparse + "longest entries\n" + columns_text(longest, 99);
}

struct TokenizerInfo {
  std::vector<std::string> tokenizers, text;
  bool json = false;
  double seconds = 0.3;

  static constexpr const char* kPositional = "tokenizers";
  static constexpr const char* kDetails =
      "Compares tokenizers. With --text: tokens, bytes a token, the share of characters (char) or tokens (word) that "
      "the\n"
      "vocabulary does not know, the share of its entries that the text uses, and the speed of one thread. Special\n"
      "tokens in the text are ordinary text here.";

  void fields(Fields& f) {
    f("tokenizers", tokenizers, "folders or files of tokenizers");
    f("text", text, "text files, patterns, or - for standard input");
    f("seconds", seconds, "time to measure the speed of each", 0.0, 3600.0);
    f("json", json, "a JSON line a tokenizer instead of the table");
  }

  int run() {
    if (tokenizers.empty()) fail("no tokenizer; name the folder or file of one, or of several");
    const Text read = text.empty() ? Text() : read_texts(text);
    std::vector<Info> all;
    for (const std::string& name : tokenizers) all.push_back(look_at(name, read, seconds));
    if (json)
      for (const Info& i : all) fmt::print("{}\n", json_of(i, read.bytes > 0).dump());
    else
      fmt::print("{}", table_of(all, read));
    return 0;
  }
};

}  // namespace

Verb tokenizer_info_verb() { return make_verb<TokenizerInfo>("tokenizer info", "compare tokenizers on a text"); }

}  // namespace tally::cli
