// Files read by position for as long as a run lasts: many of them with few open descriptors, each the file that it was.
// Reading is by pread(2), not by a map: a file that was cut short meanwhile is an error here and would be SIGBUS there.
// At most kMostOpen descriptors are open at a time (the one opened first is closed first), and a file is opened by its
// first read. Safe from several threads.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tally/base/file.h"

namespace tally {

class FilePool {
 public:
  static constexpr size_t kMostOpen = 64;

  // Index of the file, which must be there. Throws Error naming it.
  size_t add(const fs::path& path);
  uint64_t size(size_t file) const;  // when it was added, or accepted last

  // Fills `out` from `offset`. Throws RunError naming the file when it is gone, cannot be read or is shorter by now.
  // False: all was read, but from another file than the one added: device, inode, size or time of change differ.
  bool read(size_t file, uint64_t offset, std::span<std::byte> out);
  // The file that is there under the name now is taken for the one added unless check(), which may read it, throws.
  // Throws RunError when there is none.
  void accept(size_t file, const std::function<void()>& check);

  size_t open_files() const;

 private:
  struct Stamp {
    uint64_t device = 0, inode = 0, size = 0;
    int64_t changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  struct Descriptor;
  struct File {
    fs::path path;
    Stamp stamp;
    std::shared_ptr<const Descriptor> open;  // null: closed
  };
  static Stamp stamp_of(const Descriptor& d, const fs::path& path);
  std::shared_ptr<const Descriptor> opened(File& file, size_t index);

  mutable std::mutex mutex_;
  std::vector<File> files_;
  std::deque<size_t> open_;  // in the order in which they were opened
};

}  // namespace tally
