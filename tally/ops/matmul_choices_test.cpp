// The file of chosen algorithms: kept between processes, damaged lines left out, the oldest dropped.
#include "tally/ops/matmul_choices.h"

#include <algorithm>
#include <cstdlib>

#include "tests/support/support.h"

namespace tally {
namespace {

using Key = std::vector<int64_t>;
const MatmulChoices::Algorithm kOne{1, 2, 3, 4, 5, 6, 7, 0xFFFFFFFFFFFFFFFFu}, kOther{9};

TEST(MatmulChoices, AreKept) {
  const test::TempFolder folder;
  const fs::path file = folder / "new" / "choices.txt";
  MatmulChoices first(file);
  EXPECT_FALSE(first.find(Key{1, 2}));
  first.keep(Key{1, 2}, kOne);
  first.keep(Key{1, -2}, kOther);
  EXPECT_EQ(first.find(Key{1, 2}), kOne);
  const MatmulChoices second(file);
  EXPECT_EQ(second.find(Key{1, 2}), kOne);
  EXPECT_EQ(second.find(Key{1, -2}), kOther);
  EXPECT_FALSE(second.find(Key{1}));
  EXPECT_FALSE(second.find(Key{1, 2, 0}));
  first.keep(Key{1, 2}, kOther);
  EXPECT_EQ(MatmulChoices(file).find(Key{1, 2}), kOther);
}

TEST(MatmulChoices, OfTwoProcessesAreJoined) {
  const test::TempFolder folder;
  MatmulChoices a(folder / "choices.txt"), b(folder / "choices.txt");
  a.keep(Key{1}, kOne);
  b.keep(Key{2}, kOther);
  a.keep(Key{3}, kOne);
  const MatmulChoices all(folder / "choices.txt");
  for (const int64_t k : {1, 2, 3}) EXPECT_TRUE(all.find(Key{k})) << k;
}

TEST(MatmulChoices, DamagedLinesAreLeftOut) {
  const test::TempFolder folder;
  const fs::path file = folder / "choices.txt";
  MatmulChoices(file).keep(Key{7, 8}, kOne);
  const std::string line = read_file(file);
  ASSERT_EQ(line.back(), '\n');
  // Every change of one character, and every beginning of the line.
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    std::string bad = line;
    bad[i] = bad[i] == '1' ? '2' : '1';
    if (bad == line) continue;
    write_file_atomic(file, bad);
    EXPECT_FALSE(MatmulChoices(file).find(Key{7, 8})) << bad;
    write_file_atomic(file, line.substr(0, i));
    EXPECT_FALSE(MatmulChoices(file).find(Key{7, 8})) << i;
  }
  write_file_atomic(file, "\n\nnonsense\n = \n : = 0\n" + line + line.substr(0, 9));
  MatmulChoices mixed(file);
  EXPECT_EQ(mixed.find(Key{7, 8}), kOne);
  mixed.keep(Key{1}, kOther);
  EXPECT_EQ(MatmulChoices(file).find(Key{7, 8}), kOne);
  EXPECT_EQ(read_file(file).find("nonsense"), std::string::npos);
}

TEST(MatmulChoices, TheOldestGoFirst) {
  const test::TempFolder folder;
  const fs::path file = folder / "choices.txt";
  MatmulChoices choices(file);
  choices.keep(Key{-1}, kOne);
  std::string text = read_file(file);
  fs::remove(file);
  MatmulChoices(file).keep(Key{-2}, kOne);
  const std::string line = read_file(file);
  for (size_t i = 1; i < MatmulChoices::kMost; ++i) text += line;
  write_file_atomic(file, text);  // full: -1, then -2 many times
  choices.keep(Key{5}, kOther);
  const MatmulChoices after(file);
  EXPECT_EQ(after.find(Key{5}), kOther);
  EXPECT_EQ(after.find(Key{-2}), kOne);
  EXPECT_FALSE(after.find(Key{-1}));
  const std::string now = read_file(file);
  EXPECT_EQ(std::count(now.begin(), now.end(), '\n'), static_cast<int64_t>(MatmulChoices::kMost));
}

TEST(MatmulChoices, CannotBeWritten) {
  const test::TempFolder folder;
  write_file_atomic(folder / "file", "");
  MatmulChoices choices(folder / "file" / "choices.txt");
  choices.keep(Key{1}, kOne);  // no error
  EXPECT_EQ(choices.find(Key{1}), kOne);
  choices.keep(Key{2}, kOther);
  EXPECT_EQ(choices.find(Key{1}), kOne);
}

TEST(MatmulChoices, AFileForEachCardAndVersion) {
  const char* const before = std::getenv("TALLY_CACHE");
  const std::string saved = before ? before : "";
  setenv("TALLY_CACHE", "/a/cache", 1);
  EXPECT_EQ(matmul_choices_path("NVIDIA H200/x", 130100), "/a/cache/matmul-NVIDIA_H200_x-130100.txt");
  before ? setenv("TALLY_CACHE", saved.c_str(), 1) : unsetenv("TALLY_CACHE");
}

}  // namespace
}  // namespace tally
