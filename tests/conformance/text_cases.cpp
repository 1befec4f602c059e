// Tokenizers: GPT-2's ids (C01, C02, C04, C05, C12), training (C07, C08), the handout's vocabulary (C09).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tally/base/file.h"
#include "tally/text/bpe_train.h"
#include "tally/text/tokenizer.h"
#include "tests/conformance/cases.h"
#include "tests/support/support.h"

namespace tally::conformance {
namespace {

namespace fs = std::filesystem;

using Ids = std::vector<int32_t>;
constexpr const char* kEnd = "<|endoftext|>";

fs::path data(const char* name) { return test::shared_file(std::string("cs336/a1/") + name); }

// A tokenizer folder of two files as published.
Tokenizer from_files(const std::string& vocab, const std::string& merges) {
  const test::TempFolder folder;
  write_file_atomic(folder / "vocab.json", vocab);
  write_file_atomic(folder / "merges.txt", merges);
  return Tokenizer::load(folder.path());
}
Tokenizer gpt2() { return from_files(read_file(data("gpt2_vocab.json")), read_file(data("gpt2_merges.txt"))); }

Ids ids_of(const Json& json) {
  Ids ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

void c01(const Json& expect) { EXPECT_EQ(gpt2().encode("Hello, how are you?"), ids_of(expect)); }

void c02(const Json& expect) {
  EXPECT_EQ(gpt2().encode("H\xC3\xA9ll\xC3\xB2 h\xC3\xB4w <|endoftext|><|endoftext|> are \xC3\xBC? "
                          "\xF0\x9F\x99\x83<|endoftext|>"),
            ids_of(expect));
}

void c04(const Json& expect) {
  EXPECT_EQ(expect.as_string(), "double special is ONE token, single appears once, decode round-trips");
  const Tokenizer t = gpt2().with_specials({kEnd, "<|endoftext|><|endoftext|>"});
  const std::string text = "Hello, how <|endoftext|><|endoftext|> are you?<|endoftext|>";
  const Ids ids = t.encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 50257), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 50256), 1);
  EXPECT_EQ(t.decode(ids), text);
}

void c05(const Json& expect) {
  const Tokenizer t = gpt2();
  const std::string address = read_file(data("address.txt")), stories = read_file(data("tinystories_sample.txt"));
  EXPECT_EQ(t.encode(address).size(), static_cast<size_t>(expect.as_array()[0].as_int()));
  const Json::Array& both = expect.as_array()[1].as_array();
  EXPECT_EQ(t.encode(stories).size(), static_cast<size_t>(both[0].as_int()));
  EXPECT_EQ(t.encode(stories, false).size(), static_cast<size_t>(both[1].as_int()));
}

void c07(const Json& expect) {
  EXPECT_TRUE(expect.as_string().starts_with("243 merges == train-bpe-reference-merges.txt in order; 500-entry vocab"));
  const fs::path corpus = data("corpus.en");
  const Tokenizer t = train_tokenizer_files({TokenizerKind::kBpe, 500, {kEnd}, BpeTie::kGreatestBytes}, {&corpus, 1});
  EXPECT_EQ(t.vocab_size(), 500);
  const test::TempFolder folder;
  t.save(folder.path());
  std::string merges = read_file(folder / "merges.txt"), want = read_file(data("train-bpe-reference-merges.txt"));
  if (want.back() != '\n') want += '\n';
  EXPECT_EQ(std::count(want.begin(), want.end(), '\n'), 243);
  EXPECT_EQ(merges.substr(merges.find('\n') + 1), want);
  // Keys as sets: the numbering is free.
  const auto keys = [](const fs::path& vocab) {
    const Json json = Json::parse(read_file(vocab), vocab.string());
    std::set<std::string> all;
    for (const auto& [token, id] : json.as_object()) all.insert(token);
    return all;
  };
  EXPECT_EQ(keys(folder / "vocab.json"), keys(data("train-bpe-reference-vocab.json")));
}

// The handout's corpus: words split at white space, their parts without the space.
void c08(const Json& expect) {
  const std::vector<WordCount> words = {{"low", 5}, {"lower", 2}, {"widest", 3}, {"newest", 6}};
  BpeTrainOptions options;
  options.max_merges = 12;
  const BpeTrained t = train_bpe(WordList{words, {}}, options);
  std::string merges;
  for (const auto& [a, b] : t.merges)
    merges += (merges.empty() ? "" : ", ") + std::string(t.tokens[a]) + " " + std::string(t.tokens[b]);
  EXPECT_EQ(merges, expect.as_string());
}

// The handout's twelve entries: bytes and what its six merges make, in its order; " " is U+0120 in the file.
void c09(const Json& expect) {
  const Tokenizer t = from_files(R"({"Ġ":0,"a":1,"c":2,"e":3,"h":4,"t":5,"th":6,"Ġc":7,"Ġa":8,"the":9,"Ġat":10})",
                                 "#version: 0.2\nt h\nĠ c\nĠ a\nth e\nĠa t\n");
  EXPECT_EQ(t.encode("the cat ate"), ids_of(expect));
}

// Code points, bytes, least vocabulary of characters (the largest code point and one more), GPT-2's tokens, bytes a
// token.
void c12(const Json& expect) {
  const std::string text = "Hello, \xF0\x9F\x8C\x8D! \xE4\xBD\xA0\xE5\xA5\xBD!";
  int64_t points = 0, largest = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(std::string_view(text).substr(i));
    int64_t point = n == 1 ? text[i] : static_cast<unsigned char>(text[i]) & (0xFF >> (n + 1));
    for (size_t j = 1; j < n; ++j) point = point << 6 | (static_cast<unsigned char>(text[i + j]) & 0x3F);
    largest = std::max(largest, point);
    ++points;
    i += n;
  }
  const Tokenizer bytes;
  const Tokenizer characters =
      train_tokenizer({TokenizerKind::kChar, 0, {}, BpeTie::kGreatestBytes}, std::vector<std::string_view>{text});
  EXPECT_EQ(static_cast<int64_t>(characters.encode(text).size()), points);
  const double n_bytes = static_cast<double>(bytes.encode(text).size());
  const double n_gpt2 = static_cast<double>(gpt2().encode(text).size());
  expect_numbers({static_cast<double>(points), n_bytes, static_cast<double>(largest + 1), n_gpt2, n_bytes / n_gpt2},
                 numbers(expect), 1e-3);
}

}  // namespace

std::vector<Case> text_cases() {
  return {{"C01", c01}, {"C02", c02}, {"C04", c04}, {"C05", c05},
          {"C07", c07}, {"C08", c08}, {"C09", c09}, {"C12", c12}};
}

}  // namespace tally::conformance
