#include "tally/train/curve.h"

#include <cmath>
#include <limits>

namespace tally {

void CurveBuilder::Stretch::join(const Stretch& next) {
  if (next.finite > 0 && (finite == 0 || next.low < low)) low = next.low, low_x = next.low_x;
  if (next.finite > 0 && (finite == 0 || next.high > high)) high = next.high, high_x = next.high_x;
  x = next.x, y = next.y;
  sum += next.sum, points += next.points, finite += next.finite;
}

void CurveBuilder::add(double x, double y) {
  const bool finite = std::isfinite(y);
  const Stretch point{x, y, x, y, x, y, finite ? y : 0, 1, finite ? 1 : 0};
  if (!stretches_.empty() && stretches_.back().points < each_) return stretches_.back().join(point);
  if (stretches_.size() == kMost) {
    for (size_t i = 0; i < kMost / 2; ++i) {
      stretches_[i] = stretches_[2 * i];
      stretches_[i].join(stretches_[2 * i + 1]);
    }
    stretches_.resize(kMost / 2);
    each_ *= 2;
  }
  stretches_.push_back(point);
}

Curve CurveBuilder::curve() const {
  Curve c;
  c.stretch = each_;
  const auto add = [](Series& s, double x, double y) { s.x.push_back(x), s.y.push_back(y); };
  for (const Stretch& s : stretches_) {
    const double mean = s.finite > 0 ? s.sum / static_cast<double>(s.finite) : std::numeric_limits<double>::quiet_NaN();
    add(c.means, s.x, s.points == 1 ? s.y : mean);
    const bool last = &s == &stretches_.back(), low_first = s.low_x <= s.high_x;
    if (s.points > 1 && s.finite > 0) {
      if (s.low_x != s.high_x) low_first ? add(c.points, s.low_x, s.low) : add(c.points, s.high_x, s.high);
      const double later = low_first ? s.high_x : s.low_x;
      add(c.points, later, low_first ? s.high : s.low);
      if (!last || later == s.x) continue;
    }
    add(c.points, s.x, s.y);
  }
  return c;
}

}  // namespace tally
