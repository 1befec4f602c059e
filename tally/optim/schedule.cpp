#include "tally/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tally {

void ScheduleConfig::fields(Fields& f) {
  f("kind", kind, "shape of the learning rate", {"cosine", "wsd", "constant"});
  f("warmup", warmup, "steps of linear rise", 0, 1e12);
  f("min_ratio", min_ratio, "lowest rate as a share of the peak", 0, 1);
  f("decay_fraction", decay_fraction, "wsd: share of the steps in the final fall", 0, 1);
}

double schedule_factor(const ScheduleConfig& c, int64_t step, int64_t steps) {
  const double s = static_cast<double>(step), total = static_cast<double>(steps),
               warmup = static_cast<double>(c.warmup);
  if (step < c.warmup) return s / warmup;
  if (c.kind == "constant") return 1;
  if (c.kind == "wsd") {
    const double fall = std::max(1.0, c.decay_fraction * total), left = std::max(0.0, total - s);
    return left >= fall ? 1 : c.min_ratio + (1 - c.min_ratio) * left / fall;
  }
  if (step >= steps) return c.min_ratio;
  const double progress = (s - warmup) / std::max(1.0, total - warmup);
  return c.min_ratio + (1 - c.min_ratio) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace tally
