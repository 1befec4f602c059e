// Shards: layout byte by byte, what is refused, and changed bytes.
#include "tally/io/shard.h"

#include <fstream>

#include "tally/io/corrupt.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::bytes_of;
using test::expect_error;

constexpr TokenizerHash kHash = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xab};

void write_small(const fs::path& path, int64_t vocab = 300) {
  ShardWriter writer(path, vocab, kHash);
  const std::vector<int32_t> first = {5, 6, 7}, second = {8, 299};
  writer.add(first);
  writer.end_document();
  writer.end_document();  // an empty document
  writer.add(second);
  writer.end_document();
  writer.commit();
}

TEST(Shard, LayoutIsAsDocumented) {
  const test::TempFolder folder;
  write_small(folder / "a.tok");
  const std::string content = read_file(folder / "a.tok");
  ASSERT_EQ(content.size(), 256u + 5 * 2 + 3 * 8);
  const Bytes b = bytes_of(content);
  EXPECT_EQ(content.substr(0, 8), "TALLYTOK");
  EXPECT_EQ(load_number<uint32_t>(b, 8), 1u);
  EXPECT_EQ(load_number<uint32_t>(b, 12), 1u);
  EXPECT_EQ(load_number<uint64_t>(b, 16), 5u);
  EXPECT_EQ(load_number<uint64_t>(b, 24), 3u);
  EXPECT_EQ(std::memcmp(content.data() + 32, kHash.data(), 16), 0);
  EXPECT_EQ(content.substr(64, 192), std::string(192, '\0'));
  EXPECT_EQ(load_number<uint16_t>(b, 256 + 8), 299);
  EXPECT_EQ(load_number<uint64_t>(b, 266), 3u);
  EXPECT_EQ(load_number<uint64_t>(b, 266 + 16), 5u);
}

TEST(Shard, ReadsBack) {
  const test::TempFolder folder;
  for (const int64_t vocab : {300, 65536, 65537, 1 << 30}) {
    write_small(folder / "a.tok", vocab);
    const Shard shard(folder / "a.tok");
    shard.verify();
    shard.require_tokenizer(kHash);
    EXPECT_EQ(shard.ids().type, vocab <= 65536 ? IdType::kU16 : IdType::kU32);
    EXPECT_EQ(shard.tokens(), 5);
    ASSERT_EQ(shard.documents(), 3);
    EXPECT_EQ(shard.document_end(0), 3);
    EXPECT_EQ(shard.document_end(1), 3);
    EXPECT_EQ(shard.document_end(2), 5);
    std::vector<int32_t> ids(5);
    EXPECT_EQ(shard.ids().copy(0, 5, vocab, ids.data()), -1);
    EXPECT_EQ(ids, (std::vector<int32_t>{5, 6, 7, 8, 299}));
  }
}

TEST(Shard, ManyTokensInPieces) {
  const test::TempFolder folder;
  std::vector<int32_t> ids(200'000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7919 % 50'000);
  ShardWriter writer(folder / "a.tok", 50'000, kHash);
  writer.add(std::span(ids).first(3));
  writer.add(std::span(ids).subspan(3));
  EXPECT_EQ(writer.tokens(), 200'000);
  EXPECT_FALSE(fs::exists(folder / "a.tok"));
  writer.commit();
  const Shard shard(folder / "a.tok");
  shard.verify();
  std::vector<int32_t> back(ids.size());
  EXPECT_EQ(shard.ids().copy(0, shard.tokens(), 50'000, back.data()), -1);
  EXPECT_EQ(back, ids);
  EXPECT_EQ(shard.documents(), 0);
}

TEST(Shard, EmptyShardIsLegal) {
  const test::TempFolder folder;
  ShardWriter(folder / "a.tok", 10, kHash).commit();
  const Shard shard(folder / "a.tok");
  shard.verify();
  EXPECT_EQ(shard.tokens(), 0);
}

TEST(Shard, WriterRefusesIdsOutsideTheVocabulary) {
  const test::TempFolder folder;
  ShardWriter writer(folder / "a.tok", 10, kHash);
  const std::vector<int32_t> large = {3, 10}, negative = {-1};
  expect_error([&] { writer.add(large); }, "a.tok: token id 10 is outside the vocabulary of 10");
  expect_error([&] { writer.add(negative); }, "token id -1");
  expect_error([&] { ShardWriter(folder / "b.tok", 0, kHash); }, "vocabulary of 0");
}

TEST(Shard, TornShardNamesTheMissingBytes) {
  const test::TempFolder folder;
  const fs::path path = folder / "a.tok";
  write_small(path);
  const std::string whole = read_file(path);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{255}, size_t{256},
                            whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    const size_t missing = size < 256 ? 256 - size : whole.size() - size;
    expect_error([&] { Shard{path}; }, "a.tok: truncated");
    expect_error([&] { Shard{path}; }, " " + std::to_string(missing) + " missing");
  }
  std::ofstream(path, std::ios::binary) << whole << "x";
  expect_error([&] { Shard{path}; }, "1 bytes lie behind");
  std::ofstream(path, std::ios::binary) << "plain text, no shard";
  expect_error([&] { Shard{path}; }, "is not a .tok shard");
}

TEST(Shard, OtherTokenizerNamesBothHashes) {
  const test::TempFolder folder;
  write_small(folder / "a.tok");
  TokenizerHash other = kHash;
  other[0] = 0xff;
  const Shard shard(folder / "a.tok");
  expect_error([&] { shard.require_tokenizer(other); }, hex(kHash));
  expect_error([&] { shard.require_tokenizer(other); }, "ff02030405060708090a0b0c0d0e0fab");
}

TEST(Shard, HashAsText) {
  EXPECT_EQ(hex(kHash), "0102030405060708090a0b0c0d0e0fab");
  EXPECT_EQ(tokenizer_hash_from_hex(hex(kHash), "x"), kHash);
  for (const char* bad : {"", "01", "0102030405060708090a0b0c0d0e0fag", "0102030405060708090a0b0c0d0e0fab0"})
    expect_error([&] { tokenizer_hash_from_hex(bad, "data.json"); }, "data.json: a tokenizer hash is 32");
}

TEST(Shard, EveryChangedByteIsRefusedOrVerifyFindsIt) {
  const test::TempFolder folder;
  write_small(folder / "a.tok");
  const std::string whole = read_file(folder / "a.tok");
  const test::CorruptCounts counts = test::try_corrupted(whole, "a.tok", [](Bytes b) {
    const Shard shard = Shard::parse(b, "a.tok");
    shard.verify();
    shard.require_tokenizer(kHash);
  });
  // What loads is what was not changed: the value was there already.
  int unchanged = 0;
  for (const char c : whole)
    for (const int value : test::kCorruptValues) unchanged += c == static_cast<char>(value) ? 1 : 0;
  EXPECT_EQ(counts.loaded, unchanged);
}

TEST(Shard, RightSumsDoNotHideWrongEnds) {
  const test::TempFolder folder;
  ShardWriter writer(folder / "a.tok", 10, kHash);
  writer.end_document();
  const std::vector<int32_t> ids = {1, 2, 3};
  writer.add(ids);
  writer.end_document();
  writer.commit();
  std::string whole = read_file(folder / "a.tok");
  whole[256 + 6] = 9;  // the first document ends behind the shard
  const Shard shard = Shard::parse(bytes_of(whole), "a.tok");
  expect_error([&] { shard.document_end(0); }, "document 0 ends at 9, behind the 3 tokens");
  expect_error([&] { shard.verify(); }, "the document ends have the sum");
}

}  // namespace
}  // namespace tally
