// Published vocabularies in every format; needs the optional development data.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/text/tokenizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;

Ids to_ids(const Json& json) {
  Ids ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

// The .tiktoken file out of its .gz, in the folder.
fs::path unpacked(const fs::path& data, const std::string& name, const test::TempFolder& folder) {
  const fs::path out = folder / (name + ".tiktoken");
  const std::string packed = (data / (name + ".tiktoken.gz")).string();
  const std::string command = "gzip -dc '" + packed + "' > '" + out.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return out;
}

Tokenizer timed_load(const fs::path& path, const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  Tokenizer t = Tokenizer::load(path);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  testing::Test::RecordProperty("seconds_" + name, std::to_string(seconds));
  return t;
}

void expect_ids(const Tokenizer& t, const Json& expected, const fs::path& root, const std::string& name) {
  for (const Json& s : expected.at("strings").as_array())
    EXPECT_EQ(t.encode_ordinary(s.at("text").as_string()), to_ids(s.at(name))) << name << s.at("text").as_string();
  for (const auto& [file, by_kind] : expected.at("files").as_object()) {
    const Json& want = by_kind.at(name);
    const std::string text = read_file(root / file);
    const Ids ids = t.encode_ordinary(text);
    ASSERT_EQ(static_cast<int64_t>(ids.size()), want.at("n").as_int()) << name << file;
    const Ids first = to_ids(want.at("first")), last = to_ids(want.at("last"));
    EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin())) << name << file;
    EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), ids.rbegin())) << name << file;
    EXPECT_EQ(t.decode(ids), text);
  }
}

TEST(ReferenceFormats, ExpectedIdsFromEveryFormat) {
  TALLY_SHARED_FILE(file, "corpus/tokenizer/expected.json");
  const fs::path data = file.parent_path(), root = data.parent_path();
  const Json expected = Json::parse(read_file(file), file.string());
  const test::TempFolder folder;
  fs::create_directory(folder / "pair");
  fs::copy_file(data / "gpt2_vocab.json", folder / "pair" / "vocab.json");
  fs::copy_file(data / "gpt2_merges.txt", folder / "pair" / "merges.txt");
  for (const std::string name : {"gpt2", "cl100k", "o200k"}) {
    const bool gpt2 = name == "gpt2";
    const fs::path source = gpt2 ? folder / "pair" : unpacked(data, name + "_base", folder);
    const Tokenizer t = timed_load(source, name);
    expect_ids(t, expected, root, name);
    EXPECT_EQ(t.special_id("<|endoftext|>"), gpt2 ? 50256 : name == "cl100k" ? 100257 : 199999);
    EXPECT_EQ(t.vocab_size(), gpt2 ? 50257 : name == "cl100k" ? 100277 : 200019);
    const fs::path ours = folder / (name + "_ours"), json = folder / (name + ".json");
    // gpt2.tiktoken and cl100k_base.tiktoken, which say their pattern and special tokens by their names.
    fs::create_directory(folder / (name + "_again"));
    const fs::path tiktoken = folder / (name + "_again") / (gpt2 ? "gpt2.tiktoken" : name + "_base.tiktoken");
    for (const fs::path& path : {ours, json, tiktoken}) {
      t.save_as(path);
      EXPECT_EQ(timed_load(path, name + path.extension().string()).hash(), t.hash()) << path;
    }
    if (!gpt2) {
      EXPECT_EQ(read_file(tiktoken), read_file(source));
    }
    expect_ids(Tokenizer::load(json), expected, root, name);
  }
  Tokenizer::load(folder / "gpt2.json").save_as(folder / "pair_again", TokenizerFormat::kGpt2);
  EXPECT_EQ(read_file(folder / "pair_again" / "merges.txt"),
            "#version: 0.2\n" + read_file(folder / "pair" / "merges.txt"));
}

TEST(ReferenceFormats, HarmonyIsO200kWithMoreSpecialTokens) {
  TALLY_SHARED_FILE(file, "corpus/tokenizer/expected.json");
  const test::TempFolder folder;
  const Tokenizer t = Tokenizer::load(unpacked(file.parent_path(), "o200k_base", folder), {"o200k_harmony", {}});
  EXPECT_EQ(t.vocab_size(), 201088);
  EXPECT_EQ(t.encode("<|start|>Hello<|message|><|reserved_201087|><|endofprompt|>"),
            (Ids{200006, 13225, 200008, 201087, 200018}));
  t.save_as(folder / "t.json");
  EXPECT_EQ(Tokenizer::load(folder / "t.json").hash(), t.hash());
}

// The vocabulary of cl100k with the patterns of Llama 3 and Qwen 2: the pieces of expected.json are encoded one by one.
TEST(ReferenceFormats, TokenizerJsonOfOtherPatterns) {
  TALLY_SHARED_FILE(file, "corpus/tokenizer/expected.json");
  const Json expected = Json::parse(read_file(file), file.string());
  const test::TempFolder folder;
  const fs::path source = unpacked(file.parent_path(), "cl100k_base", folder);
  for (const char* pattern : {"llama3", "qwen2"}) {
    Tokenizer::load(source, {pattern, {"<|begin_of_text|>=100256"}}).save_as(folder / "t.json");
    const Tokenizer t = Tokenizer::load(folder / "t.json");
    for (const Json& s : expected.at("strings").as_array()) {
      Ids pieces;
      for (const Json& piece : s.at("split").at(pattern).as_array()) {
        const Ids ids = t.encode_ordinary(piece.as_string());
        pieces.insert(pieces.end(), ids.begin(), ids.end());
      }
      EXPECT_EQ(t.encode_ordinary(s.at("text").as_string()), pieces) << pattern << s.at("text").as_string();
    }
  }
}

}  // namespace
}  // namespace tally
