#include "tally/train/pace.h"

#include "tests/support/support.h"

namespace tally {
namespace {

TEST(StepTimes, MedianOfFew) {
  StepTimes t;
  EXPECT_EQ(t.median(), 0);
  for (const double s : {5.0, 1.0, 3.0}) t.add(s);
  EXPECT_EQ(t.median(), 3);
}

TEST(StepTimes, AMillionStepsInBoundedMemory) {
  StepTimes t;
  for (int i = 1; i <= 1'000'000; ++i) {
    t.add(i);
    ASSERT_LE(t.kept(), StepTimes::kMost);
  }
  EXPECT_GT(t.kept(), StepTimes::kMost / 2 - 1);
  EXPECT_NEAR(t.median(), 500'000, 1000);  // evenly spread over all of them
}

TEST(Pace, ExpectsTheLongestOfLate) {
  Pace pace(0, steady_now());
  EXPECT_EQ(pace.expected(Part::kStep), 0);
  pace.took(Part::kStep, 1);
  pace.took(Part::kStep, 3);
  pace.took(Part::kStep, 1);
  EXPECT_NEAR(pace.expected(Part::kStep), 2.9, 1e-12);
  for (int i = 0; i < 200; ++i) pace.took(Part::kStep, 1);
  EXPECT_NEAR(pace.expected(Part::kStep), 1, 1e-3);
  EXPECT_EQ(pace.expected(Part::kSave), 0);
}

TEST(Pace, Fits) {
  EXPECT_TRUE(Pace(0, steady_now()).fits(1e9));
  const Pace pace(100, steady_now() - std::chrono::seconds(60));
  EXPECT_TRUE(pace.fits(39));
  EXPECT_FALSE(pace.fits(41));
}

}  // namespace
}  // namespace tally
