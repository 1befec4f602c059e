#include "tally/train/saver.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "tally/base/error.h"
#include "tally/train/report.h"

namespace tally {

namespace {

// Throws RunError when the file system of `folder` has less room than `bytes`. One that does not say is trusted: the
// write itself finds out.
void require_room(const fs::path& folder, int64_t bytes) {
  struct statvfs s {};
  if (::statvfs(folder.c_str(), &s) != 0 || s.f_blocks == 0) return;
  const double room = static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize);
  if (room < static_cast<double>(bytes))
    fail_run("{}: {} of space left on the disk, a checkpoint needs {}", folder.string(), bytes_text(room),
             bytes_text(static_cast<double>(bytes)));
}

}  // namespace

bool Saver::save(const CheckpointState& state, const std::vector<Param>& params, Optimizer& optimizer) {
  try {
    require_room(folder_.path(), checkpoint_bytes(params, optimizer));
    folder_.save(state, params, optimizer, keep_);
    failures_ = 0, problem_.clear();
  } catch (const Error& e) {
    ++failures_, problem_ = e.what();
  }
  last_ = steady_now();
  return failures_ == 0;
}

double Saver::wait_seconds() const {
  if (failures_ == 0) return 0;
  return static_cast<double>(std::min<int64_t>(60, int64_t{1} << std::min<int64_t>(failures_ - 1, 6))) -
         seconds_since(last_);
}

bool Saver::due() const {
  if (failures_ > 0) return wait_seconds() <= 0;
  return minutes_ > 0 && seconds_since(last_) >= 60 * minutes_;
}

}  // namespace tally
