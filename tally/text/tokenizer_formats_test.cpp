// The formats of others: .tiktoken, tokenizer.json, GPT-2's two files. What one reader gives, every writer that can say
// it gives back; what a file gets wrong is told with its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/text/nfc.h"
#include "tally/text/tiktoken_file.h"
#include "tally/text/tokenizer.h"
#include "tally/text/utf8.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kEnd = "<|endoftext|>";
constexpr const char* kText =
    "low low lower newest newest widest \xC3\xA9\xC3\xA9\xC3\xA9 low 12345 it's IT'S  \n\n x \t\r\n end  ";

Tokenizer trained(const std::string& pattern, std::vector<std::string> specials = {kEnd}) {
  TokenizerSpec spec{TokenizerKind::kBpe, 290, std::move(specials), BpeTie::kGreatestBytes};
  spec.pattern = Pattern::named(pattern);
  const std::string_view text = kText;
  return train_tokenizer(spec, {&text, 1});
}

// A .tiktoken file whose ranks 0 to 255 are the bytes, then these tokens.
std::string ranks_text(const std::vector<std::string>& tokens) {
  TokenTable table;
  for (int b = 0; b < 256; ++b) table.push_back(std::string(1, static_cast<char>(b)));
  for (const std::string& token : tokens) table.push_back(token);
  return tiktoken_text(table);
}

struct Place {
  fs::path put(const std::string& name, const std::string& text) {
    write_file_atomic(folder / name, text);
    return folder / name;
  }
  test::TempFolder folder;
};

// A tokenizer.json of the 256 bytes, "ab", and what the callers put in place of its parts.
struct JsonFile {
  std::string added = "[]", normalizer = "null", post = "null", decoder = "null", extra;
  std::string pre = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  std::string more_vocab, merges = R"(["a b"])", model;

  std::string text() const {
    std::string vocab;
    for (int b = 0; b < 256; ++b)
      vocab += Json(bytes_to_printable(std::string(1, static_cast<char>(b)))).dump() + ":" + std::to_string(b) + ",";
    return "{\"version\":\"1.0\",\"added_tokens\":" + added + ",\"normalizer\":" + normalizer +
           ",\"pre_tokenizer\":" + pre + ",\"post_processor\":" + post + ",\"decoder\":" + decoder + extra +
           ",\"model\":{\"type\":\"BPE\"" + model + ",\"vocab\":{" + vocab + "\"ab\":256" + more_vocab +
           "},\"merges\":" + merges + "}}";
  }
  Tokenizer load() const {
    Place place;
    return Tokenizer::load(place.put("tokenizer.json", text()));
  }
  void refuse(const std::string& part) const {
    test::expect_error([this] { load(); }, "tokenizer.json: " + part);
  }
};

std::string split(const std::string& expression, const std::string& behavior = "Isolated", bool invert = false) {
  return R"({"type":"Split","pattern":{"Regex":)" + Json(expression).dump() + R"(},"behavior":")" + behavior +
         R"(","invert":)" + (invert ? "true}" : "false}");
}
std::string sequence(const std::string& steps) {
  return R"({"type":"Sequence","pretokenizers":[)" + steps +
         R"(,{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
}

void expect_equal(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_EQ(a.specials(), b.specials());
  EXPECT_EQ(a.vocab_size(), b.vocab_size());
  for (const std::string& text : {std::string(kText), std::string(kText) + kEnd + "x\xFF\xC3"})
    EXPECT_EQ(a.encode(text), b.encode(text));
}

TEST(TokenizerFormats, EveryPatternRoundTripsThroughTokenizerJsonAndOurFolder) {
  for (const char* pattern :
       {"gpt2", "cl100k", "o200k", "llama3", "qwen2", "deepseek-v3", "nanochat", "whitespace", "regex:\\w+|\\W"}) {
    const test::TempFolder folder;
    const Tokenizer t = trained(pattern, {kEnd, "<|\xC3\xA9 \"\\\n|>"});
    t.save_as(folder / "tokenizer.json");
    t.save_as(folder / "ours");
    for (const char* name : {"tokenizer.json", "ours"}) expect_equal(Tokenizer::load(folder / name), t);
    // A folder with tokenizer.json, and beside it what other programs put there.
    fs::create_directory(folder / "theirs");
    fs::copy_file(folder / "tokenizer.json", folder / "theirs" / "tokenizer.json");
    write_file_atomic(folder / "theirs" / "tokenizer_config.json", "{\"model_max_length\": 1024}");
    expect_equal(Tokenizer::load(folder / "theirs"), t);
  }
}

TEST(TokenizerFormats, GptTwoFilesHoldOnlyWhatTheySay) {
  const test::TempFolder folder;
  const Tokenizer t = trained("gpt2");
  t.save_as(folder / "pair", TokenizerFormat::kGpt2);
  EXPECT_FALSE(fs::exists(folder / "pair" / "tokenizer_config.json"));
  expect_equal(Tokenizer::load(folder / "pair"), t);
  const auto refuse = [&](const Tokenizer& other, const std::string& part) {
    test::expect_error([&] { other.save_as(folder / "no", TokenizerFormat::kGpt2); }, part);
    EXPECT_FALSE(fs::exists(folder / "no"));
  };
  refuse(trained("cl100k"), "cannot say the pattern cl100k");
  refuse(trained("gpt2", {"<x>"}), "that \"<x>\" is special");
  refuse(Tokenizer(), "that this is a byte tokenizer");
  t.save(folder / "ours");
  test::expect_error([&] { t.save_as(folder / "ours", TokenizerFormat::kGpt2); }, "is there already");
}

TEST(TokenizerFormats, TiktokenRoundTrip) {
  const test::TempFolder folder;
  const Tokenizer t = trained("cl100k", {});
  const Tokenizer with = t.with_specials({"<|x|>", "<|y|>"});
  with.save_as(folder / "mine.tiktoken");
  const Tokenizer back = Tokenizer::load(folder / "mine.tiktoken", {"cl100k", {"<|x|>", "<|y|>"}});
  expect_equal(back, with);
  expect_equal(Tokenizer::load(folder / "mine.tiktoken", {"cl100k", {"<|y|>=291", "<|x|>=290"}})
                   .with_specials({"<|x|>", "<|y|>"}),
               with);
  EXPECT_EQ(Tokenizer::load(folder / "mine.tiktoken", {"cl100k_base", {"<|z|>=300"}}).vocab_size(), 301);
  test::expect_error([&] { Tokenizer::load(folder / "mine.tiktoken"); }, "give the pattern and the special tokens");
  test::expect_error(
      [&] {
        Tokenizer::load(folder / "mine.tiktoken", {"cl100k", {"<|x|>=97"}});
      },
      "special token \"<|x|>\" has id 97, which is");
  test::expect_error(
      [&] {
        Tokenizer::load(folder / "mine.tiktoken", {"cl100k", {"<|x|>=999999999"}});
      },
      "must be below");
  test::expect_error([&] { Tokenizer::load(folder / "mine.tiktoken", {"cl100", {}}); }, "cl100");
  t.save(folder / "ours");
  test::expect_error([&] { Tokenizer::load(folder / "ours", {"gpt2", {}}); }, "for .tiktoken files only");
}

// "abc" has no cut into two tokens: only a piece that equals it becomes it. "xyz" has two, and xy comes first.
TEST(TokenizerFiles, TiktokenTokensThatMergesDoNotMake) {
  Place place;
  const fs::path file = place.put("t.tiktoken", ranks_text({"abc", "xy", "yz", "xyz"}));
  const Tokenizer t = Tokenizer::load(file, {"gpt2", {}});
  EXPECT_EQ(t.encode("abc"), (Ids{256}));
  EXPECT_EQ(t.encode("abcd"), (Ids{97, 98, 99, 100}));
  EXPECT_EQ(t.encode("xyzyz"), (Ids{259, 258}));
  t.save_as(place.folder / "again.tiktoken");
  EXPECT_EQ(read_file(place.folder / "again.tiktoken"), read_file(file));
  t.save_as(place.folder / "t.json");
  expect_equal(Tokenizer::load(place.folder / "t.json"), t);
  t.save(place.folder / "ours");
  expect_equal(Tokenizer::load(place.folder / "ours"), t);
}

// A merge of a higher rank can come before one of a lower: "bcd" waits for "cd", the last.
TEST(TokenizerFormats, TiktokenRanksOutOfOrder) {
  Place place;
  const Tokenizer t = Tokenizer::load(place.put("t.tiktoken", ranks_text({"bcd", "ab", "cd"})), {"gpt2", {}});
  EXPECT_EQ(t.encode("bcd"), (Ids{256}));
  EXPECT_EQ(t.encode("bcde"), (Ids{256, 101}));
  EXPECT_EQ(t.encode("abcd"), (Ids{257, 258}));
}

TEST(TokenizerFormats, WhatTiktokenCannotSayIsRefused) {
  const test::TempFolder folder;
  const auto refuse = [&](const Tokenizer& t, const std::string& part) {
    test::expect_error([&] { t.save_as(folder / "x.tiktoken"); }, part);
    EXPECT_FALSE(fs::exists(folder / "x.tiktoken"));
  };
  refuse(Tokenizer(), "for bpe only; this is a byte tokenizer");
  JsonFile file;
  file.more_vocab = ",\"bcde\":257";
  refuse(file.load(), "no merges make token \"bcde\" (id 257)");
  file.more_vocab = ",\"bc\":257";
  refuse(file.load(), "tiktoken would merge \"b\" and \"c\", which has no merge here");
  file.merges = R"(["b c","a b"])";
  refuse(file.load(), "id 256 is made after id 257");
  file.normalizer = R"({"type":"NFC"})";
  refuse(file.load(), "normalised (NFC)");
}

TEST(TokenizerFormats, HostileTiktokenFiles) {
  Place place;
  const std::string good = ranks_text({});
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "t.tiktoken: the file is empty"},
           {"\n\n", "t.tiktoken: the file has no tokens"},
           {"YQ==\n", "t.tiktoken:1: expected a token in base64, one space and its rank"},
           {"YQ== \n", "t.tiktoken:1: \"\" is not a rank"},
           {"YQ== 0 \n", "is not a rank"},
           {"YQ==  0\n", "is not a rank"},
           {"YQ== -1\n", "is not a rank"},
           {"YQ== +1\n", "is not a rank"},
           {"YQ== 1x\n", "is not a rank"},
           {"YQ== 99999999999999999999\n", "\"99999999999999999999\" is not a rank"},
           {"YQ== 2147483647\n", "rank 2147483647 is too high for a file of 1 tokens"},
           {"YQ= 0\n", "\"YQ=\" is not base64"},
           {"YQ=== 0\n", "is not base64"},
           {"YR== 0\n", "is not base64"},
           {"Y=Q= 0\n", "is not base64"},
           {"YQ\xC3\xA9 0\n", "is not base64"},
           {"==== 0\n", "is not base64"},
           {" 0\n", "t.tiktoken:1: the token is empty"},
           {"YQ== 0\nYg== 0\n", "t.tiktoken:2: rank 0 stands in line 1 already"},
           {"YQ== 0\nYQ== 1\n", "t.tiktoken:2: token \"a\" stands in line 1 already"},
           {"YQ== 0\r\nYg== 1\r\n", "byte 0x00 has no token"},
           {good.substr(0, good.size() - 3), "t.tiktoken:256: "},
           {good.substr(0, good.rfind('\n', good.size() - 2) + 1), "byte 0xff has no token"},
           {std::string("\0\0\0", 3), "t.tiktoken:1: expected a token"},
       }) {
    const fs::path file = place.put("t.tiktoken", text);
    test::expect_error([&] { Tokenizer::load(file, {"gpt2", {}}); }, part);
  }
  EXPECT_EQ(Tokenizer::load(place.put("t.tiktoken", good), {"gpt2", {}}).vocab_size(), 256);
  test::expect_error([&] { Tokenizer::load(place.put("cl100k_base.tiktoken", good)); },
                     "256 tokens, but cl100k_base has 100256: the file is cut");
  fs::create_directory(place.folder / "folder.tiktoken");
  test::expect_error([&] { Tokenizer::load(place.folder / "folder.tiktoken"); }, "not a tokenizer folder");
  test::expect_error([&] { Tokenizer::load(place.put("x.bin", good)); },
                     "x.bin: not a tokenizer folder, a .tiktoken file");
}

TEST(TokenizerJson, PreTokenizers) {
  const std::string cl100k_like =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  JsonFile file;
  const auto pattern = [&file] {
    const test::TempFolder folder;
    file.load().save(folder.path());
    return Json::parse(read_file(folder / "tokenizer_config.json"), "").at("pattern").as_string();
  };
  EXPECT_EQ(pattern(), "gpt2");
  file.pre = sequence(split(cl100k_like));
  EXPECT_EQ(pattern(), "llama3");
  file.pre = sequence(split(cl100k_like, "Removed", true));
  EXPECT_EQ(pattern(), "llama3");
  file.pre = sequence(split(Pattern::named("qwen2").expression()));
  EXPECT_EQ(pattern(), "qwen2");
  std::vector<std::string> three = Pattern::named("deepseek-v3").splits();
  file.pre = sequence(split(three[0]) + "," + split(three[1]) + "," + split(three[2]));
  EXPECT_EQ(pattern(), "deepseek-v3");
  for (std::string& part : three)  // line ends as themselves
    for (size_t at = 0; (at = part.find("\\r\\n", at)) != std::string::npos;) part.replace(at, 4, "\r\n");
  file.pre = sequence(split(three[0]) + "," + split(three[1]) + "," + split(three[2]));
  EXPECT_EQ(pattern(), "deepseek-v3");
  file.pre = sequence(split("[ab]+"));
  EXPECT_EQ(pattern(), "regex:[ab]+");
  EXPECT_EQ(file.load().encode("xaby"), (Ids{120, 256, 121}));
  file.pre =
      R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})";
  EXPECT_EQ(file.load().encode("ab  12").size(), 5u);
}

TEST(TokenizerJson, DigitsAreSplitOffFirst) {
  JsonFile file;
  file.more_vocab = ",\"\xC4\xA0\xC4\xA0\":257,\"12\":258";
  file.merges = "[[\"\xC4\xA0\",\"\xC4\xA0\"],[\"1\",\"2\"],[\"a\",\"b\"]]";
  for (const bool each : {true, false}) {
    file.pre = std::string(R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":)") +
               (each ? "true" : "false") + R"(},{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})";
    // Both spaces stay together before a digit: the text between the digits ends there.
    EXPECT_EQ(file.load().encode("ab  12"), each ? (Ids{256, 257, 49, 50}) : (Ids{256, 257, 258}));
    EXPECT_EQ(file.load().encode("  ab"), (Ids{32, 32, 256}));
  }
}

TEST(TokenizerJson, WhatIsNotUnderstoodIsRefusedByName) {
  const auto refuse = [](auto change, const std::string& part) {
    JsonFile file;
    change(file);
    file.refuse(part);
  };
  refuse([](JsonFile& f) { f.normalizer = R"({"type":"NFKC"})"; }, "normalizer.type: \"NFKC\" is not supported");
  refuse(
      [](JsonFile& f) { f.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})"; },
      "normalizer.normalizers[1].type: \"Lowercase\"");
  refuse([](JsonFile& f) { f.pre = "null"; }, "pre_tokenizer: the last step must be ByteLevel");
  refuse([](JsonFile& f) { f.pre = R"({"type":"Metaspace"})"; }, "pre_tokenizer: the last step must be ByteLevel");
  refuse([](JsonFile& f) { f.pre = R"({"type":"ByteLevel","add_prefix_space":true})"; },
         "pre_tokenizer.add_prefix_space: true");
  refuse([](JsonFile& f) { f.pre = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"; },
         "pre_tokenizer.use_regex: false");
  refuse([](JsonFile& f) { f.pre = R"({"type":"ByteLevel","add_prefix_space":0})"; },
         "pre_tokenizer.add_prefix_space: expected true or false");
  refuse([](JsonFile& f) { f.pre = R"({"type":"ByteLevel","add_prefix_space":false,"new":1})"; },
         "pre_tokenizer.new: this setting is not known");
  refuse([](JsonFile& f) { f.pre = sequence(split("a", "MergedWithNext")); },
         "pre_tokenizer.pretokenizers[0].behavior: \"MergedWithNext\"");
  refuse([](JsonFile& f) { f.pre = sequence(split("a", "Removed", true)); },
         "pre_tokenizer.pretokenizers[0].behavior: Removed drops");
  refuse([](JsonFile& f) { f.pre = sequence(split("(")); }, "pre_tokenizer: ");
  refuse([](JsonFile& f) { f.pre = sequence(split("(", "Removed", true)); },
         "pre_tokenizer.pretokenizers[0].pattern: ");
  refuse([](JsonFile& f) { f.pre = sequence(split("a") + "," + split("b")); }, "pre_tokenizer: 2 splits");
  refuse([](JsonFile& f) { f.pre = sequence(R"({"type":"Split","pattern":{"String":" "},"behavior":"Isolated"})"); },
         "pre_tokenizer.pretokenizers[0].pattern.String: this setting is not known");
  refuse([](JsonFile& f) { f.pre = sequence(R"({"type":"Whitespace"})"); },
         "pre_tokenizer.pretokenizers[0].type: \"Whitespace\"");
  refuse([](JsonFile& f) { f.post = R"({"type":"Magic"})"; }, "post_processor.type: \"Magic\"");
  refuse([](JsonFile& f) { f.decoder = R"({"type":"WordPiece"})"; }, "decoder.type: \"WordPiece\"");
  refuse([](JsonFile& f) { f.extra = R"(,"truncation":{"max_length":5})"; }, "truncation: it is not supported");
  refuse([](JsonFile& f) { f.extra = R"(,"later":5)"; }, "later: this setting is not known");
  refuse([](JsonFile& f) { f.model = R"(,"dropout":0.1)"; }, "model.dropout: the ids would be random");
  refuse([](JsonFile& f) { f.model = R"(,"end_of_word_suffix":"</w>")"; }, "model.end_of_word_suffix: \"</w>\"");
  refuse([](JsonFile& f) { f.model = R"(,"ignore_merges":"yes")"; }, "model.ignore_merges: expected true or false");
  for (const char* key : {"single_word", "lstrip", "rstrip"})
    refuse([&](JsonFile& f) { f.added = std::string(R"([{"id":257,"content":"<x>",")") + key + "\":true}]"; },
           std::string("added_tokens[0].") + key + ": true is not supported");
  Place place;
  const auto load = [&](const std::string& text) {
    return [&place, text] { Tokenizer::load(place.put("tokenizer.json", text)); };
  };
  test::expect_error(load(""), "the file is empty");
  test::expect_error(load("{"), "tokenizer.json:1:");
  test::expect_error(load("[]"), "tokenizer.json: the file: expected an object");
  test::expect_error(load("{}"), "tokenizer.json: model: the file has none");
  test::expect_error(load(R"({"version":"2.0"})"), "version: \"2.0\" is not known");
  test::expect_error(load(R"({"model":{"type":"Unigram"}})"),
                     "model.type: \"Unigram\" is not supported; here it may be BPE");
  test::expect_error(load(R"({"model":{"type":"BPE","vocab":{"\ud800":0}}})"), "tokenizer.json:1:");
  test::expect_error(load("{\"model\":{\"vocab\":{\"\xFF\":0}}}"), "tokenizer.json:1:");
}

TEST(TokenizerJson, ContradictionsAreNamed) {
  const auto refuse = [](auto change, const std::string& part) {
    JsonFile file;
    change(file);
    file.refuse(part);
  };
  refuse([](JsonFile& f) { f.merges = R"(["a b","b c"])"; },
         "model.merges[1]: the merge's result \"bc\" is not in model.vocab");
  refuse([](JsonFile& f) { f.merges = R"(["a b",["a","b"]])"; }, "model.merges[1]: the same merge stands in");
  refuse([](JsonFile& f) { f.merges = R"(["a  b"])"; }, "model.merges[0]: expected two tokens");
  refuse([](JsonFile& f) { f.merges = R"([["a"]])"; }, "model.merges[0]: expected");
  refuse([](JsonFile& f) { f.merges = R"([["a",""]])"; }, "model.merges[0]: ");
  refuse([](JsonFile& f) { f.merges = "{}"; }, "model.merges: expected an array");
  refuse([](JsonFile& f) { f.more_vocab = ",\"x y\":257"; }, "model.vocab: token \"x y\" (id 257)");
  refuse([](JsonFile& f) { f.more_vocab = ",\"bc\":256"; }, "model.vocab: tokens \"ab\" and \"bc\" both have id 256");
  refuse([](JsonFile& f) { f.more_vocab = ",\"bc\":-1"; }, "model.vocab: token \"bc\" has id -1");
  refuse([](JsonFile& f) { f.more_vocab = ",\"bc\":1e30"; },
         "model.vocab: the id of token \"bc\" is not a whole number");
  refuse([](JsonFile& f) { f.added = R"([{"id":256,"content":"<x>"}])"; },
         "added_tokens[0].id: token \"<x>\" has id 256, which is \"ab\"");
  refuse([](JsonFile& f) { f.added = R"([{"id":300,"content":"ab"}])"; },
         "added_tokens[0].id: token \"ab\" has id 300, but model.vocab gives it 256");
  refuse([](JsonFile& f) { f.added = R"([{"id":257,"content":"<x>"},{"id":257,"content":"<y>"}])"; },
         "added_tokens[1].id: ");
  refuse([](JsonFile& f) { f.added = R"([{"id":257,"content":"<x>"},{"id":258,"content":"<x>"}])"; },
         "added_tokens: special token \"<x>\" is given twice");
  refuse([](JsonFile& f) { f.added = R"([{"id":9999999,"content":"<x>"}])"; },
         "added_tokens[0].id: token \"<x>\" needs an id from 0 to");
  refuse([](JsonFile& f) { f.added = R"([{"id":257,"content":""}])"; }, "added_tokens[0].content: the token is empty");
  refuse([](JsonFile& f) { f.added = R"([{"id":257}])"; }, "added_tokens[0].content: expected a string");
}

TEST(TokenizerJson, AddedTokensGapsAndSettings) {
  JsonFile file;
  file.added =
      R"([{"id":300,"content":"<x>","special":true},{"id":302,"content":"<think>","special":false,"normalized":true}])";
  file.model =
      R"(,"ignore_merges":true,"unk_token":"<x>","byte_fallback":true,"dropout":null,"continuing_subword_prefix":"")";
  file.more_vocab = ",\"abc\":280";
  file.post =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel","trim_offsets":false},{"type":"TemplateProcessing","single":[]}]})";
  file.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})";
  const Tokenizer t = file.load();
  EXPECT_EQ(t.vocab_size(), 303);
  EXPECT_EQ(t.encode("abc<x>ab<think>"), (Ids{280, 300, 256, 302}));
  EXPECT_EQ(t.encode("e\xCC\x81"), t.encode("\xC3\xA9"));
  const test::TempFolder folder;
  t.save_as(folder / "again.json");
  t.save(folder / "ours");
  for (const char* name : {"again.json", "ours"}) expect_equal(Tokenizer::load(folder / name), t);
  const Json again = Json::parse(read_file(folder / "again.json"), "again");
  EXPECT_TRUE(again.at("added_tokens").as_array()[0].at("special").as_bool());
  EXPECT_FALSE(again.at("added_tokens").as_array()[1].at("special").as_bool());
}

// An added token that reads like another token's key would take its bytes away.
TEST(TokenizerJson, AddedTokensThatAreKeys) {
  JsonFile file;
  const auto added = [](const char* text, int id) {
    return fmt::format(
        R"([{{"id":{},"content":"{}","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}}])",
        id, text);
  };
  file.added = added("\\u0120", 32);
  file.refuse("model.vocab: the special token \"\xC4\xA0\" (id 32) is what the file writes for the byte 0x20");
  file.added = added("\\u0120b", 257);
  file.more_vocab = ",\"\\u0120b\":257", file.merges = "[[\"\\u0120\",\"b\"]]";
  file.refuse(
      "model.merges[0]: the merge's result \"\xC4\xA0\x62\" is a special token, which no merge can use or make");
  file.added = added("a", 97);
  file.more_vocab = "", file.merges = "[[\"a\",\"b\"]]";
  EXPECT_EQ(file.load().encode("ba"), (Ids{98, 97}));
}

TEST(TokenizerFiles, AByteOrderMarkIsPassedOver) {
  Place place;
  const Tokenizer t = JsonFile().load();
  const fs::path path = place.put("bom.tiktoken", "x");
  t.save_as(path);
  place.put("bom.tiktoken", "\xEF\xBB\xBF" + read_file(path));
  EXPECT_EQ(Tokenizer::load(path, {"gpt2", {}}).encode("aba"), t.encode("aba"));
}

// Linear in their number: the time itself is bench/tokenizers.py's.
TEST(TokenizerJson, ManyAddedTokensLoadSoon) {
  const auto load = [](int count) {
    JsonFile file;
    file.added = "[";
    for (int i = 0; i < count; ++i)
      file.added += fmt::format(
          R"({}{{"id":{},"content":"<extra_{}>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}})",
          i == 0 ? "" : ",", 257 + i, i);
    file.added += "]";
    Place place;
    const fs::path path = place.put("tokenizer.json", file.text());
    const std::clock_t start = std::clock();  // of this program: others do not count
    const Tokenizer t = Tokenizer::load(path);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_EQ(t.vocab_size(), 257 + count);
    EXPECT_EQ(t.encode(fmt::format("ab<extra_{}>", count - 1)), (Ids{256, 256 + count}));
    return seconds;
  };
  const double few = std::min(load(40'000), load(40'000)), many = load(400'000);
  RecordProperty("seconds", std::to_string(many));
  EXPECT_LT(many, 40 * few) << few;
}

// A stream gives the ids of the whole whatever the form of the text and of the chunks.
TEST(TokenizerJson, NormalisedStreams) {
  JsonFile file;
  file.pre = sequence(split(Pattern::named("qwen2").expression()));
  file.normalizer = R"({"type":"NFC"})";
  const Tokenizer t = file.load();
  const std::string text =
      "cafe\xCC\x81 ab a\xCC\xA3\xCC\x82  x\n\n e\xCC\x81\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8 ab\xCC\x81 \xFF\xCC\x81 "
      "\xCC\x81 ab=\xCC\xB8 end";
  const Ids whole = t.encode(text);
  EXPECT_EQ(whole, t.encode(nfc(text)));
  EXPECT_EQ(t.count(text), static_cast<int64_t>(whole.size()));
  for (size_t chunk = 1; chunk <= text.size(); ++chunk) {
    StreamEncoder stream(t);
    Ids ids;
    for (size_t at = 0; at < text.size(); at += chunk) stream.push(std::string_view(text).substr(at, chunk), ids);
    stream.finish(ids);
    EXPECT_EQ(ids, whole) << chunk;
  }
  test::expect_error([&] { t.encode_with_offsets(text); }, "form C");
}

TEST(Nfc, ComposesOrdersAndKeepsBrokenBytes) {
  for (const auto& [given, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"plain", "plain"},
           {"e\xCC\x81", "\xC3\xA9"},
           {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},                // order of classes
           {"\xE2\x84\xAB", "\xC3\x85"},                              // the sign of angstrom
           {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"},  // Hangul
           {"a\xCC\xA3\xCC\x82", "\xE1\xBA\xAD"},                     // two marks, one after the other
           {"\xFF\xCC\x81"
            "e\xCC\x81\xC3",
            "\xFF\xCC\x81\xC3\xA9\xC3"},                  // bytes that are not UTF-8
           {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},  // excluded from composition
       }) {
    EXPECT_EQ(nfc(given), expected);
    EXPECT_EQ(is_nfc(given), given == expected) << given;
    EXPECT_TRUE(is_nfc(expected));
  }
}

}  // namespace
}  // namespace tally
