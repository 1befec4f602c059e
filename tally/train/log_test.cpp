#include "tally/train/log.h"

#include <fstream>

#include "tests/support/support.h"

namespace tally {
namespace {

using test::TempFolder;

TEST(Metrics, KeepsLinesUpToTheStep) {
  const std::string text =
      "{\"step\":1,\"loss\":5.5}\n{\"step\":2,\"loss\":5}\n{\"step\":2,\"val_loss\":4}\n{\"step\":3,\"loss\":4}\n";
  EXPECT_EQ(metrics_until(text, 2), text.substr(0, text.find("{\"step\":3")));
  EXPECT_EQ(metrics_until(text, 0), "");
  EXPECT_EQ(metrics_until(text, 9), text);
}

TEST(Metrics, DropsATornLine) {
  EXPECT_EQ(metrics_until("{\"step\":1}\n{\"step\":2", 9), "{\"step\":1}\n");
  EXPECT_EQ(metrics_until("{\"step\":1}\n{\"st\n{\"step\":2}\n", 9), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(metrics_until("", 9), "");
}

TEST(Metrics, AppendsAfterResume) {
  TempFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  {
    MetricsFile m(path, 0);
    for (int64_t i = 1; i <= 4; ++i) m.add(Json::object().set("step", i));
    EXPECT_EQ(read_file(path), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");  // at once, not at the end
  }
  std::ofstream(path, std::ios::app) << "{\"step\":5,\"lo";
  MetricsFile m(path, 3);
  m.add(Json::object().set("step", int64_t{4}));
  m.file().flush();
  EXPECT_EQ(read_file(path), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
}

TEST(Metrics, ANewRunStartsEmpty) {
  TempFolder folder;
  std::ofstream(folder / "metrics.jsonl") << "{\"step\":5}\n";
  MetricsFile m(folder / "metrics.jsonl", 0);
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "");
}

TEST(Progress, Line) {
  Progress::State s;
  s.step = 50, s.loss = 2.34567, s.tokens_per_second = 12345, s.peak_share = 0.42, s.seconds_left = 90;
  EXPECT_EQ(Progress::text(s, 100, 0), "step 50/100  loss 2.3457  12.3 k tokens/s  42 % of peak  ETA 90 s");
  const std::string line = Progress::text(s, 100, 0);
  EXPECT_EQ(Progress::text(s, 100, 120), "[############............] " + line);
  EXPECT_EQ(Progress::text(s, 100, 80), "[######.....] " + line);  // a longer line would wrap and not be rewritten
  EXPECT_EQ(Progress::text(s, 100, 40), line.substr(0, 39));
  s.step = 100, s.peak_share = 0;
  EXPECT_EQ(Progress::text(s, 100, 0), "step 100/100  loss 2.3457  12.3 k tokens/s");
}

}  // namespace
}  // namespace tally
