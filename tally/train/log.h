// What a run says while it goes on: metrics.jsonl, a line an event, and progress on standard error.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tally/base/json.h"
#include "tally/train/append_file.h"

namespace tally {

// metrics.jsonl: objects with "step" first. Every line is written at once, or as soon as the disk takes it
// (append_file.h); a torn last line of a killed run is dropped when the file is opened again.
class MetricsFile {
 public:
  // Keeps the lines up to `step` (with step 0 none) and appends from there, so that the file of a resumed run equals
  // that of an uninterrupted one but for times.
  MetricsFile(const fs::path& path, int64_t step);
  void add(const Json& line) { file_->add(line.dump() + "\n"); }
  AppendFile& file() { return *file_; }

 private:
  std::unique_ptr<AppendFile> file_;
};

// The complete lines of a metrics text whose "step" is at most `step`.
std::string metrics_until(const std::string& text, int64_t step);

// One line that is rewritten when standard error is a terminal; else a plain line every so often.
class Progress {
 public:
  explicit Progress(int64_t steps, bool quiet = false);
  ~Progress();
  struct State {
    int64_t step = 0;
    double loss = 0, tokens_per_second = 0;
    double peak_share = 0;  // matmul FLOP/s over the machine's peak; 0 when not known
    double seconds_left = 0;
  };
  void show(const State& state);
  void message(const std::string& line);  // a line of its own, the bar goes on below
  // Of at most columns - 1 characters, the bar first and as wide as there is room for it; 0 columns: no bar, any
  // length.
  static std::string text(const State& state, int64_t steps, int columns);

 private:
  void clear();
  int64_t steps_;
  bool quiet_, terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
  int shown_ = 0;
};

}  // namespace tally
