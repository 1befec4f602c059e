#include "cli/files.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "tally/base/error.h"
#include "tally/train/report.h"

namespace tally::cli {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::vector<fs::path> expand_inputs(const std::vector<std::string>& patterns) {
  if (patterns.empty()) fail("no input; give --input FILE (files, patterns, or - for standard input)");
  std::vector<fs::path> files;
  std::error_code error;
  for (const std::string& pattern : patterns) {
    if (pattern == "-") {
      files.emplace_back("-");
      continue;
    }
    for (const fs::path& file : glob_files(pattern)) {
      if (fs::is_directory(file, error)) fail("{}: is a folder; name its files, such as '{}/*.txt'", pattern, pattern);
      files.push_back(file);
    }
  }
  return files;
}

void print_would_read(const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    std::error_code error;
    if (file == "-")
      fmt::print("would read standard input\n");
    else
      fmt::print("would read {} ({} bytes)\n", file.string(),
                 with_commas(static_cast<int64_t>(fs::file_size(file, error))));
  }
}

void check_out_folder(const std::string& folder, bool overwrite) {
  if (folder.empty()) fail("no --out; name the folder to write");
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  if (!fs::is_directory(folder, error)) fail("{}: is a file; --out must be a folder", folder);
  if (!overwrite && !fs::is_empty(folder, error))
    fail("{}: is not empty; name another folder, or give --overwrite", folder);
}

ProgressLine::ProgressLine(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1), begin_ns_(now_ns()) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::update(int64_t done, int64_t total) { update("", done, total, true); }

void ProgressLine::update(const char* phase, int64_t done, int64_t total, bool bytes) {
  const int64_t now = now_ns();
  if (phase_ != phase) phase_ = phase, begin_ns_ = now, last_ns_ = 0;
  if (!terminal_ || now - last_ns_ < 200'000'000) return;
  last_ns_ = now, shown_ = true;
  const double seconds = std::max(1e-3, static_cast<double>(now - begin_ns_) * 1e-9);
  const double rate = static_cast<double>(done) / seconds;
  const auto text = [bytes](double n) { return bytes ? bytes_text(n) : with_commas(static_cast<int64_t>(n)); };
  std::string line = fmt::format("\r\033[K{}{}{}", label_, phase_.empty() ? "" : ": ", phase_);
  if (total > 0)
    line += fmt::format(" {:5.1f} %  {} of {}", 100 * static_cast<double>(done) / static_cast<double>(total),
                        text(static_cast<double>(done)), text(static_cast<double>(total)));
  else
    line += "  " + text(static_cast<double>(done));
  line += fmt::format("  {}/s", text(rate));
  if (total > done && done > 0) line += "  ETA " + seconds_text(static_cast<double>(total - done) / rate);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace tally::cli
