// Records are written at once, or wait, whole, until the disk takes them.
#include "tally/train/append_file.h"

#include <fstream>
#include <optional>

#include "tally/train/train_test_disk.h"
#include "tests/support/support.h"

namespace tally {
namespace {

using test::FileSizeLimit;
using test::TempFolder;

TEST(AppendFile, WaitsForTheDiskAndLosesNothing) {
  TempFolder folder;
  const fs::path path = folder / "log";
  std::ofstream(path) << "0\n";
  AppendFile file(path);
  file.add("1\n");
  EXPECT_EQ(read_file(path), "0\n1\n");
  EXPECT_EQ(file.news(), "");
  {
    const FileSizeLimit full(7);
    file.add("two\n");  // three of its bytes would fit
    EXPECT_EQ(read_file(path), "0\n1\n");
    file.add("3\n");
    EXPECT_EQ(file.pending(), 6u);
    const std::string news = file.news();
    EXPECT_NE(news.find("log: cannot be written (File too large)"), std::string::npos) << news;
    file.flush();
    EXPECT_EQ(file.news(), "");  // said once
    EXPECT_EQ(read_file(path), "0\n1\n");
  }
  file.flush();
  EXPECT_EQ(read_file(path), "0\n1\ntwo\n3\n");
  EXPECT_NE(file.news().find("is written again, nothing is lost"), std::string::npos);
  EXPECT_EQ(file.pending(), 0u);
  file.add("4\n");
  EXPECT_EQ(read_file(path), "0\n1\ntwo\n3\n4\n");
}

TEST(AppendFile, WhatWaitsIsBoundedAndTheRestCounted) {
  TempFolder folder;
  const fs::path path = folder / "log";
  std::ofstream(path) << "";
  AppendFile file(path);
  const std::string record(1000, 'x');
  {
    const FileSizeLimit full(10);
    for (int i = 0; i < 2000; ++i) file.add(record);
    EXPECT_LE(file.pending(), AppendFile::kMostPending);
    EXPECT_GT(file.pending(), AppendFile::kMostPending - 1000);
    file.news();
  }
  file.flush();
  const size_t written = AppendFile::kMostPending / 1000;
  EXPECT_EQ(fs::file_size(path), written * 1000);
  EXPECT_NE(file.news().find(fmt::format("{} records were lost", 2000 - written)), std::string::npos);
}

TEST(AppendFile, TheLastRecordsAreWrittenAtTheEnd) {
  TempFolder folder;
  const fs::path path = folder / "log";
  std::ofstream(path) << "";
  std::optional<AppendFile> file(path);
  {
    const FileSizeLimit full(1);
    file->add("late\n");
  }
  file.reset();
  EXPECT_EQ(read_file(path), "late\n");
}

TEST(AppendFile, MustBeThere) {
  TempFolder folder;
  test::expect_error([&] { AppendFile(folder / "none"); }, "none: cannot be opened for writing");
}

}  // namespace
}  // namespace tally
