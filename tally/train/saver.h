// Saves the state of a run, whatever the disk does. Before each save the room on the disk is compared with the size of
// a checkpoint, and a save that fails leaves the earlier checkpoints untouched and nothing of its own behind. The run
// goes on; the next attempts come after 1, 2, 4 ... 60 seconds and whenever a checkpoint is due anyway.
#pragma once

#include "tally/train/pace.h"
#include "tally/train/run_folder.h"

namespace tally {

class Saver {
 public:
  // minutes: between saves, besides those that the loop asks for; 0 is none.
  Saver(const RunFolder& folder, int64_t keep, double minutes) : folder_(folder), keep_(keep), minutes_(minutes) {}

  // One attempt. True: saved. False: problem() says why not, in one line without the file's path twice.
  bool save(const CheckpointState& state, const std::vector<Param>& params, Optimizer& optimizer);
  const std::string& problem() const { return problem_; }
  int64_t failures() const { return failures_; }  // in a row, up to now

  // The minutes are over, or the wait after a save that failed.
  bool due() const;
  double wait_seconds() const;  // until the next attempt

 private:
  const RunFolder& folder_;
  int64_t keep_;
  double minutes_;
  SteadyTime last_ = steady_now();  // attempt
  int64_t failures_ = 0;
  std::string problem_;
};

}  // namespace tally
