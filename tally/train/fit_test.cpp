#include "tally/train/fit.h"
#include "tally/train/step.h"

#include <gtest/gtest.h>

#include "tally/train/train_test_data.h"
#include "tally/train/trainer.h"

namespace tally {
namespace {

RunConfig tiny_run() {
  RunConfig c;
  c.model = preset("tiny");
  c.train.batch = 12;
  return c;
}

int64_t planned(const RunConfig& c) {
  const Plan plan = plan_run(c, nullptr);
  return std::max(plan.step.bytes(), plan.eval.bytes());
}

// Everything that fits to a byte is found, and each change is what its plan says.
TEST(Fit, ChangesAreThoseWhosePlanFits) {
  const RunConfig config = tiny_run();
  RunConfig third = config;
  third.train.batch = 4, third.train.accumulate = 3;
  const int64_t enough = planned(third);
  const std::vector<Change> changes = changes_that_fit(config, enough);
  std::string flags;
  for (const Change& c : changes) flags += c.flags + "\n";
  EXPECT_EQ(flags,
            "--train.batch 4 --train.accumulate 3\n"
            "--model.dtype bf16 --train.batch 6 --train.accumulate 2\n"
            "--train.context 16 --train.accumulate 4\n");
  EXPECT_EQ(changes[0].bytes, enough);
  EXPECT_EQ(changes_that_fit(config, enough - 1)[0].flags, "--train.batch 3 --train.accumulate 4");
  for (const Change& c : changes) {
    EXPECT_EQ(c.bytes, planned(c.config)) << c.flags;  // however many micro-batches
    EXPECT_LE(c.bytes, enough) << c.flags;
    EXPECT_EQ(c.config.tokens_per_step(), config.tokens_per_step()) << c.flags;
  }
  EXPECT_TRUE(changes_that_fit(config, 1000).empty());
}

TEST(Fit, ManyMicroBatchesHaveThePeakOfTwo) {
  RunConfig two = tiny_run(), five = two;
  two.train.accumulate = 2, five.train.accumulate = 5;
  EXPECT_EQ(planned(two) - batch_bytes(two), planned(five) - batch_bytes(five));
  RunConfig one = two;
  one.train.accumulate = 1;
  EXPECT_LE(planned(one), planned(two));
}

TEST(Fit, SmallerPresetsWhereParametersAloneAreTooMany) {
  RunConfig config = tiny_run();
  config.model = preset("llama-124m");
  config.model.vocab_size = 2048, config.model.dtype = "bf16";
  config.train.batch = 2, config.train.context = 128;
  RunConfig smaller = config;
  smaller.model = preset("llama-30m");
  smaller.model.vocab_size = 2048, smaller.model.context = 1024, smaller.model.dtype = "bf16";
  const std::vector<Change> changes = changes_that_fit(config, planned(smaller));
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].flags, "--preset llama-30m --model.dtype bf16 --model.context 1024");
  EXPECT_EQ(changes[0].bytes, planned(smaller));
  config.model.d_ff += 64;  // no preset any more: its other keys would go on beside --preset
  EXPECT_TRUE(changes_that_fit(config, planned(smaller)).empty());
}

TEST(Fit, ErrorIsALineAndItsDetailsTheTable) {
  const RunConfig config = tiny_run();
  const Plan plan = plan_run(config, nullptr);
  require_fit(config, plan, plan.step.bytes());
  require_fit(config, plan, 0);
  try {
    require_fit(config, plan, plan.step.bytes() - 1);
    FAIL() << "no error";
  } catch (const Error& e) {
    const std::string line = e.what();
    EXPECT_NE(line.find("this machine has"), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
    for (const char* part : {"parameter", "gradient", "optimizer", "activation", "total", plan.step.moment.c_str(),
                             "--train.batch 6 --train.accumulate 2"})
      EXPECT_NE(e.details.find(part), std::string::npos) << part << " in\n" << e.details;
  }
}

TEST(Fit, WhatRunsOutInTheRunIsExplained) {
  const RunConfig config = tiny_run();
  const Plan plan = plan_run(config, nullptr);
  try {
    explain_memory(config, plan, 0, [&] { throw OutOfMemory(kCpu, 256, plan.step.bytes() / 2); });
    FAIL() << "no error";
  } catch (const RunError& e) {
    EXPECT_NE(std::string(e.what()).find("no 256 bytes for a tensor"), std::string::npos) << e.what();
    EXPECT_NE(e.details.find("--train.batch "), std::string::npos) << e.details;
  }
  EXPECT_EQ(explain_memory(config, plan, 0, [] { return 7; }), 7);
}

}  // namespace
}  // namespace tally
