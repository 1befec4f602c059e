// tally report: the page of a run, or of several runs beside each other, from the files of their folders.
#include <fmt/core.h>

#include "cli/verbs.h"
#include "tally/base/error.h"
#include "tally/train/environment.h"
#include "tally/train/run_report.h"

namespace tally::cli {
namespace {

struct Report {
  std::vector<std::string> runs;
  std::string out;
  bool dry_run = false;

  static constexpr const char* kPositional = "runs";
  static constexpr const char* kDetails =
      "tally report RUN                       writes RUN/report.html anew, while the run goes on as well\n"
      "tally report RUN1 RUN2 --out both.html curves on shared axes, keys that differ, final figures\n"
      "One page without scripts or other files; it opens from disk.";

  void fields(Fields& f) {
    f("runs", runs, "folders of runs");
    f("out", out, "file to write; for one run report.html in its folder unless given");
    f("dry_run", dry_run, "read the runs, say what would be written and write nothing");
  }

  int run() {
    if (runs.empty()) fail("no run; name the folder of a run, or of several");
    if (runs.size() > 1 && out.empty())
      fail("no --out; name the file to write the comparison of {} runs to", runs.size());
    std::vector<RunRecord> records;
    for (const std::string& folder : runs) records.push_back(read_run_record(folder));
    const fs::path file = out.empty() ? fs::path(runs[0]) / "report.html" : fs::path(out);
    if (dry_run) {
      fmt::print("would write {}\n", file.string());
      return 0;
    }
    write_file_atomic(
        file, records.size() == 1 ? run_report_html(records[0], utc_now()) : compare_report_html(records, utc_now()));
    fmt::print("{}\n", file.string());
    return 0;
  }
};

}  // namespace

std::vector<Verb> report_verbs() {
  return {make_verb<Report>("report", "a page of plots and tables of a run, or of several")};
}

}  // namespace tally::cli
