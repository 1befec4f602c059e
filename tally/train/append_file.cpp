#include "tally/train/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tally/base/error.h"

namespace tally {

AppendFile::AppendFile(const fs::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail("{}: cannot be opened for writing ({})", path.string(), std::strerror(errno));
}

AppendFile::~AppendFile() {
  write_pending();
  ::close(fd_);
}

void AppendFile::add(std::string_view record) {
  if (pending_.size() + record.size() <= kMostPending)
    pending_ += record;
  else
    ++dropped_;
  write_pending();
}

void AppendFile::write_pending() {
  struct stat before {};
  if (pending_.empty() || ::fstat(fd_, &before) != 0) return;
  for (size_t done = 0; done < pending_.size();) {
    const ssize_t n = ::write(fd_, pending_.data() + done, pending_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      problem_ = std::strerror(n < 0 ? errno : ENOSPC);
      // Where even this fails, a reader finds a torn record, and all of it once more later.
      if (done > 0 && ::ftruncate(fd_, before.st_size) != 0) problem_ += ", and a torn record cannot be cut off";
      return;
    }
    done += static_cast<size_t>(n);
  }
  pending_.clear();
  problem_.clear();
}

void AppendFile::flush() {
  write_pending();
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) problem_ = std::strerror(errno);
}

std::string AppendFile::news() {
  if (problem_ == told_) return "";
  told_ = problem_;
  if (!problem_.empty())
    return fmt::format("{}: cannot be written ({}); what comes waits in memory, up to {} KiB", path_.string(), problem_,
                       kMostPending >> 10);
  const int64_t lost = std::exchange(dropped_, 0);
  return fmt::format("{}: is written again, {}", path_.string(),
                     lost == 0 ? "nothing is lost" : fmt::format("{} records were lost", lost));
}

}  // namespace tally
