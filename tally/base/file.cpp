// POSIX files: open, pread/pwrite, mmap, fsync, rename. Every call is retried on EINTR and every short write continued.
// A write goes to `.NAME.tmp.PID.N` in the folder of the target, so that rename(2) stays within one file system.
#include "tally/base/file.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tally/base/error.h"

namespace tally {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;

std::string reason(int error) { return std::generic_category().message(error); }

template <class F>
auto retry(const F& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// A descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

int open_to_read(const fs::path& path, struct stat& info) {
  const int fd = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) {
    if (errno == ENOENT) fail("{}: no such file", path.string());
    fail("{}: cannot be read ({})", path.string(), reason(errno));
  }
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    ::close(fd);
    fail("{}: is a folder, not a file", path.string());
  }
  return fd;
}

[[noreturn]] void fail_write(const fs::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT)
    fail_run("{}: no space left on device; the earlier file, if any, is unchanged", path.string());
  fail_run("{}: write failed ({}); the earlier file, if any, is unchanged", path.string(), reason(error));
}

[[noreturn]] void fail_create(const fs::path& path, int error) {
  const std::string folder = folder_of(path).string();
  if (error == ENOSPC || error == EDQUOT) fail_write(path, error);
  if (error == ENOENT) fail("{}: cannot be written: the folder {} does not exist", path.string(), folder);
  if (error == ENOTDIR) fail("{}: cannot be written: {} is not a folder", path.string(), folder);
  if (error == EACCES || error == EPERM || error == EROFS)
    fail("{}: cannot be written: the folder {} is not writable ({})", path.string(), folder, reason(error));
  fail("{}: cannot be written ({})", path.string(), reason(error));
}

void append_all(int fd, std::string& text, const std::string& name) {
  std::vector<char> buffer(kBufferBytes);
  for (;;) {
    const ssize_t n = retry([&] { return ::read(fd, buffer.data(), buffer.size()); });
    if (n < 0) fail("{}: cannot be read ({})", name, reason(errno));
    if (n == 0) return;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
}

void write_all(int fd, const char* data, size_t bytes, const fs::path& path) {
  while (bytes > 0) {
    const ssize_t n = retry([&] { return ::write(fd, data, bytes); });
    if (n <= 0) fail_write(path, n < 0 ? errno : ENOSPC);
    data += n, bytes -= static_cast<size_t>(n);
  }
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  struct stat info {};
  const Descriptor file{open_to_read(path, info)};
  if (!S_ISREG(info.st_mode)) fail("{}: is not a regular file, so it cannot be mapped", path.string());
  if (info.st_size == 0) return;
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) fail("{}: cannot be mapped ({})", path.string(), reason(errno));
  data_ = static_cast<const std::byte*>(data), size_ = size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const fs::path& path) {
  std::string text;
  if (path == "-") {
    append_all(STDIN_FILENO, text, "standard input");
    return text;
  }
  struct stat info {};
  const Descriptor file{open_to_read(path, info)};
  if (S_ISCHR(info.st_mode)) fail("{}: is a device; give a file, a pipe or - for standard input", path.string());
  if (S_ISREG(info.st_mode)) text.reserve(static_cast<size_t>(info.st_size));
  append_all(file.fd, text, path.string());
  return text;
}

FileReader::FileReader(const fs::path& path) : name_(path == "-" ? "standard input" : path.string()) {
  if (path == "-") {
    fd_ = STDIN_FILENO;
    return;
  }
  struct stat info {};
  fd_ = open_to_read(path, info);
  if (S_ISREG(info.st_mode)) size_ = info.st_size;
}

FileReader::~FileReader() {
  if (fd_ != STDIN_FILENO && fd_ >= 0) ::close(fd_);
}

size_t FileReader::read(char* buffer, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = retry([&] { return ::read(fd_, buffer + done, bytes - done); });
    if (n < 0) fail("{}: cannot be read ({})", name_, reason(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  static std::atomic<uint64_t> counter{0};
  struct stat info {};
  if (!path.has_filename()) fail("\"{}\": is not a file name", path.string());
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    fail("{}: cannot be written: it is {}", path.string(), S_ISDIR(info.st_mode) ? "a folder" : "not a regular file");
  for (;;) {
    const uint64_t n = counter.fetch_add(1, std::memory_order_relaxed);
    temporary_ = folder_of(path) / fmt::format(".{}.tmp.{}.{}", path.filename().string(), ::getpid(), n);
    fd_ = retry([&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
    if (fd_ >= 0) break;
    if (errno != EEXIST) fail_create(path, errno);
  }
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::flush_buffer() {
  write_all(fd_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

void AtomicFile::write(const void* data, size_t bytes) {
  TALLY_ASSERT(fd_ >= 0);  // not after commit
  const char* text = static_cast<const char*>(data);
  if (bytes > kBufferBytes - buffer_.size()) flush_buffer();
  if (bytes >= kBufferBytes) return write_all(fd_, text, bytes, path_);
  buffer_.insert(buffer_.end(), text, text + bytes);
}

void AtomicFile::write_at(uint64_t offset, const void* data, size_t bytes) {
  TALLY_ASSERT(fd_ >= 0);
  flush_buffer();
  const char* text = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = retry([&] { return ::pwrite(fd_, text, bytes, static_cast<off_t>(offset)); });
    if (n <= 0) fail_write(path_, n < 0 ? errno : ENOSPC);
    text += n, offset += static_cast<uint64_t>(n), bytes -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  TALLY_ASSERT(fd_ >= 0);
  flush_buffer();
  if (retry([&] { return ::fsync(fd_); }) != 0) fail_write(path_, errno);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && errno != EINTR) fail_write(path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_write(path_, errno);
  temporary_.clear();
  sync_folder(folder_of(path_));
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void make_folder(const fs::path& path) {
  if (path.empty()) fail("the name of the folder to write is empty");
  std::error_code error;
  fs::create_directories(path, error);
  if (error.value() == ENOSPC || error.value() == EDQUOT)
    fail_run("{}: no space left on device; the folder was not made", path.string());
  if (error) fail("{}: the folder cannot be made ({})", path.string(), error.message());
  if (!fs::is_directory(path, error)) fail("{}: the folder cannot be made: it is a file", path.string());
}

void sync_folder(const fs::path& path) {
  const Descriptor folder{retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); })};
  if (folder.fd < 0) fail("{}: the folder cannot be opened ({})", path.string(), reason(errno));
  // Some file systems cannot flush a folder and say EINVAL; the rename is as safe there as it can be.
  if (retry([&] { return ::fsync(folder.fd); }) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail_run("{}: the folder cannot be flushed ({})", path.string(), reason(errno));
}

std::vector<fs::path> glob_files(const std::string& pattern) {
  std::error_code error;
  if (fs::exists(pattern, error)) return {pattern};
  if (pattern.find_first_of("*?[") == std::string::npos) fail("{}: no such file", pattern);
  ::glob_t found{};
  std::vector<fs::path> files;
  const int rc = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  for (size_t i = 0; rc == 0 && i < found.gl_pathc; ++i)
    if (!fs::is_directory(found.gl_pathv[i], error)) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (files.empty()) fail("{}: no file matches the pattern", pattern);
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return files;
}

}  // namespace tally
