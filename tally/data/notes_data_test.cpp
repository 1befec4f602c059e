// The course notes' numbered facts about data loading: one test a line.
#include <numeric>

#include "tally/data/batch.h"
#include "tally/io/npy.h"
#include "tests/support/support.h"

namespace tally {
namespace {

// 1 .. 10 as numpy's tofile writes an int32 array.
class Notes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<int32_t> ids(10);
    std::iota(ids.begin(), ids.end(), 1);
    write_raw_ids(file(), ids, IdType::kI32);
  }
  fs::path file() const { return folder_ / "data.npy"; }  // the notes' name
  TokenSource data() const { return TokenSource::open(file().string() + ":i32", 11); }

 private:
  test::TempFolder folder_;
};

TEST_F(Notes, A196_RawBytesWithoutAHeader) {
  const std::string bytes = read_file(file());
  EXPECT_EQ(bytes.size(), 40u);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[36], 10);
}

TEST_F(Notes, A197_ReadLazilyAsInt32) {
  const TokenSource source = data();
  EXPECT_EQ(source.size(), 10);
  std::vector<int32_t> all(10);
  source.read(0, 10, all.data());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(all[i], i + 1);
  EXPECT_EQ(source.at(9), 10);
  const MappedFile mapped(file());  // numpy's memmap
  const IdSpan ids = parse_raw_ids(mapped.bytes(), IdType::kI32, "data.npy");
  EXPECT_EQ(ids.size(), 10);
  EXPECT_EQ(static_cast<const void*>(ids.data.data()), mapped.bytes().data());  // no copy
}

TEST_F(Notes, A198_NoNpyHeaderInAFileOfThatName) {
  test::expect_error([&] { NpyFile{file()}; }, "data.npy");
  test::expect_error([&] { TokenSource::open(file().string(), 11); }, "data.npy");
  EXPECT_EQ(MappedFile(file()).bytes().size(), 40u);  // of bytes, memmap's default, there are 40
  EXPECT_EQ(data().size(), 10);
}

TEST_F(Notes, A199_ShapeAndDeviceOfABatch) {
  const Tensor x = get_batch(data(), 2, 4);
  EXPECT_EQ(x.sizes(), Dims(2, 4));
  EXPECT_EQ(x.device(), kCpu);
  EXPECT_EQ(get_batch(data(), 2, 4, kMetaCuda).device(), kMetaCuda);
  test::expect_error([&] { get_batch(data(), 2, 11); }, "10 tokens do not hold a row of 11");
  test::expect_error([&] { get_batch(data(), 0, 4); }, "must be at least 1");
}

TEST_F(Notes, A200_RowsAreContiguousRuns) {
  Generator g(0);
  int seen[11] = {};
  for (int k = 0; k < 200; ++k) {
    Tensor next;
    const std::vector<int32_t> x = get_batch(data(), 2, 4, kCpu, g).to_vector<int32_t>();
    const std::vector<int32_t> with = get_batch(data(), 2, 4, kCpu, g, &next).to_vector<int32_t>();
    for (int row = 0; row < 2; ++row) {
      ASSERT_TRUE(x[4 * row] >= 1 && x[4 * row] <= 7);
      ASSERT_TRUE(with[4 * row] >= 1 && with[4 * row] <= 6);
      ++seen[x[4 * row]];
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(x[4 * row + i], x[4 * row] + i);
        EXPECT_EQ(next.to_vector<int32_t>()[4 * row + i], with[4 * row + i] + 1);
      }
    }
  }
  for (int first = 1; first <= 7; ++first) EXPECT_GT(seen[first], 20);
  Generator again(0);
  const Tensor a = get_batch(data(), 2, 4, kCpu, again), b = get_batch(data(), 2, 4, kCpu, again.manual_seed(0));
  EXPECT_EQ(a.to_vector(), b.to_vector());
}

TEST_F(Notes, A203_DataIsASequenceOfIntegerIds) {
  EXPECT_EQ(get_batch(data(), 1, 10).dtype(), DType::kI32);
  test::expect_error([&] { get_batch(TokenSource::open(file().string() + ":i32", 10), 1, 10); }, "10");
}

}  // namespace
}  // namespace tally
