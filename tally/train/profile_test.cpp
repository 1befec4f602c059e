#include "tally/train/profile.h"

#include <gtest/gtest.h>

#include "tally/train/step.h"
#include "tests/support/support.h"

namespace tally {
namespace {

// A thousand FLOPs a second, a hundred bytes a second up to 1000 bytes and ten from 100000 on.
Hardware slow_machine() {
  Hardware h;
  h.name = "slow", h.fma_flops = 1000, h.other_flops = 500;
  h.matmul.points = {{1, 1000}};
  h.bytes.points = {{1000, 100}, {100000, 10}};
  return h;
}

RunConfig small_run() {
  RunConfig c;
  c.model = preset("tiny");
  c.model.d_model = 32, c.model.d_ff = 48, c.model.context = 16;
  c.train.batch = 2;
  return c;
}

FillBatch some_ids(const RunConfig& c) {
  return [n = c.train.batch * c.context()](int64_t index, int32_t* ids, int32_t* targets) {
    for (int64_t i = 0; i < n; ++i)
      ids[i] = static_cast<int32_t>((index + 7 * i) % 250), targets[i] = static_cast<int32_t>((index + i) % 250);
  };
}

TEST(Profile, TheRoofIsTheLongerOfFlopsAndBytes) {
  const Hardware h = slow_machine();
  EXPECT_DOUBLE_EQ(roof_seconds(h, {3000, 2000, 0, 0}), 5);         // FLOPs alone
  EXPECT_DOUBLE_EQ(roof_seconds(h, {0, 100, 300, 200}), 5);         // 500 bytes at 100 a second against 0.1 s
  EXPECT_DOUBLE_EQ(roof_seconds(h, {0, 9000, 300, 200}), 9);        // the FLOPs are longer
  EXPECT_DOUBLE_EQ(roof_seconds(h, {0, 0, 150000, 50000}), 20000);  // memory-bound sizes have their own rate
}

TEST(Profile, HasEveryLaunchOfAStepWithItsCost) {
  const RunConfig c = small_run();
  const LedgerGuard guard;
  TrainState state(c, kCpu);
  train_step(c, state, some_ids(c));
  guard.ledger().clear_costs();
  const Hardware slow = slow_machine();
  guard.ledger().set_hardware(&slow);
  Profiler profiler;
  for (int i = 0; i < 3; ++i) {
    profiler.begin_step(state.step + 1);
    train_step(c, state, some_ids(c));
    profiler.end_step();
  }
  const Profile p = profiler.profile(slow_machine());
  EXPECT_EQ(p.steps, 3);
  int64_t launches = 0;
  Cost sum;
  for (const ProfileEntry& e : p.entries) {
    EXPECT_TRUE(e.phase == "forward" || e.phase == "backward" || e.phase == "optimizer") << e.op << " " << e.phase;
    EXPECT_GT(e.seconds, 0) << e.op;
    launches += 3 * e.launches;
    for (int i = 0; i < 3; ++i) sum += e.cost;
  }
  EXPECT_EQ(launches, guard.ledger().launches());
  EXPECT_EQ(sum, guard.ledger().cost());
  EXPECT_LE(p.kernel_seconds(), p.step_seconds);
  EXPECT_GT(p.idle_seconds, 0);
  EXPECT_LE(p.kernel_seconds() + p.idle_seconds, p.step_seconds);  // launches are not nested
  double predicted = 0;
  for (const Ledger::Entry& e : guard.ledger().entries()) {
    const auto found = std::find_if(p.entries.begin(), p.entries.end(),
                                    [&](const ProfileEntry& x) { return x.op == e.op && x.phase == e.phase; });
    ASSERT_NE(found, p.entries.end()) << e.op;
    predicted += e.predicted_seconds;
  }
  EXPECT_NEAR(p.predicted_seconds(), predicted / 3, 1e-9 * predicted);
  EXPECT_NEAR(p.kernel_seconds("forward") + p.kernel_seconds("backward") + p.kernel_seconds("optimizer"),
              p.kernel_seconds(), 1e-9);
  for (size_t i = 1; i < p.entries.size(); ++i) EXPECT_GE(p.entries[i - 1].seconds, p.entries[i].seconds);
}

TEST(Profile, MedianOfNumbers) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({3}), 3);
  EXPECT_EQ(median_of({9, 1, 4}), 4);
}

TEST(Profile, LooksOnlyBetweenBeginAndEnd) {
  const RunConfig c = small_run();
  const LedgerGuard guard;
  TrainState state(c, kCpu);
  Profiler profiler;
  profiler.begin_step(1);
  profiler.end_step();
  train_step(c, state, some_ids(c));
  EXPECT_TRUE(profiler.profile(slow_machine()).entries.empty());
  {
    Profiler other;
    other.begin_step(1);  // a step that ends by an exception
  }
  EXPECT_EQ(set_launch_observer(nullptr), nullptr);
}

TEST(Profile, TraceIsInTheFormatOfChrome) {
  const RunConfig c = small_run();
  const LedgerGuard guard;
  TrainState state(c, kCpu);
  Profiler profiler;
  for (int i = 0; i < 2; ++i) {
    profiler.begin_step(state.step + 1);
    train_step(c, state, some_ids(c));
    profiler.end_step();
  }
  const Json trace = Json::parse(profiler.trace().dump(), "trace.json");
  double step_start = 0, step_end = 0, last = 0;
  int64_t steps = 0, launches = 0, scoped = 0;
  const std::vector<Json> events = trace.at("traceEvents").as_array();
  for (const Json& e : events) {
    EXPECT_EQ(e.at("ph").as_string(), "X");
    EXPECT_GE(e.at("dur").as_double(), 0);
    EXPECT_EQ(e.at("pid").as_int(), 1);
    EXPECT_EQ(e.at("tid").as_int(), 1);
    if (e.at("cat").as_string() == "step") {
      if (steps++ == 0) step_start = e.at("ts").as_double();
      step_end = e.at("ts").as_double() + e.at("dur").as_double();
      continue;
    }
    ++launches;
    if (e.at("args").at("scope").as_string() == "blocks.1/attn") ++scoped;
    EXPECT_GE(e.at("ts").as_double(), std::max(step_start, last));  // one after the other, inside the steps
    last = e.at("ts").as_double() + e.at("dur").as_double();
  }
  EXPECT_LE(last, step_end);
  EXPECT_EQ(steps, 2);
  EXPECT_GT(launches, 100);
  EXPECT_GT(scoped, 0);
}

TEST(Profile, TableNamesWhatIsOutsideKernels) {
  Profile p;
  p.steps = 2, p.step_seconds = 10, p.idle_seconds = 1.5;
  p.entries = {{"matmul", "forward", 6, 3, {12'000'000'000, 0, 1'000'000'000, 2'000'000'000}, 3, 5},
               {"adamw", "optimizer", 2, 1, {0, 2'000'000'000, 4'000'000'000, 0}, 1, 0}};
  const std::string text = profile_text(p);
  for (const char* part :
       {"profile of 2 steps, 10 s each", "matmul", "60.0 %", "2.0      0.5     50 %", "adamw", "20.0 %",
        "6 s        5 s", "2 s          -", "outside kernels", "20.0 %", "between two launches", "15.0 %"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_NE(profile_text(Profile{}).find("no step"), std::string::npos);
}

TEST(Profile, StepsAreNOrStepsIsN) {
  EXPECT_EQ(parse_profile_steps("3"), 3);
  EXPECT_EQ(parse_profile_steps("steps=12"), 12);
  for (const char* wrong : {"", "steps=", "0", "-1", "steps=3x", "step=3", "99999999999999999999"})
    test::expect_error([&] { parse_profile_steps(wrong); }, "write --profile steps=N");
}

}  // namespace
}  // namespace tally
