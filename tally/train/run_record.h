// One run as its folder tells it, read from the files alone: no data, no weights. Works while the run goes on, after a
// resume, and on folders in which only config.json and some metrics are left.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tally/base/file.h"
#include "tally/train/config.h"
#include "tally/train/curve.h"

namespace tally {

struct RunRecord {
  static constexpr size_t kMostSamples = 80;
  struct Sample {
    int64_t step = 0;
    std::string text;
  };

  std::string name;                 // the folder as it was asked for
  Json config;                      // config.json
  std::optional<RunConfig> parsed;  // the same; nothing when this version cannot read it
  Json ledger, profile;             // null when absent or unreadable
  Curve loss, lr, grad_norm, tokens_per_second, val_loss, bits_per_byte;  // x: step
  std::vector<Sample> samples;                                            // of many some, evenly spread, and the last
  std::vector<std::string> notes;  // what is missing or could not be read, a line each

  int64_t last_step() const;        // of the metrics
  int64_t tokens_per_step() const;  // 0 when not known
};

// Throws Error: `folder` is missing, is no run directory (no config.json), has no metrics yet.
RunRecord read_run_record(const fs::path& folder);

}  // namespace tally
