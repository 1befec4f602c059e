#include "tally/data/file_pool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tally/base/error.h"

namespace tally {

struct FilePool::Descriptor {
  explicit Descriptor(const fs::path& path) {
    do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
};

FilePool::Stamp FilePool::stamp_of(const Descriptor& d, const fs::path& path) {
  struct stat s {};
  if (::fstat(d.fd, &s) != 0) fail_run("{}: cannot be looked at ({})", path.string(), std::strerror(errno));
  if (!S_ISREG(s.st_mode)) fail("{}: is not a regular file", path.string());
  return {static_cast<uint64_t>(s.st_dev), static_cast<uint64_t>(s.st_ino), static_cast<uint64_t>(s.st_size),
          s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec};
}

size_t FilePool::add(const fs::path& path) {
  const Descriptor d(path);
  if (d.fd < 0 && errno == ENOENT) fail("{}: no such file", path.string());
  if (d.fd < 0) fail("{}: cannot be read ({})", path.string(), std::strerror(errno));
  const std::lock_guard lock(mutex_);
  files_.push_back({path, stamp_of(d, path), nullptr});
  return files_.size() - 1;
}

uint64_t FilePool::size(size_t file) const {
  const std::lock_guard lock(mutex_);
  return files_[file].stamp.size;
}

size_t FilePool::open_files() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

std::shared_ptr<const FilePool::Descriptor> FilePool::opened(File& file, size_t index) {
  if (file.open) return file.open;
  auto d = std::make_shared<const Descriptor>(file.path);
  if (d->fd < 0 && errno == ENOENT) fail_run("{}: is gone since it was opened", file.path.string());
  if (d->fd < 0) fail_run("{}: cannot be read any more ({})", file.path.string(), std::strerror(errno));
  if (open_.size() >= kMostOpen) {
    files_[open_.front()].open.reset();  // a thread that reads from it still holds it
    open_.pop_front();
  }
  open_.push_back(index);
  return file.open = std::move(d);
}

bool FilePool::read(size_t index, uint64_t offset, std::span<std::byte> out) {
  std::shared_ptr<const Descriptor> d;
  fs::path path;
  Stamp stamp;
  {
    const std::lock_guard lock(mutex_);
    File& file = files_[index];
    d = opened(file, index), path = file.path, stamp = file.stamp;
  }
  while (!out.empty()) {
    const ssize_t n = ::pread(d->fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_run("{}: cannot be read at offset {} ({})", path.string(), offset, std::strerror(errno));
    if (n == 0)
      fail_run("{}: ends at byte {} now; it held {} when it was opened", path.string(), stamp_of(*d, path).size,
               stamp.size);
    out = out.subspan(static_cast<size_t>(n)), offset += static_cast<uint64_t>(n);
  }
  return stamp_of(*d, path) == stamp;
}

void FilePool::accept(size_t index, const std::function<void()>& check) {
  Stamp before;
  {
    const std::lock_guard lock(mutex_);
    File& file = files_[index];
    std::erase(open_, index);
    file.open.reset();
    before = file.stamp;
    file.stamp = stamp_of(*opened(file, index), file.path);
  }
  try {
    check();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    files_[index].stamp = before;
    throw;
  }
}

}  // namespace tally
