#include "tally/train/log.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

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

MetricsFile::MetricsFile(const fs::path& path, int64_t step) : path_(path) {
  std::error_code error;
  const std::string before = step > 0 && fs::exists(path, error) ? read_file(path) : "";
  write_file_atomic(path, metrics_until(before, step));
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail("{}: cannot be opened for writing ({})", path.string(), std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::add(const Json& line) {
  const std::string text = line.dump() + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_run("{}: cannot be written ({})", path_.string(), std::strerror(n < 0 ? errno : ENOSPC));
    done += static_cast<size_t>(n);
  }
}

void MetricsFile::flush() {
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail_run("{}: cannot be flushed ({})", path_.string(), std::strerror(errno));
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
