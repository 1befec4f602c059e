// What the verbs share about files and the terminal: lists of inputs, folders to write, a progress line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tally/base/file.h"

namespace tally::cli {

// Files and patterns expanded, "-" kept, in the order given. Throws Error: none given, one that is missing, a folder.
std::vector<fs::path> expand_inputs(const std::vector<std::string>& patterns);
// "would read FILE (12,345 bytes)" lines on standard output; "-" is standard input.
void print_would_read(const std::vector<fs::path>& files);
// Throws Error when `folder` cannot be made or holds something and overwriting was not asked for.
void check_out_folder(const std::string& folder, bool overwrite);

// Rewrites one line of standard error, a few times a second, when it is a terminal; else prints nothing.
class ProgressLine {
 public:
  explicit ProgressLine(std::string label);
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void update(int64_t done, int64_t total);  // bytes
  // A phase with its own rate and time left; total 0: not known.
  void update(const char* phase, int64_t done, int64_t total, bool bytes);

 private:
  std::string label_;
  bool terminal_, shown_ = false;
  int64_t begin_ns_, last_ns_ = 0;
  std::string phase_;
};

}  // namespace tally::cli
