// Conformance with published vocabularies and merge lists; needs the optional development data.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include <xxhash.h>

#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/text/pattern.h"
#include "tally/text/tokenizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;
constexpr const char* kEnd = "<|endoftext|>";

Json read_json(const fs::path& path) { return Json::parse(read_file(path), path.string()); }

Ids to_ids(const Json& json) {
  Ids ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

Tokenizer gpt2(const fs::path& vocab) {
  const test::TempFolder folder;
  write_file_atomic(folder / "vocab.json", read_file(vocab));
  write_file_atomic(folder / "merges.txt", read_file(vocab.parent_path() / "gpt2_merges.txt"));
  return Tokenizer::load(folder.path());
}

Tokenizer train_file(const fs::path& file, int64_t vocab_size) {
  return train_tokenizer_files({TokenizerKind::kBpe, vocab_size, {kEnd}, BpeTie::kGreatestBytes}, {&file, 1});
}

// The merges of a folder that was saved, without the version line.
std::string saved_merges(const Tokenizer& tokenizer) {
  const test::TempFolder folder;
  tokenizer.save(folder.path());
  std::string text = read_file(folder / "merges.txt");
  const std::string version = "#version: 0.2\n";
  EXPECT_EQ(text.substr(0, version.size()), version);
  return text.substr(version.size());
}

TEST(ReferenceData, CorpusEnGivesTheReferenceMergesAndVocabularyInTime) {
  TALLY_SHARED_FILE(corpus, "cs336/a1/corpus.en");
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    train_file(corpus, 500);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("seconds", std::to_string(best));
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_LE(best, 0.38);
#endif
  const Tokenizer tokenizer = train_file(corpus, 500);
  EXPECT_EQ(tokenizer.vocab_size(), 500);
  std::string expected = read_file(corpus.parent_path() / "train-bpe-reference-merges.txt");
  if (expected.back() != '\n') expected += '\n';
  EXPECT_EQ(saved_merges(tokenizer), expected);
  EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), 243);
  const test::TempFolder folder;
  tokenizer.save(folder.path());
  const Json vocab = read_json(folder / "vocab.json");
  const Json reference = read_json(corpus.parent_path() / "train-bpe-reference-vocab.json");
  ASSERT_EQ(vocab.as_object().size(), reference.as_object().size());
  for (const auto& [token, id] : reference.as_object()) EXPECT_EQ(vocab.at(token).as_int(), id.as_int()) << token;
}

void expect_merges(const Tokenizer& tokenizer, const Json& merges_hex) {
  std::string expected;
  for (const Json& pair : merges_hex.as_array())
    expected += bytes_to_printable(from_hex(pair.as_array()[0].as_string())) + " " +
                bytes_to_printable(from_hex(pair.as_array()[1].as_string())) + "\n";
  EXPECT_EQ(saved_merges(tokenizer), expected);
}

TEST(ReferenceData, TinyStories400Merges) {
  TALLY_SHARED_FILE(expected, "cs336/a1/bpe_expected_tinystories_400.json");
  expect_merges(train_file(expected.parent_path() / "tinystories_sample.txt", 400),
                read_json(expected).at("merges_hex"));
}

TEST(ReferenceData, CorpusExpectedTrainings) {
  TALLY_SHARED_FILE(expected, "corpus/tokenizer/expected.json");
  const fs::path root = expected.parent_path().parent_path();
  const Json json = read_json(expected);
  ASSERT_FALSE(json.at("train").as_array().empty());
  for (const Json& training : json.at("train").as_array()) {
    std::vector<fs::path> files;
    for (const Json& file : training.at("files").as_array()) files.push_back(root / file.as_string());
    TokenizerSpec spec{TokenizerKind::kBpe, training.at("vocab_size").as_int(), {}, BpeTie::kGreatestBytes};
    for (const Json& special : training.at("specials").as_array()) spec.specials.push_back(special.as_string());
    expect_merges(train_tokenizer_files(spec, files), training.at("merges_hex"));
  }
}

// C01, C02, C05 and the strings and files of CS336's tests.
TEST(ReferenceData, Gpt2IdsOfCasesC01C02C05) {
  TALLY_SHARED_FILE(vocab, "cs336/a1/gpt2_vocab.json");
  const Tokenizer t = gpt2(vocab);
  EXPECT_EQ(t.vocab_size(), 50257);
  EXPECT_EQ(t.special_id(kEnd), 50256);
  EXPECT_EQ(t.encode("Hello, how are you?"), (Ids{15496, 11, 703, 389, 345, 30}));
  EXPECT_EQ(
      t.encode("H\xC3\xA9ll\xC3\xB2 h\xC3\xB4w <|endoftext|><|endoftext|> are \xC3\xBC? \xF0\x9F\x99\x83<|endoftext|>"),
      (Ids{39, 2634, 297, 127, 110, 289, 27083, 86, 220, 50256, 50256, 389, 6184, 120, 30, 12520, 247, 225, 50256}));
  const Json expected = read_json(vocab.parent_path() / "gpt2_expected_ids.json");
  for (const Json& s : expected.at("strings").as_array())
    EXPECT_EQ(t.encode(s.at("text").as_string()), to_ids(s.at("ids"))) << s.at("text").as_string();
  for (const auto& [name, ids] : expected.at("files").as_object()) {
    const std::string text = read_file(vocab.parent_path() / name);
    EXPECT_EQ(t.encode(text, true), to_ids(ids.at("with_special"))) << name;
    EXPECT_EQ(t.encode(text, false), to_ids(ids.at("without_special"))) << name;
  }
  EXPECT_EQ(t.encode(read_file(vocab.parent_path() / "address.txt")).size(), 320u);
  const std::string stories = read_file(vocab.parent_path() / "tinystories_sample.txt");
  EXPECT_EQ(t.encode(stories).size(), 923u);
  EXPECT_EQ(t.encode(stories, false).size(), 953u);
}

TEST(ReferenceData, Gpt2OverlappingSpecialsOfCaseC04) {
  TALLY_SHARED_FILE(vocab, "cs336/a1/gpt2_vocab.json");
  const Tokenizer t = gpt2(vocab).with_specials({kEnd, "<|endoftext|><|endoftext|>"});
  const std::string text = "Hello, how <|endoftext|><|endoftext|> are you?<|endoftext|>";
  const Ids ids = t.encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 50257), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 50256), 1);
  EXPECT_EQ(t.decode(ids), text);
}

TEST(ReferenceData, Gpt2SpecialTokenDoubleNewlines) {
  TALLY_SHARED_FILE(file, "cs336/a1/special_token_double_newlines_non_whitespace.txt");
  const Tokenizer t = gpt2(file.parent_path() / "gpt2_vocab.json");
  EXPECT_EQ(t.encode(read_file(file)), (Ids{50256, 198, 198, 33407, 0}));
}

TEST(ReferenceData, Gpt2SplitsAndIdsOfTheCorpus) {
  TALLY_SHARED_FILE(expected, "corpus/tokenizer/expected.json");
  const Tokenizer t = gpt2(expected.parent_path() / "gpt2_vocab.json");
  const Json json = read_json(expected);
  for (const Json& s : json.at("strings").as_array()) {
    const std::string& text = s.at("text").as_string();
    std::vector<std::string> pieces, reference;
    for_each_piece(Pattern(), text, [&pieces](std::string_view piece) { pieces.emplace_back(piece); });
    for (const Json& piece : s.at("split").at("gpt2").as_array()) reference.push_back(piece.as_string());
    EXPECT_EQ(pieces, reference) << text;
    EXPECT_EQ(t.encode(text, false), to_ids(s.at("gpt2"))) << text;
  }
  for (const auto& [name, by_kind] : json.at("files").as_object()) {
    const Json& want = by_kind.at("gpt2");
    const Ids ids = t.encode(read_file(expected.parent_path().parent_path() / name), false);
    ASSERT_EQ(static_cast<int64_t>(ids.size()), want.at("n").as_int()) << name;
    const Ids first = to_ids(want.at("first")), last = to_ids(want.at("last"));
    EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin())) << name;
    EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), ids.rbegin())) << name;
  }
}

TEST(ReferenceData, EveryCorpusFileRoundTrips) {
  TALLY_SHARED_FILE(readme, "corpus/README.md");
  const Tokenizer t = gpt2(readme.parent_path() / "tokenizer" / "gpt2_vocab.json");
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(readme.parent_path())) {
    if (!entry.is_regular_file()) continue;
    const std::string bytes = read_file(entry.path());
    const Ids ids = t.encode(bytes);
    ASSERT_EQ(t.decode(ids), bytes) << entry.path();
    ASSERT_EQ(t.encode_parallel(bytes), ids) << entry.path();
    Ids streamed;
    StreamEncoder stream(t);
    for (size_t i = 0; i < bytes.size(); i += 4096) stream.push(std::string_view(bytes).substr(i, 4096), streamed);
    stream.finish(streamed);
    ASSERT_EQ(streamed, ids) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 300);
}

}  // namespace
}  // namespace tally
