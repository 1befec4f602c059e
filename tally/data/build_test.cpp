// Text to shards: where validation begins, documents, several shards, bad input, and that nothing is lost.
#include "tally/data/build.h"

#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "tally/base/parallel.h"
#include "tally/data/documents.h"
#include "tally/data/tokens.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

Tokenizer chars_of(const std::string& text) {
  const std::string_view view = text;
  return train_tokenizer({TokenizerKind::kChar, 0, {}, BpeTie::kGreatestBytes}, std::span(&view, 1));
}

std::vector<int32_t> ids_of(const fs::path& folder, const Tokenizer& tokenizer, const std::string& split) {
  const TokenSource source = TokenSource::open(folder.string(), tokenizer.vocab_size(), split);
  source.verify();
  source.require_tokenizer(tokenizer_hash_from_hex(tokenizer.hash(), "test"));
  std::vector<int32_t> ids(static_cast<size_t>(source.size()));
  source.read(0, source.size(), ids.data());
  return ids;
}

std::string text_of(const fs::path& folder, const Tokenizer& tokenizer, const std::string& split) {
  return tokenizer.decode(ids_of(folder, tokenizer, split));
}

BuildOptions options_for(const test::TempFolder& folder, std::vector<std::string> inputs) {
  BuildOptions options;
  for (const std::string& name : inputs) options.inputs.push_back((folder / name).string());
  options.out = folder / "out";
  return options;
}

TEST(Build, CharSplitsAtCharacters) {
  const test::TempFolder folder;
  // 25 characters of 1 to 4 bytes; the first 22 = floor(25 * 0.9) train.
  const std::string unit = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", text = unit + unit + unit + unit + unit;
  put(folder / "in.txt", text);
  const Tokenizer tokenizer = chars_of(text);
  const DataInfo info = build_data(tokenizer, options_for(folder, {"in.txt"}));
  EXPECT_EQ(info.train.tokens, 22);
  EXPECT_EQ(info.val.tokens, 3);
  EXPECT_EQ(info.val.bytes, 3 + 4 + 1);
  EXPECT_EQ(info.train.bytes + info.val.bytes, static_cast<int64_t>(text.size()));
  EXPECT_EQ(text_of(folder / "out", tokenizer, "train") + text_of(folder / "out", tokenizer, "val"), text);
  EXPECT_EQ(text_of(folder / "out", tokenizer, "val"), "\xE2\x82\xAC\xF0\x9F\x98\x80z");
}

TEST(Build, BytesSplitAtTheNextCharacter) {
  const test::TempFolder folder;
  const Tokenizer bytes;
  for (int cut = 1; cut < 20; ++cut) {
    const std::string text =
        "ab\xE2\x82\xAC\xF0\x9F\x98\x80"
        "cdefghijklm";  // 20 bytes
    put(folder / "in.txt", text);
    BuildOptions options = options_for(folder, {"in.txt"});
    options.val_fraction = 1 - cut / 20.0;
    options.overwrite = true;
    build_data(bytes, options);
    const int expected = cut <= 2 ? cut : cut <= 5 ? 5 : cut <= 9 ? 9 : cut;
    EXPECT_EQ(text_of(folder / "out", bytes, "train"), text.substr(0, static_cast<size_t>(expected))) << cut;
    EXPECT_EQ(text_of(folder / "out", bytes, "val"), text.substr(static_cast<size_t>(expected))) << cut;
  }
}

TEST(Build, FractionsThatAreNotExactInBinary) {
  const test::TempFolder folder;
  const std::string text(10, 'x');
  put(folder / "in.txt", text);
  const Tokenizer tokenizer = chars_of(text);
  for (int tenths = 1; tenths < 10; ++tenths) {
    BuildOptions options = options_for(folder, {"in.txt"});
    options.val_fraction = tenths / 10.0;
    options.overwrite = true;
    EXPECT_EQ(build_data(tokenizer, options).val.tokens, tenths);
  }
}

TEST(Build, SeveralDocumentsSplitAtABorder) {
  const test::TempFolder folder;
  put(folder / "a.txt", "first<sep>second!<sep><sep>third");
  put(folder / "b.txt", "<sep>fourth one<sep>");
  const Tokenizer bytes = Tokenizer().with_specials({"<|endoftext|>"});
  BuildOptions options = options_for(folder, {"*.txt"});
  options.separator = "<sep>";
  options.val_fraction = 0.3;
  const DataInfo info = build_data(bytes, options);
  // 5 + 7 + 5 + 10 bytes; 0.7 * 27 = 18.9 is nearest to the border at 17.
  EXPECT_EQ(info.train.documents, 3);
  EXPECT_EQ(info.val.documents, 1);
  EXPECT_EQ(info.train.bytes, 17);
  EXPECT_EQ(info.val.bytes, 10);
  EXPECT_EQ(info.train.tokens, 20);  // an end token each
  EXPECT_EQ(text_of(folder / "out", bytes, "train"), "first<|endoftext|>second!<|endoftext|>third<|endoftext|>");
  EXPECT_EQ(text_of(folder / "out", bytes, "val"), "fourth one<|endoftext|>");
  options.end_token = "", options.overwrite = true;
  EXPECT_EQ(build_data(bytes, options).train.tokens, 17);
}

TEST(Build, BothSplitsGetADocument) {
  const test::TempFolder folder;
  put(folder / "a.txt", std::string(1000, 'a'));
  put(folder / "b.txt", "b");
  for (const double fraction : {0.001, 0.5, 0.999}) {
    BuildOptions options = options_for(folder, {"a.txt", "b.txt"});
    options.val_fraction = fraction, options.overwrite = true;
    const DataInfo info = build_data(Tokenizer(), options);
    EXPECT_EQ(info.train.tokens, 1000);
    EXPECT_EQ(info.val.tokens, 1);
  }
  BuildOptions all = options_for(folder, {"a.txt", "b.txt"});
  all.val_fraction = 0, all.overwrite = true;
  EXPECT_EQ(build_data(Tokenizer(), all).train.tokens, 1001);
  EXPECT_FALSE(fs::exists(folder / "out/val_00000.tok"));
}

TEST(Build, ShardsAreFullAndDocumentsGoOnInTheNext) {
  const test::TempFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "document " + std::to_string(i) + "|";
  put(folder / "in.txt", text);
  BuildOptions options = options_for(folder, {"in.txt"});
  options.separator = "|", options.shard_tokens = 7;
  const DataInfo info = build_data(Tokenizer(), options);
  EXPECT_EQ(info.train.shards, (info.train.tokens + 6) / 7);
  EXPECT_EQ(info.train.documents + info.val.documents, 40);
  const TokenSource train = TokenSource::open((folder / "out").string(), 256);
  EXPECT_EQ(train.documents(), info.train.documents);
  std::string joined = text_of(folder / "out", Tokenizer(), "train") + text_of(folder / "out", Tokenizer(), "val");
  std::erase(text, '|');
  EXPECT_EQ(joined, text);
}

TEST(Build, SameBytesForAnyThreadCountAndAgain) {
  const test::TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "the cat sat on mat " + std::to_string(i * 7919) + (i % 10 == 0 ? "|" : " ");
  put(folder / "in.txt", text);
  const std::string_view view = text;
  const Tokenizer bpe = train_tokenizer({TokenizerKind::kBpe, 300, {}, BpeTie::kGreatestBytes}, std::span(&view, 1));
  BuildOptions options = options_for(folder, {"in.txt"});
  options.separator = "|", options.overwrite = true;
  const int before = num_threads();
  std::string first;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    build_data(bpe, options);
    const std::string content = read_file(folder / "out/train_00000.tok") + read_file(folder / "out/val_00000.tok") +
                                read_file(folder / "out/data.json");
    if (first.empty()) first = content;
    EXPECT_EQ(content, first) << threads;
  }
  set_num_threads(before);
}

// Over 32 MiB in one line: the stream encoder, with the same ids as the whole at once.
TEST(Build, OneHugeLine) {
  const test::TempFolder folder;
  std::string text;
  while (text.size() < (size_t{33} << 20)) text += "abcdefghijklmnop\xC3\xA9 ";
  put(folder / "in.txt", text);
  BuildOptions options = options_for(folder, {"in.txt"});
  options.val_fraction = 0;
  int64_t last = 0;
  const DataInfo info = build_data(Tokenizer(), options, [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, static_cast<int64_t>(text.size()));
    last = done;
  });
  EXPECT_EQ(last, static_cast<int64_t>(text.size()));
  EXPECT_EQ(info.train.tokens, static_cast<int64_t>(text.size()));
  EXPECT_EQ(text_of(folder / "out", Tokenizer(), "train"), text);
}

TEST(Build, BinaryInputIsExactForBytesAndRefusedForChar) {
  const test::TempFolder folder;
  std::string binary;
  for (int i = 0; i < 1000; ++i) binary += static_cast<char>(i * 37 % 256);
  put(folder / "in.bin", binary);
  build_data(Tokenizer(), options_for(folder, {"in.bin"}));
  EXPECT_EQ(text_of(folder / "out", Tokenizer(), "train") + text_of(folder / "out", Tokenizer(), "val"), binary);
  BuildOptions again = options_for(folder, {"in.bin"});
  again.out = folder / "char";
  expect_error([&] { build_data(chars_of("abc"), again); }, "in.bin: ");
  EXPECT_FALSE(fs::exists(again.out));
}

TEST(Build, BadInputIsNamedAndNothingAppears) {
  const test::TempFolder folder;
  put(folder / "empty.txt", "");
  put(folder / "one.txt", "x");
  put(folder / "seps.txt", "||||");
  const Tokenizer bytes;
  const auto refused = [&](BuildOptions options, const std::string& part) {
    expect_error([&] { build_data(bytes, options); }, part);
    EXPECT_FALSE(fs::exists(folder / "out"));
    EXPECT_FALSE(fs::exists(folder / ".out.building"));
  };
  refused(options_for(folder, {"none.txt"}), "none.txt: no such file");
  refused(options_for(folder, {"*.none"}), "no file matches the pattern");
  refused(options_for(folder, {"empty.txt"}), "empty.txt: is empty");
  refused(options_for(folder, {"one.txt"}), "too few to keep 0.1 of them");
  refused(options_for(folder, {}), "no input");
  refused(options_for(folder, {""}), "is a folder");
  BuildOptions options = options_for(folder, {"seps.txt"});
  options.separator = "|";
  refused(options, "seps.txt: holds separators only");
  options = options_for(folder, {"one.txt"});
  options.val_fraction = 1;
  refused(options, "val_fraction is 1");
  options.val_fraction = 0, options.shard_tokens = 0;
  refused(options, "shard_tokens is 0");
  put(folder / "ten.txt", "0123456789");
  options = options_for(folder, {"ten.txt"});
  options.shard_tokens = 1, options.most_shards = 5;
  refused(options, "more than 5 shards of 1 tokens; give a larger shard_tokens");
}

TEST(Build, AFolderThatIsThereIsNotLost) {
  const test::TempFolder folder;
  put(folder / "in.txt", "some text that is long enough");
  BuildOptions options = options_for(folder, {"in.txt"});
  make_folder(options.out);
  put(options.out / "precious", "mine");
  expect_error([&] { build_data(Tokenizer(), options); }, "out: is not empty");
  options.overwrite = true;
  expect_error([&] { build_data(Tokenizer(), options); }, "not a data folder and is not overwritten");
  EXPECT_EQ(read_file(options.out / "precious"), "mine");
  fs::remove(options.out / "precious");
  build_data(Tokenizer(), options);
  const std::string before = read_file(options.out / "data.json");
  put(folder / "in.txt", "");
  expect_error([&] { build_data(Tokenizer(), options); }, "is empty");
  EXPECT_EQ(read_file(options.out / "data.json"), before);
  options.out = folder / "in.txt";
  expect_error([&] { build_data(Tokenizer(), options); }, "in.txt: is a file");
}

TEST(Build, DataInfoReadsBack) {
  const test::TempFolder folder;
  put(folder / "in.txt", "some text that is long enough");
  BuildOptions options = options_for(folder, {"in.txt"});
  options.out = (folder / "out").string() + "/";  // with a slash at the end
  const DataInfo made = build_data(Tokenizer(), options);
  const DataInfo read = read_data_info(options.out);
  EXPECT_EQ(read.train.tokens, made.train.tokens);
  EXPECT_EQ(read.val.bytes, made.val.bytes);
  EXPECT_EQ(read.tokenizer_kind, "byte");
  EXPECT_EQ(read.tokenizer_hash, Tokenizer().hash());
  EXPECT_EQ(read.vocab_size, 256);
  EXPECT_EQ(Tokenizer::load(folder / "out/tokenizer").hash(), Tokenizer().hash());
  put(folder / "out/data.json", "{\"train\": {}}");
  expect_error([&] { read_data_info(folder / "out"); }, "data.json: the key");
  expect_error([&] { read_data_info(folder / "none"); }, "data.json: no such file");
}

TEST(Build, FullDiskLeavesTheFolderAsItWas) {
  const test::TempFolder folder;
  const fs::path disk = folder / "disk";
  make_folder(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "a small tmpfs cannot be mounted here (" << std::strerror(errno) << "); run this test as root";
  put(folder / "small.txt", std::string(1000, 'x'));
  put(folder / "large.txt", std::string(1'000'000, 'x'));
  BuildOptions options = options_for(folder, {"small.txt"});
  options.out = disk / "out";
  build_data(Tokenizer(), options);
  options.inputs = {(folder / "large.txt").string()}, options.overwrite = true;
  EXPECT_THROW(build_data(Tokenizer(), options), RunError);
  expect_error([&] { build_data(Tokenizer(), options); }, "no space left on device");
  EXPECT_EQ(read_data_info(disk / "out").train.tokens, 900);
  EXPECT_FALSE(fs::exists(disk / ".out.building"));
  ::umount2(disk.c_str(), MNT_DETACH);
}

// The split of nanoGPT's character data: int(n * 0.9) characters train.
TEST(Build, TinyShakespeareByCharacter) {
  TALLY_SHARED_FILE(path, "corpus/text/tinyshakespeare.txt");
  const test::TempFolder folder;
  const Tokenizer tokenizer = chars_of(read_file(path));
  EXPECT_EQ(tokenizer.vocab_size(), 65);
  BuildOptions options = options_for(folder, {});
  options.inputs = {path.string()};
  const DataInfo info = build_data(tokenizer, options);
  EXPECT_EQ(info.train.tokens, 1'003'854);
  EXPECT_EQ(info.val.tokens, 111'540);
  EXPECT_EQ(text_of(folder / "out", tokenizer, "train") + text_of(folder / "out", tokenizer, "val"), read_file(path));
}

}  // namespace
}  // namespace tally
