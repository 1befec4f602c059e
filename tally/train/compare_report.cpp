// Several runs beside each other (run_report.h).
#include <algorithm>
#include <map>

#include "tally/base/error.h"
#include "tally/train/report_html.h"
#include "tally/train/run_report.h"

namespace tally {

namespace {

struct Metric {
  const char* title;
  Curve RunRecord::*curve;
  bool smooth, from_zero, log_y;
};
constexpr Metric kMetrics[] = {{"Loss (nats a token)", &RunRecord::loss, true, false, false},
                               {"Validation loss (nats a token)", &RunRecord::val_loss, false, false, false},
                               {"Learning rate", &RunRecord::lr, false, true, false},
                               {"Gradient norm, before clipping", &RunRecord::grad_norm, true, false, true},
                               {"Tokens a second", &RunRecord::tokens_per_second, false, true, false}};

std::string curves_html(const std::vector<RunRecord>& runs, bool by_tokens) {
  std::vector<std::string> plots;
  for (const Metric& metric : kMetrics) {
    LineChart chart;
    chart.title = metric.title;
    chart.x_label = by_tokens ? "tokens" : "step";
    chart.from_zero = metric.from_zero, chart.log_y = metric.log_y;
    for (const RunRecord& run : runs) {
      const Curve& curve = run.*metric.curve;
      Series series =
          metric.smooth ? smoothed(curve.means, std::max<size_t>(1, curve.means.y.size() / 50)) : curve.points;
      series.name = run.name;
      if (by_tokens)
        for (double& x : series.x) x *= static_cast<double>(run.tokens_per_step());
      if (by_tokens && run.tokens_per_step() == 0) series.x.clear(), series.y.clear();
      chart.series.push_back(std::move(series));
    }
    plots.push_back(line_chart_svg(chart));
  }
  return html_grid(plots);
}

std::string figures_html(const std::vector<RunRecord>& runs) {
  HtmlTable table;
  table.head = {"run",     "step",        "tokens",     "parameters",  "loss",        "val loss",      "best",
                "at step", "bits a byte", "tokens a s", "time a step", "peak memory", "of peak FLOP/s"};
  for (const RunRecord& run : runs) {
    const RunFigures f = figures_of(run);
    table.rows.push_back({{run.name, f.steps, f.tokens, f.parameters, f.loss, f.val_loss, f.best_val_loss, f.best_step,
                           f.bits_per_byte, f.tokens_per_second, f.step_time, f.peak_memory, f.peak_share}});
  }
  std::string html = html_table(table);
  for (const RunRecord& run : runs)
    for (const std::string& note : run.notes) html += html_note(run.name + ": " + note);
  return html;
}

std::string config_html(const std::vector<RunRecord>& runs) {
  std::vector<std::string> keys;
  std::vector<std::map<std::string, std::string>> values(runs.size());
  for (size_t i = 0; i < runs.size(); ++i)
    for (const auto& [key, value] : config_rows(runs[i].config)) {
      values[i][key] = cut_text(value, 200);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  HtmlTable table;
  table.head = {"key"};
  table.numbers_from = runs.size() + 1;
  for (const RunRecord& run : runs) table.head.push_back(run.name);
  for (const std::string& key : keys) {
    HtmlTable::Row row{{key}};
    bool differs = false;
    for (const auto& of_run : values) {
      const auto found = of_run.find(key);
      row.cells.push_back(found == of_run.end() ? "-" : found->second);
      differs = differs || row.cells.back() != row.cells[1];
    }
    if (differs) table.rows.push_back(row);
  }
  return table.rows.empty() ? html_note("No key of config.json differs.") : html_table(table);
}

}  // namespace

std::string compare_report_html(const std::vector<RunRecord>& runs, const std::string& written) {
  std::string html = html_section("figures", "Final figures", figures_html(runs));
  html += html_section("config", "What differs in the configuration", config_html(runs));
  html += html_section("by-step", "Curves by step", curves_html(runs, false));
  html += html_section("by-tokens", "Curves by tokens", curves_html(runs, true));
  html += html_note("Loss and gradient norm are means over 2 % of a run's points. Written " + written + ".");
  return html_page(fmt::format("{} runs", runs.size()), "Tally's comparison of training runs, from their folders.",
                   html);
}

}  // namespace tally
