// Every kind of source gives the same ids; reads cross shards; wrong files and ids are named.
#include "tally/data/tokens.h"

#include <fstream>

#include "tally/io/npy.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;

constexpr TokenizerHash kHash = {1, 2, 3};

std::vector<int32_t> numbers(int n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) ids[static_cast<size_t>(i)] = i * 37 % 300;
  return ids;
}

void write_shard(const fs::path& path, std::span<const int32_t> ids, const TokenizerHash& hash = kHash) {
  ShardWriter writer(path, 300, hash);
  writer.add(ids);
  writer.end_document();
  writer.commit();
}

std::vector<int32_t> all(const TokenSource& source) {
  std::vector<int32_t> ids(static_cast<size_t>(source.size()));
  source.read(0, source.size(), ids.data());
  return ids;
}

TEST(Tokens, EveryKindOfFile) {
  const test::TempFolder folder;
  const std::vector<int32_t> ids = numbers(50);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  for (const char* type : {"u16", "u32", "i32", "i64", "u64"}) {
    const std::string name = std::string("x.") + type;
    write_raw_ids(folder / name, ids, *id_type_from_name(type));
    EXPECT_EQ(all(TokenSource::open(path(name.c_str()), 300)), ids) << type;
    write_raw_ids(folder / "plain", ids, *id_type_from_name(type));
    EXPECT_EQ(all(TokenSource::open(path("plain") + ":" + type, 300)), ids) << type;
  }
  write_raw_ids(folder / "nano.bin", ids, IdType::kU16);
  EXPECT_EQ(all(TokenSource::open(path("nano.bin"), 300)), ids);
  write_raw_ids(folder / "nano.bin", ids, IdType::kI32);
  EXPECT_EQ(all(TokenSource::open(path("nano.bin:i32"), 300)), ids);
  write_npy(folder / "x.npy", DType::kI32, Dims(50), ids.data());
  EXPECT_EQ(all(TokenSource::open(path("x.npy"), 300)), ids);
  write_shard(folder / "x.tok", ids);
  const TokenSource shard = TokenSource::open(path("x.tok"), 300);
  EXPECT_EQ(all(shard), ids);
  EXPECT_EQ(shard.documents(), 1);
  EXPECT_EQ(shard.at(49), ids[49]);
  EXPECT_EQ(TokenSource::open(path("x.npy"), 300).documents(), 0);
}

TEST(Tokens, FolderOfShardsReadsAcrossThem) {
  const test::TempFolder folder;
  const std::vector<int32_t> ids = numbers(100);
  write_shard(folder / "train_00000.tok", std::span(ids).first(10));
  write_shard(folder / "train_00001.tok", std::span(ids).subspan(10, 0));  // an empty one
  write_shard(folder / "train_00002.tok", std::span(ids).subspan(10, 1));
  write_shard(folder / "train_00003.tok", std::span(ids).subspan(11));
  write_shard(folder / "val_00000.tok", std::span(ids).first(7));
  const TokenSource train = TokenSource::open(folder.path().string(), 300);
  EXPECT_EQ(train.size(), 100);
  EXPECT_EQ(train.documents(), 4);
  for (int64_t start = 0; start <= 100; ++start)
    for (int64_t n = 0; n <= 100 - start; n += 7) {
      std::vector<int32_t> part(static_cast<size_t>(n));
      train.read(start, n, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), ids.begin() + start)) << start << " " << n;
    }
  EXPECT_EQ(TokenSource::open(folder.path().string(), 300, "val").size(), 7);
  train.verify();
  train.require_tokenizer(kHash);
  expect_error([&] { train.require_tokenizer({9}); }, "train_00000.tok: was made by the tokenizer 0102");
  expect_error([&] { TokenSource::open(folder.path().string(), 300, "test"); }, "holds no test_*.tok shard");
}

TEST(Tokens, ShardsOfTwoTokenizersAreRefused) {
  const test::TempFolder folder;
  const std::vector<int32_t> ids = numbers(10);
  write_shard(folder / "train_00000.tok", ids);
  write_shard(folder / "train_00001.tok", ids, {7});
  expect_error([&] { TokenSource::open(folder.path().string(), 300); },
               "train_00001.tok: was made by the tokenizer 07");
}

TEST(Tokens, ErrorsNameFileAndPosition) {
  const test::TempFolder folder;
  std::vector<int32_t> ids = numbers(20);
  ids[13] = 300;
  write_raw_ids(folder / "x.u16", ids, IdType::kU16);
  const TokenSource source = TokenSource::open((folder / "x.u16").string(), 300);
  std::vector<int32_t> out(20);
  source.read(0, 13, out.data());
  expect_error([&] { source.read(5, 15, out.data()); },
               "x.u16: token 300 at position 13 is outside the vocabulary of 300");
  expect_error([&] { source.read(15, 6, out.data()); }, "tokens 15 to 21 were asked for, but the data holds 20");
  expect_error([&] { source.at(-1); }, "but the data holds 20");
  expect_error([&] { TokenSource::open((folder / "none").string(), 300); }, "none: no such file");
  std::ofstream(folder / "text") << "abc";
  expect_error([&] { TokenSource::open((folder / "text").string(), 300); }, "add :u16, :u32 or :i32");
  expect_error([&] { TokenSource::open((folder / "text").string() + ":u16", 300); }, "not a multiple of 2");
  std::ofstream(folder / "x.tok") << "abc";
  expect_error([&] { TokenSource::open((folder / "x.tok").string(), 300); }, "x.tok: is not a .tok shard");
  const std::vector<float> floats(4);
  write_npy(folder / "f.npy", DType::kF32, Dims(4), floats.data());
  expect_error([&] { TokenSource::open((folder / "f.npy").string(), 300); }, "f.npy: <f4 numbers cannot be token ids");
  write_npy(folder / "m.npy", DType::kI32, Dims(2, 2), floats.data());
  expect_error([&] { TokenSource::open((folder / "m.npy").string(), 300); }, "must have one axis");
  EXPECT_EQ(TokenSource().size(), 0);
}

TEST(Tokens, TenThousandShardsWithFewOpenFiles) {
  const test::TempFolder folder;
  constexpr int kShards = 10'000;
  const std::vector<int32_t> ids = {0, 1, 2};
  write_shard(folder / "train_00000.tok", ids);
  for (int i = 1; i < kShards; ++i)
    fs::create_hard_link(folder / "train_00000.tok", folder / fmt::format("train_{:05d}.tok", i));
  const TokenSource source = TokenSource::open(folder.path().string(), 300);
  EXPECT_EQ(source.size(), 3 * kShards);
  EXPECT_LE(source.open_files(), 64);
  for (int64_t i = 0; i < 5'000; ++i) {
    const int64_t position = i * 7919 % (3 * kShards - 4);
    int32_t part[4];
    source.read(position, 4, part);
    for (int64_t k = 0; k < 4; ++k) ASSERT_EQ(part[k], (position + k) % 3);
  }
  EXPECT_EQ(source.open_files(), 64);
}

// What may happen to a shard under a run; each names the file and leaves the program alive.
TEST(Tokens, ShardsThatChangeWhileTheyAreRead) {
  const test::TempFolder folder;
  const std::vector<int32_t> ids = numbers(5000);
  const fs::path path = folder / "train_00000.tok";
  std::vector<int32_t> out(100);
  const auto opened = [&] {
    write_shard(path, ids);
    TokenSource source = TokenSource::open(folder.path().string(), 300);
    source.read(4000, 100, out.data());
    return source;
  };
  const auto expect_run_error = [&](const TokenSource& source, const std::string& part) {
    expect_error([&] { source.read(4000, 100, out.data()); }, "train_00000.tok: " + part);
    EXPECT_THROW(source.read(4000, 100, out.data()), RunError);
  };
  TokenSource source = opened();
  fs::resize_file(path, 3000);
  expect_run_error(source, "ends at byte 3000 now; it held 10264 when it was opened");
  source = opened();
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(9000).put('x');
  expect_run_error(source, "damaged: the tokens have the sum");
  source = opened();
  write_shard(path, ids);  // the same content under the name: the open file still holds it
  source.read(4000, 100, out.data());
  const std::string content = read_file(path);
  std::ofstream(path, std::ios::binary) << content;  // the same content in the same file
  source = opened();
  std::ofstream(path, std::ios::binary) << content;
  source.read(4000, 100, out.data());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), ids.begin() + 4000));
  const std::vector<int32_t> others(5000, 7);
  fs::remove(path);
  source = opened();
  write_shard(folder / "other", others);
  std::ofstream(path, std::ios::binary) << read_file(folder / "other");
  expect_run_error(source, "is another shard now");
}

TEST(Tokens, ShardsThatGoBeforeTheirFirstRead) {
  const test::TempFolder folder;
  write_shard(folder / "train_00000.tok", numbers(50));
  write_shard(folder / "train_00001.tok", numbers(50));
  const TokenSource source = TokenSource::open(folder.path().string(), 300);
  std::vector<int32_t> out(100);
  source.read(0, 50, out.data());
  fs::rename(folder / "train_00001.tok", folder / "away");
  source.read(0, 50, out.data());
  // Its header was read when the folder was opened, so its descriptor is still there.
  source.read(0, 100, out.data());
  for (int i = 2; i < 80; ++i) write_shard(folder / fmt::format("train_{:05d}.tok", i), numbers(50));
  fs::rename(folder / "away", folder / "train_00001.tok");
  const TokenSource many = TokenSource::open(folder.path().string(), 300);
  fs::remove(folder / "train_00001.tok");
  expect_error([&] { many.read(0, 100, out.data()); }, "train_00001.tok: is gone since it was opened");
  write_shard(folder / "train_00001.tok", numbers(50));
  many.read(0, 100, out.data());  // back again
}

TEST(Tokens, CopiesShareTheFiles) {
  const test::TempFolder folder;
  const std::vector<int32_t> ids = numbers(20);
  write_shard(folder / "x.tok", ids);
  TokenSource copy;
  {
    const TokenSource source = TokenSource::open((folder / "x.tok").string(), 300);
    copy = source;
  }
  EXPECT_EQ(all(copy), ids);
}

}  // namespace
}  // namespace tally
