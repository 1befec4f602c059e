#include "tally/train/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tally/base/error.h"
#include "tally/train/report.h"

namespace tally {
namespace {

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string metrics_until(const std::string& text, int64_t step) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    try {
      if (Json::parse(line, "metrics.jsonl").at("step").as_int() > step) continue;
    } catch (const Error&) {
      continue;
    }
    kept += line + "\n";
  }
  return kept;
}

MetricsFile::MetricsFile(const fs::path& path, int64_t step) {
  std::error_code error;
  const std::string before = step > 0 && fs::exists(path, error) ? read_file(path) : "";
  write_file_atomic(path, metrics_until(before, step));
  file_ = std::make_unique<AppendFile>(path);
}

Progress::Progress(int64_t steps, bool quiet) : steps_(steps), quiet_(quiet), terminal_(::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', stderr);
}

std::string Progress::text(const State& s, int64_t steps, int columns) {
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  {} tokens/s", s.step, steps, s.loss, count_text(s.tokens_per_second));
  if (s.peak_share > 0) line += fmt::format("  {:.0f} % of peak", 100 * s.peak_share);
  if (s.step < steps) line += "  ETA " + seconds_text(s.seconds_left);
  if (columns <= 0) return line;
  const int width = std::min(24, columns - 1 - static_cast<int>(line.size()) - 3);
  if (width < 4) return line.substr(0, static_cast<size_t>(columns - 1));
  const double share = static_cast<double>(s.step) / static_cast<double>(std::max<int64_t>(1, steps));
  const int full = static_cast<int>(std::lround(width * std::clamp(share, 0.0, 1.0)));
  return fmt::format("[{:#>{}}{:.>{}}] {}", "", full, "", width - full, line);
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::show(const State& state) {
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool first = shown_ == 0, last = state.step >= steps_;
  if (!first && !last && now < next_) return;
  // A terminal ten times a second; a log file seldom: after 1, 2, 4, 8, 15, 15 ... seconds.
  const int64_t wait = terminal_ ? 100 : std::min<int64_t>(15000, int64_t{1000} << std::min(shown_, 4));
  next_ = now + std::chrono::milliseconds(wait);
  ++shown_;
  if (terminal_) {
    std::fputs(("\r\033[K" + text(state, steps_, terminal_columns())).c_str(), stderr);
    drawn_ = true;
  } else {
    std::fputs((text(state, steps_, 0) + "\n").c_str(), stderr);
  }
  std::fflush(stderr);
}

void Progress::message(const std::string& line) {
  if (quiet_) return;
  clear();
  std::fputs((line + "\n").c_str(), stderr);
}

}  // namespace tally
