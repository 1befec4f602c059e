// How long the parts of a run take, and whether the next of them still fit into a time limit. All times are of the
// steady clock: a wall clock that is set back or forward decides nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace tally {

using SteadyTime = std::chrono::steady_clock::time_point;
inline SteadyTime steady_now() { return std::chrono::steady_clock::now(); }
double seconds_since(SteadyTime start);

// Step times of a run of any length in bounded memory: all of them at first, and when there are kMost every second one
// goes, and from then on only every second comes in, and so on; they stay evenly spread over the run.
class StepTimes {
 public:
  static constexpr size_t kMost = 4096;
  void add(double seconds);
  double median() const;  // 0 without steps
  size_t kept() const { return kept_.size(); }

 private:
  std::vector<double> kept_;
  int64_t seen_ = 0, every_ = 1;
};

enum class Part { kStep, kEvaluation, kSample, kSave };

class Pace {
 public:
  // limit: seconds from `start`; 0 is none.
  Pace(double limit, SteadyTime start) : limit_(limit), start_(start) {}

  void took(Part part, double seconds);
  // What the part is expected to take: near the longest of late, 0 before the first.
  double expected(Part part) const { return expected_[static_cast<size_t>(part)]; }
  // False when the limit would be passed with `next` more seconds.
  bool fits(double next) const { return limit_ == 0 || seconds_since(start_) + next <= limit_; }

 private:
  double limit_;
  SteadyTime start_;
  std::array<double, 4> expected_{};
};

}  // namespace tally
