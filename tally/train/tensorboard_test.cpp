// Bytes of an event file worked out by hand, the published check value of CRC-32C, cuts at a step and at torn ends.
#include "tally/train/tensorboard.h"

#include <fstream>

#include "tests/support/support.h"

namespace tally {
namespace {

using test::TempFolder;

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Lengths of the records.
std::vector<size_t> records(const std::string& bytes) {
  std::vector<size_t> sizes;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    sizes.push_back(16 + length);
    at += 16 + length;
  }
  return sizes;
}

TEST(TensorBoard, Crc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);            // the check value of the catalogue of CRCs
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(TensorBoard, EventOfTwoScalars) {
  TempFolder folder;
  {
    TensorBoardFile file(folder / "tb", 0);
    file.add(300, {{"a/b", 1.0}, {"c", -2.5}});
  }
  const std::vector<fs::path> files = files_of(folder / "tb");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].filename(), "events.out.tfevents.0000000001.tally");
  const std::string bytes = read_file(files[0]);
  const std::vector<size_t> sizes = records(bytes);
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_NE(bytes.substr(0, sizes[0]).find(std::string("\x1a\x0d", 2) + "brain.Event:2"), std::string::npos);
  const std::string event = bytes.substr(sizes[0] + 12, sizes[1] - 16);
  EXPECT_EQ(event[0], '\x09');  // wall_time, eight bytes
  const char wanted[] =
      "\x10\xac\x02"  // step 300
      "\x2a\x16"      // summary of 22 bytes
      "\x0a\x0a"
      "\x0a\x03"
      "a/b"
      "\x15\x00\x00\x80\x3f"  // value of 10 bytes: tag, 1.0f
      "\x0a\x08"
      "\x0a\x01"
      "c"
      "\x15\x00\x00\x20\xc0";  // value of 8 bytes: tag, -2.5f
  EXPECT_EQ(event.substr(9), std::string(wanted, sizeof wanted - 1));
}

TEST(TensorBoard, CutsBehindTheStepAndAtATornEnd) {
  TempFolder folder;
  {
    TensorBoardFile file(folder / "tb", 0);
    for (int64_t step = 1; step <= 200; ++step) file.add(step, {{"x", 1.0}});
  }
  const std::string bytes = read_file(files_of(folder / "tb")[0]);
  const std::vector<size_t> sizes = records(bytes);
  size_t whole = sizes[0];
  for (int64_t step = 0; step <= 200; ++step) {
    if (step > 0) whole += sizes[static_cast<size_t>(step)];
    ASSERT_EQ(events_until(bytes, step), whole) << step;
  }
  for (size_t size = bytes.size() - sizes[200]; size < bytes.size(); ++size)
    EXPECT_EQ(events_until(std::string_view(bytes).substr(0, size), 1000), bytes.size() - sizes[200]);
  std::string changed = bytes;
  changed[whole - 20] ^= 1;
  EXPECT_EQ(events_until(changed, 1000), bytes.size() - sizes[200]);
  EXPECT_EQ(events_until("", 5), 0u);
  EXPECT_EQ(events_until(std::string(100, '\xff'), 5), 0u);
}

TEST(TensorBoard, EachProcessWritesAFileAndNoStepIsThereTwice) {
  TempFolder folder;
  const auto write = [&](int64_t from, int64_t to) {
    TensorBoardFile file(folder / "tb", from);
    for (int64_t step = from + 1; step <= to; ++step) file.add(step, {{"x", 1.0}});
  };
  write(0, 7);
  write(4, 9);  // a resume at step 4
  write(4, 6);  // another
  write(0, 3);  // a run that begins anew in the folder
  const std::vector<fs::path> files = files_of(folder / "tb");
  ASSERT_EQ(files.size(), 4u);
  std::vector<size_t> events;
  for (const fs::path& file : files) events.push_back(records(read_file(file)).size());
  // The version; the mark of the session (cut where it is behind the step of a later resume); the steps.
  EXPECT_EQ(events, (std::vector<size_t>{1, 1, 1, 2 + 3}));
  write(2, 4);
  EXPECT_EQ(records(read_file(files[3])).size(), 2u + 2);
}

}  // namespace
}  // namespace tally
