// A log file that grows by whole records and never stops the program: what cannot be written (a full disk, an I/O
// error) waits in memory and is tried again by every later call. A record that was written in part is cut off again.
#pragma once

#include <string>
#include <string_view>

#include "tally/base/file.h"

namespace tally {

class AppendFile {
 public:
  static constexpr size_t kMostPending = size_t{1} << 20;  // bytes that wait; what comes then is dropped, and counted

  explicit AppendFile(const fs::path& path);  // which must be there. Throws Error naming it
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  void add(std::string_view record);
  void flush();  // to the disk, as far as possible
  size_t pending() const { return pending_.size(); }

  // One line when writing began to fail or works again since the last call, else "".
  std::string news();

 private:
  void write_pending();
  fs::path path_;
  int fd_ = -1;
  std::string pending_, problem_, told_;
  int64_t dropped_ = 0;
};

}  // namespace tally
