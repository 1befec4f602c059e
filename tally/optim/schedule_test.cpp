// Learning rates by step: the course's cosine values (C23), WSD, warm-up and the ends.
#include "tally/optim/schedule.h"

#include <cmath>

#include "tests/support/support.h"

namespace tally {
namespace {

ScheduleConfig schedule(const char* kind, int64_t warmup, double min_ratio) {
  ScheduleConfig c;
  c.kind = kind, c.warmup = warmup, c.min_ratio = min_ratio;
  return c;
}

TEST(Schedule, C23Cosine) {
  const ScheduleConfig c = schedule("cosine", 7, 0.1);
  const std::pair<int64_t, double> rows[] = {{0, 0},     {1, 0.142857142857}, {7, 1},    {8, 0.98871756},
                                             {14, 0.55}, {20, 0.11128244},    {21, 0.1}, {24, 0.1}};
  for (const auto& [step, want] : rows) EXPECT_NEAR(schedule_factor(c, step, 21), want, 1e-7) << step;
}

TEST(Schedule, CosineFallsEvenlyAboutItsMiddle) {
  const ScheduleConfig c = schedule("cosine", 10, 0.2);
  double before = 1;
  for (int64_t s = 10; s <= 110; ++s) {
    const double f = schedule_factor(c, s, 110);
    EXPECT_LE(f, before);
    EXPECT_NEAR(f + schedule_factor(c, 120 - s, 110), 1.2, 1e-12);
    before = f;
  }
  EXPECT_EQ(schedule_factor(c, 110, 110), 0.2);
}

TEST(Schedule, WsdHoldsThenFallsInALine) {
  ScheduleConfig c = schedule("wsd", 4, 0.1);
  c.decay_fraction = 0.2;
  const std::pair<int64_t, double> rows[] = {{0, 0},     {2, 0.5},    {4, 1},     {50, 1},   {80, 1},
                                             {90, 0.55}, {99, 0.145}, {100, 0.1}, {200, 0.1}};
  for (const auto& [step, want] : rows) EXPECT_NEAR(schedule_factor(c, step, 100), want, 1e-12) << step;
  c.decay_fraction = 0;
  EXPECT_EQ(schedule_factor(c, 99, 100), 1);
  EXPECT_EQ(schedule_factor(c, 100, 100), 0.1);
}

TEST(Schedule, ConstantAfterWarmup) {
  const ScheduleConfig c = schedule("constant", 5, 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(c, 3, 10), 0.6);
  for (int64_t s : {5, 6, 10, 1000}) EXPECT_EQ(schedule_factor(c, s, 10), 1);
}

// Every kind and every awkward length gives a factor in [0, 1]: no 0 / 0, no negative rate.
TEST(Schedule, IsAlwaysAFactor) {
  for (const char* kind : {"cosine", "wsd", "constant"})
    for (int64_t warmup : {0, 1, 5, 20})
      for (int64_t steps : {0, 1, 5, 6, 20})
        for (int64_t s = 0; s < 25; ++s) {
          const double f = schedule_factor(schedule(kind, warmup, 0.1), s, steps);
          EXPECT_TRUE(f >= 0 && f <= 1) << kind << " warmup " << warmup << " steps " << steps << " step " << s;
        }
  EXPECT_EQ(schedule_factor(schedule("cosine", 0, 0.1), 0, 10), 1);
}

}  // namespace
}  // namespace tally
