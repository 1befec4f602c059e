// A metric of a run of any length in bounded memory: what the report draws and summarises.
#pragma once

#include <cstdint>
#include <vector>

#include "tally/base/plot.h"

namespace tally {

struct Curve {
  // All points of a short run; of a long one the lowest and the highest of every stretch, and the last: what a plot of
  // all points would show (M4, as in plot.h). Values that are not finite are gaps.
  Series points;
  // The mean of every stretch at its last x; a short run's points themselves. Every stretch has as many points, but the
  // last may have fewer.
  Series means;
  int64_t stretch = 1;  // points of a stretch
};

// Takes points in order of x. When there are kMost stretches, neighbours join.
class CurveBuilder {
 public:
  static constexpr size_t kMost = 512;  // a plot has 380 units

  void add(double x, double y);
  Curve curve() const;

 private:
  struct Stretch {
    double x = 0, y = 0;                              // the last point
    double low_x = 0, low = 0, high_x = 0, high = 0;  // of the finite ones
    double sum = 0;
    int64_t points = 0, finite = 0;

    void join(const Stretch& next);
  };

  std::vector<Stretch> stretches_;
  int64_t each_ = 1;
};

}  // namespace tally
