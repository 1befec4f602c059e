#include "tally/train/pace.h"

#include <algorithm>

namespace tally {

double seconds_since(SteadyTime start) { return std::chrono::duration<double>(steady_now() - start).count(); }

void StepTimes::add(double seconds) {
  if (seen_++ % every_ != 0) return;
  if (kept_.size() == kMost) {
    for (size_t i = 0; i < kMost / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(kMost / 2);
    every_ *= 2;
    if ((seen_ - 1) % every_ != 0) return;
  }
  kept_.push_back(seconds);
}

double StepTimes::median() const {
  if (kept_.empty()) return 0;
  std::vector<double> sorted = kept_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void Pace::took(Part part, double seconds) {
  double& e = expected_[static_cast<size_t>(part)];
  e = std::max(seconds, 0.95 * e + 0.05 * seconds);
}

}  // namespace tally
