// The run report: made from real runs, from torn and hostile folders, small however long the run.
#include "tally/train/run_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tally/core/hardware.h"
#include "tally/train/report_html.h"
#include "tally/train/train_test_data.h"

namespace tally {
namespace {

using test::expect_error;
using test::make_data;
using test::quiet_run;
using test::small_config;
using test::TempFolder;

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::string section_of(const std::string& page, const std::string& id) {
  const size_t begin = page.find("<section id=\"" + id + "\">");
  EXPECT_NE(begin, std::string::npos) << id;
  return page.substr(begin, page.find("</section>", begin) - begin);
}

Hardware some_hardware() {
  Hardware h;
  h.name = "a machine", h.fma_flops = 1e11, h.other_flops = 1e9, h.launch_seconds = 1e-6;
  h.matmul.points = {{1e3, 1e9}, {1e9, 5e10}};
  h.bytes.points = {{1e3, 2e10}, {1e9, 1e10}};
  return h;
}

// A folder with what a report needs at least.
void write_run(const fs::path& folder, const std::string& metrics, const RunConfig& config = {}) {
  make_folder(folder);
  write_file_atomic(folder / "config.json", config.to_json().dump(2));
  write_file_atomic(folder / "metrics.jsonl", metrics);
}

std::string report_of(const fs::path& folder) { return run_report_html(read_run_record(folder), "now"); }

TEST(RunReport, OfARunHasEveryPart) {
  TempFolder folder;
  make_data(folder / "data");
  const Hardware hardware = some_hardware();
  TrainerOptions options = quiet_run(folder / "run");
  options.hardware = &hardware;
  Trainer trainer(small_config(folder / "data"), options);
  ASSERT_TRUE(trainer.run());
  const std::string page = read_file(folder / "run/report.html");
  EXPECT_EQ(count(section_of(page, "curves"), "<svg"), 5u);
  EXPECT_EQ(count(section_of(page, "curves"), "<polyline"), 6u);  // loss twice: train and validation
  EXPECT_EQ(count(section_of(page, "memory"), "<svg"), 2u);
  EXPECT_GE(count(section_of(page, "memory"), "class=\"area"), 5u);
  EXPECT_EQ(count(section_of(page, "scopes"), "<svg"), 3u);
  EXPECT_EQ(count(section_of(page, "roofline"), "<svg"), 1u);
  EXPECT_EQ(count(section_of(page, "plan"), "<td class=\"n\">0</td>"), 12u);  // differences
  EXPECT_EQ(count(section_of(page, "samples"), "<pre>"), 1u);
  EXPECT_EQ(count(section_of(page, "config"), ">optim.lr<"), 1u);
  EXPECT_EQ(count(section_of(page, "environment"), ">threads<"), 1u);
  EXPECT_EQ(count(page, "no data"), 0u);
  EXPECT_EQ(count(page, "<script"), 0u);
  EXPECT_EQ(count(page, "nan"), 0u);
  EXPECT_LT(page.size(), 200000u);
  // From the files alone the same page, but for the time of writing.
  std::string again = report_of(folder / "run");
  EXPECT_EQ(again.substr(0, again.find("report written")), page.substr(0, page.find("report written")));
}

TEST(RunReport, MeasuredTimesStandInPlaceOfPredictedOnes) {
  TempFolder folder;
  make_data(folder / "data");
  const Hardware hardware = some_hardware();
  TrainerOptions options = quiet_run(folder / "run");
  options.hardware = &hardware;
  ASSERT_TRUE(Trainer(small_config(folder / "data"), options).run());
  write_file_atomic(folder / "run/profile.json",
                    R"({"entries": [{"op": "matmul", "phase": "forward", "seconds": 0.002, "launches": 3,
    "matmul_flops": 2000000, "other_flops": 0, "bytes_read": 1000, "bytes_written": 1000}]})");
  const std::string roofline = section_of(report_of(folder / "run"), "roofline");
  EXPECT_EQ(count(roofline, "Ops of a step, measured"), 2u);  // as title and as label
  EXPECT_EQ(count(roofline, "matmul: 1 GFLOP/s, 1000 FLOP/byte, 100 % of the time"), 1u);
  EXPECT_EQ(count(roofline, ">adamw<"), 0u);
}

TEST(RunReport, WorksOnWhatAKilledRunLeaves) {
  TempFolder folder;
  write_run(folder / "run",
            "{\"step\":1,\"loss\":2.5}\nnot json\n{\"step\":2,\"loss\":null}\n{\"step\":3,\"loss\":2}\n{\"st");
  const RunRecord record = read_run_record(folder / "run");
  EXPECT_EQ(record.loss.points.x, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(record.last_step(), 3);
  EXPECT_EQ(record.notes,
            (std::vector<std::string>{"lines of metrics.jsonl left out, since they are not readable: 1"}));
  const std::string page = report_of(folder / "run");
  EXPECT_EQ(count(page, "There is no ledger.json yet."), 4u);
  EXPECT_EQ(count(section_of(page, "curves"), "no data"), 4u);
  for (const char* ledger : {"", "{", "[]", "{}", R"({"plan": 3, "measured": {}, "environment": []})",
                             R"({"plan": {"timeline": {"unit": "seconds", "edges": [], "bytes": {}, "phases": []},
                                 "peak_bytes": {"total": 1e300}, "peak_moment": "<b>", "scopes": []}})"}) {
    write_file_atomic(folder / "run/ledger.json", ledger);
    EXPECT_GT(report_of(folder / "run").size(), 1000u) << ledger;
  }
}

TEST(RunReport, RefusesWhatIsNoRun) {
  TempFolder folder;
  expect_error([&] { read_run_record(folder / "none"); }, "none: no such folder");
  expect_error([&] { read_run_record(folder.path()); }, "is not a run directory (no config.json)");
  write_run(folder / "run", "");
  expect_error([&] { read_run_record(folder / "run"); }, "has no metrics yet");
  fs::remove(folder / "run/metrics.jsonl");
  expect_error([&] { read_run_record(folder / "run"); }, "has no metrics yet");
  write_file_atomic(folder / "run/config.json", "[1]");
  expect_error([&] { read_run_record(folder / "run"); }, "config.json: is not an object");
}

TEST(RunReport, HostileTextIsShownAsText) {
  TempFolder folder;
  RunConfig config;
  const std::string attack = "</pre><script>alert(1)</script><img src=x onerror=\"alert(2)\">";
  config.train.sample_prompt = config.data.dir = attack;
  const fs::path run = folder / "<img src=x onerror=alert(3)>";
  Json sample = Json::object().set("step", 1).set("sample", attack + "\x1b[31m\x01\xff");
  write_run(run, sample.dump() + "\n", config);
  for (const std::string& page :
       {report_of(run), compare_report_html({read_run_record(run), read_run_record(run)}, "now")}) {
    EXPECT_EQ(count(page, "<script"), 0u);
    EXPECT_EQ(count(page, "<img"), 0u);
    EXPECT_GE(count(page, "&lt;img"), 2u);
  }
  EXPECT_EQ(count(report_of(run), "␛[31m␁�"), 1u);
}

TEST(RunReport, TextKeepsItsLinesAndIsCut) {
  EXPECT_EQ(html_text("a\n\n <b>\n", 100), "<pre>\na\n\n &lt;b&gt;\n</pre>");
  EXPECT_EQ(html_text("\xC3\xA9t\xC3\xA9", 3), "<pre>\n\xC3\xA9t \xE2\x80\xA6</pre>");
  EXPECT_EQ(cut_text("\xC3\xA9t\xC3\xA9", 4), "\xC3\xA9t \xE2\x80\xA6");  // not within a character
  EXPECT_EQ(html_text("", 3), "<pre>\n</pre>");
}

TEST(RunReport, AHundredThousandLinesStaySmallAndKeepTheirExtremes) {
  TempFolder folder;
  std::string metrics;
  for (int i = 1; i <= 100000; ++i) {
    const double loss = i == 33333 ? 900.0 : 3 + (i * 7919 % 1000) * 1e-3;
    metrics += fmt::format("{{\"step\":{},\"loss\":{},\"lr\":0.001,\"grad_norm\":{},\"tokens_per_second\":{}}}\n", i,
                           loss, loss, 1000 + i % 77);
    if (i % 100 == 0) metrics += fmt::format("{{\"step\":{},\"sample\":\"{}\"}}\n", i, std::string(3000, 'x'));
  }
  write_run(folder / "run", metrics);
  const RunRecord run = read_run_record(folder / "run");
  const std::string page = run_report_html(run, "now");
  EXPECT_LT(page.size(), 1000000u);
  const std::string curves = section_of(page, "curves");
  EXPECT_GE(count(curves, ">800</text>"), 1u);
  EXPECT_LE(run.loss.points.y.size(), 2 * CurveBuilder::kMost + 1);
  EXPECT_EQ(*std::max_element(run.loss.points.y.begin(), run.loss.points.y.end()), 900.0);
  EXPECT_EQ(run.last_step(), 100000);
  ASSERT_LE(run.samples.size(), RunRecord::kMostSamples);
  for (size_t i = 0; i + 1 < run.samples.size(); ++i)  // evenly spread, and the last
    EXPECT_EQ(run.samples[i].step, 100 + static_cast<int64_t>(i) * 1600);
  EXPECT_EQ(run.samples.back().step, 100000);
  const std::vector<RunRecord> runs(8, run);
  EXPECT_LT(compare_report_html(runs, "now").size(), 2000000u);
}

TEST(RunReport, ComparesRunsOnSharedAxes) {
  TempFolder folder;
  RunConfig a, b;
  b.optim.lr = 0.5, b.train.batch = 2 * a.train.batch;
  const std::string metrics = "{\"step\":1,\"loss\":2.5}\n{\"step\":8,\"loss\":1.5}\n{\"step\":8,\"val_loss\":1.25}\n";
  write_run(folder / "a", metrics, a), write_run(folder / "b", metrics, b);
  const std::string page = compare_report_html({read_run_record(folder / "a"), read_run_record(folder / "b")}, "now");
  const std::string keys = section_of(page, "config");
  EXPECT_EQ(count(keys, "<tr>"), 1u + 2u);  // the heading, optim.lr and train.batch
  EXPECT_EQ(count(keys, "<td>optim.lr</td><td>0.001</td><td>0.5</td>"), 1u);
  const std::string by_step = section_of(page, "by-step"), by_tokens = section_of(page, "by-tokens");
  EXPECT_EQ(count(by_step, "<svg"), 5u);
  EXPECT_EQ(count(by_step, "<polyline"), 2u);
  const auto first_points = [](const std::string& html) {
    const size_t at = html.find("points=\"");
    return html.substr(at, html.find('"', at + 8) - at);
  };
  EXPECT_NE(first_points(by_step), first_points(by_tokens));  // a has seen half as many tokens as b
  EXPECT_EQ(count(section_of(page, "figures"), "1.2500"), 4u);
}

TEST(RunReport, ALongCurveKeepsExtremesAndMeans) {
  CurveBuilder builder;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const int n = 3 * static_cast<int>(CurveBuilder::kMost) + 1;  // stretches of 4, the last of 1
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    const double y = i == 5 ? nan : i == 1001 ? -7 : i * 31 % 101;
    builder.add(i, y);
    if (i != 5) sum += y;
  }
  const Curve c = builder.curve();
  EXPECT_EQ(c.stretch, 4);
  ASSERT_EQ(c.means.y.size(), static_cast<size_t>((n + 3) / 4));
  EXPECT_EQ(c.means.x[1], 7);
  EXPECT_DOUBLE_EQ(c.means.y[1], (4 * 31 % 101 + 6 * 31 % 101 + 7 * 31 % 101) / 3.0);  // the gap is passed over
  double from_means = 0;
  for (size_t i = 0; i < c.means.y.size(); ++i)
    from_means += c.means.y[i] * (i == 1 ? 3 : i + 1 == c.means.y.size() ? 1 : 4);
  EXPECT_NEAR(from_means, sum, 1e-6);
  EXPECT_EQ(*std::min_element(c.points.y.begin(), c.points.y.end()), -7);
  EXPECT_EQ(
      c.points.x[static_cast<size_t>(std::min_element(c.points.y.begin(), c.points.y.end()) - c.points.y.begin())],
      1001);
  EXPECT_TRUE(std::is_sorted(c.points.x.begin(), c.points.x.end()));
  EXPECT_EQ(c.points.x.back(), n - 1);
  CurveBuilder few;
  for (int i = 0; i < 9; ++i) few.add(i, i % 2 ? nan : i);
  EXPECT_EQ(few.curve().points.x, (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(few.curve().means.y[8], 8);
  EXPECT_TRUE(std::isnan(few.curve().points.y[7]));
}

TEST(RunReport, SmoothedIsATrailingMean) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Series s = smoothed({"s", {1, 2, 3, 4, 5}, {2, 4, nan, 6, 10}}, 2);
  EXPECT_EQ(s.y, (std::vector<double>{2, 3, 4, 6, 8}));
}

TEST(RunReport, AFailureToWriteItDoesNotEndTheRun) {
  TempFolder folder;
  make_data(folder / "data");
  Trainer trainer(small_config(folder / "data"), quiet_run(folder / "run"));
  make_folder(folder / "run/report.html");  // a folder where the file is to be
  EXPECT_TRUE(trainer.run());
  EXPECT_TRUE(fs::exists(folder / "run/ledger.json"));
  EXPECT_TRUE(fs::is_directory(folder / "run/report.html"));
}

}  // namespace
}  // namespace tally
