// report.html: a run, or several beside each other, as one self-contained page of plots and tables, made from the files
// of their folders alone.
#pragma once

#include <string>
#include <vector>

#include "tally/train/run_record.h"

namespace tally {

// written: when, as text.
std::string run_report_html(const RunRecord& run, const std::string& written);

// Curves on shared axes by step and by tokens, the keys of config.json that differ, final figures.
std::string compare_report_html(const std::vector<RunRecord>& runs, const std::string& written);

// What both kinds of page show of a run.
struct RunFigures {
  std::string steps, tokens, parameters, loss, val_loss, best_val_loss, best_step, bits_per_byte, tokens_per_second,
      step_time, peak_memory, peak_share;  // "-" where not known
};
RunFigures figures_of(const RunRecord& run);

// config.json as rows of dotted keys and values, in its order.
std::vector<std::pair<std::string, std::string>> config_rows(const Json& config);

// The mean of each point and the `window` - 1 before it; gaps are passed over.
Series smoothed(const Series& series, size_t window);

}  // namespace tally
