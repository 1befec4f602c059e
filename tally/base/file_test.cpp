// Maps, complete-or-absent writes (also on a full disk), folders and patterns.
#include "tally/base/file.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "tests/support/support.h"

namespace tally {
namespace {

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(File, MapsAndMoves) {
  const test::TempFolder folder;
  put(folder / "a", "hello");
  put(folder / "empty", "");
  MappedFile a(folder / "a");
  EXPECT_EQ(text_of(a), "hello");
  MappedFile b = std::move(a);
  EXPECT_EQ(text_of(b), "hello");
  b = MappedFile(folder / "empty");
  EXPECT_TRUE(b.bytes().empty());
  EXPECT_EQ(b.path(), folder / "empty");
  EXPECT_TRUE(MappedFile().bytes().empty());
}

TEST(File, ReadErrorsNameTheFile) {
  const test::TempFolder folder;
  test::expect_error([&] { MappedFile(folder / "none"); }, "none: no such file");
  test::expect_error([&] { MappedFile{folder.path()}; }, "is a folder, not a file");
  test::expect_error([&] { read_file(folder / "none"); }, "none: no such file");
  test::expect_error([&] { read_file(folder.path()); }, "is a folder, not a file");
  put(folder / "a", "x");
  test::expect_error([&] { read_file(folder / "a" / "b"); }, "cannot be read");
  test::expect_error([&] { MappedFile{"/dev/null"}; }, "not a regular file");
}

TEST(File, ReadFile) {
  const test::TempFolder folder;
  std::string big(3'000'001, 'x');
  big[1'000'000] = '\0';
  put(folder / "big", big);
  EXPECT_EQ(read_file(folder / "big"), big);
}

TEST(File, AtomicWriteAppearsWholeOrNotAtAll) {
  const test::TempFolder folder;
  const fs::path path = folder / "out.bin";
  put(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(entries(folder.path()), 1u);  // the temporary is gone
  {
    AtomicFile file(path);
    const std::string big(700'000, 'b');
    file.write("head");
    file.write(big);
    file.write("tail");
    file.write_at(0, "HEAD", 4);
    file.write("!");
    file.write("");
    file.commit();
    EXPECT_EQ(read_file(path), "HEAD" + big + "tail!");
  }
  EXPECT_EQ(entries(folder.path()), 1u);
  write_file_atomic(path, "short");
  EXPECT_EQ(read_file(path), "short");
}

TEST(File, TwoWritersDoNotShareATemporary) {
  const test::TempFolder folder;
  AtomicFile a(folder / "x"), b(folder / "x");
  a.write("a");
  b.write("b");
  a.commit();
  b.commit();
  EXPECT_EQ(read_file(folder / "x"), "b");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(File, WriteErrorsNameFileAndFolder) {
  const test::TempFolder folder;
  test::expect_error([&] { AtomicFile(folder / "no/such/x"); }, "does not exist");
  put(folder / "plain", "x");
  test::expect_error([&] { AtomicFile(folder / "plain" / "x"); }, "is not a folder");
  test::expect_error([&] { AtomicFile{folder.path()}; }, "it is a folder");
  test::expect_error([&] { AtomicFile{"/dev/null"}; }, "not a regular file");
  test::expect_error([&] { AtomicFile{""}; }, "is not a file name");
  test::expect_error([&] { AtomicFile(folder / std::string(300, 'n')); }, "cannot be written");
  test::expect_error([&] { make_folder(folder / "plain"); }, "plain: the folder cannot be made");
  test::expect_error([&] { make_folder(folder / "plain" / "sub"); }, "cannot be made");
  test::expect_error([&] { make_folder(""); }, "empty");
  test::expect_error([&] { sync_folder(folder / "none"); }, "cannot be opened");
  make_folder(folder / "a/b/c");
  EXPECT_TRUE(fs::is_directory(folder / "a/b/c"));
  make_folder(folder / "a/b/c");
}

TEST(File, FolderThatIsNotWritable) {
  const test::TempFolder folder;
  const fs::path locked = folder / "locked";
  make_folder(locked);
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod(locked.c_str(), 0500), 0);
    test::expect_error([&] { AtomicFile(locked / "x"); }, "is not writable");
    test::expect_error([&] { make_folder(locked / "x"); }, "cannot be made");
    ::chmod(locked.c_str(), 0700);
    return;
  }
  // The superuser may write anywhere but on a read-only mount.
  if (::mount("tmpfs", locked.c_str(), "tmpfs", MS_RDONLY, "size=64k") != 0)
    GTEST_SKIP() << "this process is root and may not mount (" << std::strerror(errno)
                 << "), so no folder is unwritable for it; the case runs as another user";
  test::expect_error([&] { AtomicFile(locked / "x"); }, "is not writable");
  test::expect_error([&] { make_folder(locked / "x"); }, "cannot be made");
  ::umount2(locked.c_str(), MNT_DETACH);
}

// Fills `folder`'s disk; the earlier file must survive and the temporary vanish.
void check_full_disk(const fs::path& folder) {
  const fs::path path = folder / "model.bin";
  write_file_atomic(path, "earlier");
  const std::string block(1 << 16, 'x');
  const auto fill = [&] {
    AtomicFile file(path);
    for (int i = 0; i < 64; ++i) file.write(block);
    file.commit();
  };
  EXPECT_THROW(fill(), RunError);
  test::expect_error(fill, "model.bin: no space left on device; the earlier file, if any, is unchanged");
  EXPECT_EQ(read_file(path), "earlier");
  EXPECT_EQ(entries(folder), 1u);
  write_file_atomic(path, "later");
  EXPECT_EQ(read_file(path), "later");
}

TEST(File, FullDisk) {
  const test::TempFolder folder;
  const fs::path disk = folder / "disk";
  make_folder(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "a small tmpfs cannot be mounted here (" << std::strerror(errno) << "); run this test as root";
  check_full_disk(disk);
  ::umount2(disk.c_str(), MNT_DETACH);
}

TEST(File, GlobIsSortedAndNamesTheEmptyPattern) {
  const test::TempFolder folder;
  for (const char* name : {"b.txt", "a.txt", "B.txt", "c.dat", "x[1].txt"}) put(folder / name, name);
  make_folder(folder / "d.txt");
  const auto names = [&](const std::string& pattern) {
    std::vector<std::string> all;
    for (const fs::path& p : glob_files((folder / pattern).string())) all.push_back(p.filename().string());
    return all;
  };
  EXPECT_EQ(names("*.txt"), (std::vector<std::string>{"B.txt", "a.txt", "b.txt", "x[1].txt"}));
  EXPECT_EQ(names("[ab].txt"), (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(names("x[1].txt"), (std::vector<std::string>{"x[1].txt"}));
  EXPECT_EQ(names("?.dat"), (std::vector<std::string>{"c.dat"}));
  test::expect_error([&] { names("*.none"); }, "*.none: no file matches the pattern");
  test::expect_error([&] { names("none.txt"); }, "none.txt: no such file");
}

}  // namespace
}  // namespace tally
