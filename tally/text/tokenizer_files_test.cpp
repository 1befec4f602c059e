// Tokenizer folders: what is saved loads again, what is torn or contradicts itself is refused with the file's name.
#include <gtest/gtest.h>

#include <filesystem>

#include "tally/base/file.h"
#include "tally/text/tokenizer.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kText = "low low lower newest newest widest \xC3\xA9\xC3\xA9\xC3\xA9 low";

Tokenizer train(TokenizerKind kind, std::vector<std::string> specials) {
  const std::string_view text = kText;
  return train_tokenizer({kind, kind == TokenizerKind::kBpe ? 270 : 0, std::move(specials), BpeTie::kGreatestBytes},
                         {&text, 1});
}

// A folder with the given files; an absent file is an empty optional.
struct Folder {
  void put(const std::string& name, const std::string& text) { write_file_atomic(folder / name, text); }
  void refuse(const std::string& part) const {
    test::expect_error([this] { Tokenizer::load(folder.path()); }, part);
  }
  test::TempFolder folder;
};

TEST(TokenizerFiles, SavedFolderLoadsEqual) {
  for (const TokenizerKind kind :
       {TokenizerKind::kBpe, TokenizerKind::kByte, TokenizerKind::kChar, TokenizerKind::kWord}) {
    const test::TempFolder folder;
    const Tokenizer t = train(kind, {"<|endoftext|>", "<|\xC3\xA9 \"\\\n|>"});
    t.save(folder / "a");
    const Tokenizer back = Tokenizer::load(folder / "a");
    EXPECT_EQ(back.kind(), kind);
    EXPECT_EQ(back.hash(), t.hash());
    EXPECT_EQ(back.hash().size(), 32u);
    EXPECT_EQ(back.specials(), t.specials());
    std::string text = "<|\xC3\xA9 \"\\\n|>";
    text.append(kText).append("<|endoftext|>");
    EXPECT_EQ(back.encode(text), t.encode(text));
    EXPECT_EQ(back.decode(back.encode(text)), text);
    back.save(folder / "b");
    for (const auto& entry : std::filesystem::directory_iterator(folder / "a"))
      EXPECT_EQ(read_file(entry.path()), read_file(folder / "b" / entry.path().filename().string()));
  }
}

TEST(TokenizerFiles, HashSeesEveryPart) {
  std::vector<std::string> hashes = {
      Tokenizer().hash(), train(TokenizerKind::kBpe, {}).hash(), train(TokenizerKind::kBpe, {"<|x|>"}).hash(),
      train(TokenizerKind::kChar, {}).hash(), train(TokenizerKind::kByte, {"<|x|>"}).hash()};
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

// CS336's handout (case C09): a vocabulary without all bytes, without tokenizer_config.json, CRLF lines.
TEST(TokenizerFiles, HandoutExampleEncodes) {
  Folder f;
  f.put("vocab.json",
        "{\"\xC4\xA0\":0,\"a\":1,\"c\":2,\"e\":3,\"h\":4,\"t\":5,\"th\":6,\"\xC4\xA0"
        "c\":7,\"\xC4\xA0"
        "a\":8,"
        "\"the\":9,\"\xC4\xA0"
        "at\":10}");
  f.put("merges.txt",
        "#version: 0.2\r\nt h\r\n\xC4\xA0 c\r\n\xC4\xA0 a\r\nth e\r\n\xC4\xA0"
        "a t\r\n");
  const Tokenizer t = Tokenizer::load(f.folder.path());
  EXPECT_EQ(t.encode("the cat ate"), (Ids{9, 7, 1, 5, 10, 3}));
  test::expect_error([&] { t.encode("the dog"); }, "byte 0x64");
}

TEST(TokenizerFiles, PlainGpt2PairHasEndOfTextAsSpecial) {
  Folder f;
  f.put("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}");
  f.put("merges.txt", "a b\n");
  const Tokenizer t = Tokenizer::load(f.folder.path());
  EXPECT_EQ(t.special_id("<|endoftext|>"), 3);
  EXPECT_EQ(t.encode("ab<|endoftext|>ba"), (Ids{2, 3, 1, 0}));
}

TEST(TokenizerFiles, MissingFilesAreNamed) {
  Folder f;
  test::expect_error([&] { Tokenizer::load(f.folder / "nowhere"); }, "nowhere: no such tokenizer folder");
  f.refuse("holds neither");
  f.put("tokenizer_config.json", "{\"kind\":\"bpe\"}");
  f.refuse("vocab.json");
  f.put("vocab.json", "{\"a\":0}");
  f.refuse("merges.txt");
}

TEST(TokenizerFiles, HostileVocabularies) {
  Folder f;
  f.put("merges.txt", "a b\n");
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "vocab.json: the file is empty"},
           {"{\"a\":0,\"b\":1", "vocab.json"},
           {"{\"a\":0,\"a\":1}", "vocab.json"},
           {"[]", "expected an object"},
           {"{}", "expected an object"},
           {"{\"a\":\"0\"}", "the id of token \"a\" is not a whole number"},
           {"{\"a\":0.5}", "not a whole number"},
           {"{\"a\":0,\"b\":0,\"ab\":2}", "tokens \"a\" and \"b\" both have id 0"},
           {"{\"a\":0,\"b\":1,\"ab\":65542}", "token \"ab\" has id 65542; the ids of 3 tokens must be 0 to 65541"},
           {"{\"a\":0,\"b\":1,\"ab\":99999999999999999999}", "the id of token \"ab\" is not a whole number"},
           {"{\"a\":-1,\"b\":1,\"ab\":2}", "has id -1"},
           {"{\"a\":0,\"b\":1,\"ab\":99999999999}", "has id 99999999999"},
           {"{\"a\":0,\"b\":1,\"ab\":2,\"x y\":3}", "token \"x y\" (id 3)"},
           {"{\"a\":0,\"b\":1,\"ab\":2,\"\":3}", "token \"\" (id 3)"},
           {"{\"a\":0,\"b\":1,\"ab\":2,\"\xE4\xBD\xA0\":3}", "(id 3)"},
           {"{\"a\":0,\"ab\":1}", "merges.txt:1: \"b\" is not in vocab.json"},
           {"{\"a\":0,\"b\":1}", "merges.txt:1: the merge's result \"ab\" is not in vocab.json"},
           {"\xFF\xFE{}", "vocab.json"},
       }) {
    f.put("vocab.json", text);
    f.refuse(part);
  }
}

TEST(TokenizerFiles, HostileMerges) {
  Folder f;
  f.put("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"ba\":3}");
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "merges.txt: the file is empty"},
           {"#version: 0.2\na b\nba", "merges.txt:3: expected two tokens"},
           {"a b\n\nb a\n", "merges.txt:2: expected two tokens"},
           {"a  b\n", "merges.txt:1: expected two tokens"},
           {" a\n", "merges.txt:1: expected two tokens"},
           {"a b c\n", "merges.txt:1: expected two tokens"},
           {"a b\nb a\na b\n", "merges.txt:1 already"},
           {"a \x01\n", "merges.txt:1"},
           {"a \xFF\n", "merges.txt:1"},
           {"a c\n", "merges.txt:1: \"c\" is not in vocab.json"},
           {"ab a\n", "merges.txt:1: the merge's result \"aba\" is not in vocab.json"},
       }) {
    f.put("merges.txt", text);
    f.refuse(part);
  }
}

TEST(TokenizerFiles, HostileConfigs) {
  Folder f;
  f.put("vocab.json", "{\"a\":0,\"b\":1,\"<x>\":2}");
  f.put("merges.txt", "#version: 0.2\n");
  const auto config = [](const std::string& kind, const std::string& specials) {
    return "{\"kind\":\"" + kind + "\",\"special_tokens\":" + specials + "}";
  };
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "tokenizer_config.json: the file is empty"},
           {"{\"kind\":\"bpe\"", "tokenizer_config.json"},
           {"[1]", "expected an object"},
           {"{\"model_max_length\":1024}", "no \"kind\""},
           {"{\"kind\":\"wort\"}", "kind \"wort\" is not known"},
           {"{\"kind\":\"bpe\",\"pattern\":\"cl100\"}", "no pattern has the name \"cl100\""},
           {"{\"kind\":\"bpe\",\"pattern\":\"regex:(\"}", "tokenizer_config.json: "},
           {"{\"kind\":\"bpe\",\"pattern\":3}", "the pattern must be a name"},
           {"{\"kind\":\"bpe\",\"ignore_merges\":1}", "ignore_merges must be true or false"},
           {"{\"kind\":\"bpe\",\"normalizer\":\"nfkc\"}", "the normalizer must be \"nfc\""},
           {"{\"kind\":\"bpe\",\"not_special\":[\"<x>\"]}", "\"<x>\" of not_special is not among special_tokens"},
           {config("bpe", "[]"), "special_tokens must be an object"},
           {config("bpe", "{\"<x>\":\"2\"}"), "the id of special token"},
           {config("bpe", "{\"<x>\":-2}"), "the id of special token"},
           {config("bpe", "{\"<x>\":1}"), "special token \"<x>\" has id 1, which is \"b\""},
           {config("bpe", "{\"<x>\":3}"), "has id 3, but vocab.json has 3 tokens"},
           {config("bpe", "{\"<x>\":2,\"b\":2}"), "has id 2"},
           {config("byte", "{\"<x>\":255}"), "ids 256 to 256"},
           {config("byte", "{\"<x>\":258,\"<y>\":256}"), "ids 256 to 257"},
           {config("byte", "{\"<x>\":256,\"<y>\":256}"), "two special tokens have id 256"},
           {config("byte", "{\"\":256}"), "empty"},
           {config("byte", "{\"a\":256}"), "tokenizer_config.json: special token \"a\" is a single byte"},
           {config("char", "{}"), "token \"<x>\" (id 2) is neither one character nor special"},
       }) {
    f.put("tokenizer_config.json", text);
    f.refuse(part);
  }
  f.put("tokenizer_config.json", config("bpe", "{\"<x>\":2}"));
  EXPECT_EQ(Tokenizer::load(f.folder.path()).encode("a<x>b"), (Ids{0, 2, 1}));
  f.put("tokenizer_config.json", config("char", "{\"<x>\":2}"));
  EXPECT_EQ(Tokenizer::load(f.folder.path()).encode("a<x>b"), (Ids{0, 2, 1}));
}

// " " is special and "\u0120" is GPT-2's character for the space: text and merges mean the latter, in any order of ids.
TEST(TokenizerFiles, SpecialTokenWithTheBytesOfAnother) {
  for (const bool special_first : {false, true}) {
    Folder f;
    const int space = special_first ? 1 : 3, special = special_first ? 3 : 1;
    f.put("vocab.json", fmt::format("{{\"a\":0,\"\xC4\xA0\":{},\"\xC4\xA0"
                                    "a\":2,\" \":{}}}",
                                    space, special));
    f.put("merges.txt", "\xC4\xA0 a\n");
    f.put("tokenizer_config.json", fmt::format("{{\"kind\":\"bpe\",\"special_tokens\":{{\" \":{}}}}}", special));
    const Tokenizer t = Tokenizer::load(f.folder.path());
    EXPECT_EQ(t.encode("a a ", false), (Ids{0, 2, space}));
    EXPECT_EQ(t.encode("a a ", true), (Ids{0, special, 0, special}));
    EXPECT_EQ(t.with_specials({" "}).hash(), t.hash());
  }
}

// Every prefix of the files of a good folder is refused or means the same start of a list; none does harm.
TEST(TokenizerFiles, EveryTruncationIsRefused) {
  const test::TempFolder good;
  train(TokenizerKind::kBpe, {"<|x|>"}).save(good / "t");
  for (const char* name : {"vocab.json", "tokenizer_config.json"}) {
    const std::string text = read_file(good / "t" / name);
    for (size_t n = 0; n + 2 < text.size(); n += name[0] == 'v' ? 97 : 1) {
      write_file_atomic(good / "t" / name, text.substr(0, n));
      test::expect_error([&] { Tokenizer::load(good / "t"); }, name);
    }
    write_file_atomic(good / "t" / name, text);
  }
  EXPECT_EQ(Tokenizer::load(good / "t").hash(), train(TokenizerKind::kBpe, {"<|x|>"}).hash());
}

}  // namespace
}  // namespace tally
