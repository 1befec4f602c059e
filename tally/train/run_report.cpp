#include "tally/train/run_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "tally/base/error.h"
#include "tally/train/report.h"
#include "tally/train/report_html.h"
#include "tally/train/report_ledger.h"

namespace tally {

namespace {

constexpr size_t kMostSamples = 40, kMostSampleBytes = 8000, kMostValueBytes = 400;

bool wide_range(const Series& s) {  // more than a factor of 20: a logarithmic axis
  double low = INFINITY, high = 0;
  for (const double y : s.y)
    if (std::isfinite(y) && y > 0) low = std::min(low, y), high = std::max(high, y);
  return high > 20 * low;
}

std::string curves_html(const RunRecord& run) {
  std::vector<std::string> plots;
  LineChart loss;
  loss.title = "Loss (nats a token)", loss.x_label = "step";
  loss.series = {run.loss.points};
  loss.series[0].name = "train";
  if (const size_t window = run.loss.means.y.size() / 50; window >= 4) {
    loss.series.push_back(smoothed(run.loss.means, window));
    loss.series.back().name = fmt::format("train, mean of {} points", static_cast<int64_t>(window) * run.loss.stretch);
  }
  if (!run.val_loss.points.y.empty()) {
    loss.series.push_back(run.val_loss.points);
    loss.series.back().name = "validation";
  }
  plots.push_back(line_chart_svg(loss));
  const auto add = [&](const char* title, const Series& series, bool from_zero) {
    LineChart chart;
    chart.title = title, chart.x_label = "step", chart.series = {series}, chart.from_zero = from_zero;
    chart.log_y = !from_zero && wide_range(series);
    plots.push_back(line_chart_svg(chart));
  };
  add("Validation loss (nats a token)", run.val_loss.points, false);
  add("Learning rate", run.lr.points, true);
  add("Gradient norm, before clipping", run.grad_norm.points, false);
  add("Tokens a second", run.tokens_per_second.points, true);
  return html_grid(plots);
}

std::string summary_html(const RunRecord& run) {
  const RunFigures f = figures_of(run);
  std::vector<std::pair<std::string, std::string>> tiles;
  const std::string best = "best validation loss, at step " + f.best_step;
  const std::pair<std::string, const std::string*> all[] = {{"step", &f.steps},
                                                            {"tokens", &f.tokens},
                                                            {"parameters", &f.parameters},
                                                            {"loss", &f.loss},
                                                            {"validation loss", &f.val_loss},
                                                            {best, &f.best_val_loss},
                                                            {"bits a byte", &f.bits_per_byte},
                                                            {"tokens a second (median)", &f.tokens_per_second},
                                                            {"time of a step", &f.step_time},
                                                            {"measured peak memory", &f.peak_memory},
                                                            {"of the peak FLOP/s", &f.peak_share}};
  for (const auto& [name, value] : all)
    if (*value != "-") tiles.emplace_back(name, *value);
  std::string html = html_tiles(tiles);
  for (const std::string& note : run.notes) html += html_note(note);
  return html;
}

std::string samples_html(const RunRecord& run) {
  if (run.samples.empty()) return html_note("No sample was written yet.");
  const auto heading = [](const RunRecord::Sample& s) { return "step " + with_commas(s.step); };
  const RunRecord::Sample& last = run.samples.back();
  std::string html = html_note(heading(last)) + html_text(last.text, kMostSampleBytes);
  const size_t earlier = run.samples.size() - 1, shown = std::min(earlier, kMostSamples);
  for (size_t i = shown; i-- > 0;) {  // evenly spread, the latest first
    const RunRecord::Sample& s = run.samples[i * earlier / shown];
    html += html_folded(heading(s), html_text(s.text, kMostSampleBytes));
  }
  return html;
}

// The defaults to compare with: of the preset whose shape is nearest, if it is near.
std::pair<std::string, RunConfig> defaults_for(const RunConfig& config) {
  const auto rows_of = [&](ModelConfig model) {
    model.vocab_size = config.model.vocab_size;  // comes from the data
    return config_rows(fields_to_json(fields_of(model)));
  };
  const auto wanted = rows_of(config.model);
  std::string nearest = "Tally's defaults";
  RunConfig defaults;
  size_t fewest = 5;
  for (const std::string& name : preset_names()) {
    const auto rows = rows_of(preset(name));
    size_t differ = 0;
    for (size_t i = 0; i < rows.size(); ++i) differ += rows[i] != wanted[i];
    if (differ >= fewest) continue;
    fewest = differ, nearest = "the preset " + name, defaults.model = preset(name);
  }
  defaults.model.vocab_size = config.model.vocab_size;
  return {nearest, defaults};
}

std::string config_html(const RunRecord& run) {
  HtmlTable table;
  table.head = {"key", "value"};
  table.numbers_from = 2;
  std::map<std::string, std::string> defaults;
  std::string against;
  if (run.parsed) {
    const auto [name, config] = defaults_for(*run.parsed);
    for (const auto& [key, value] : config_rows(config.to_json())) defaults[key] = value;
    table.head.push_back(against = name);
    table.numbers_from = 3;
  }
  for (const auto& [key, value] : config_rows(run.config)) {
    const auto usual = defaults.find(key);
    const bool differs = usual != defaults.end() && !usual->second.empty() && usual->second != value;
    HtmlTable::Row row{{key, cut_text(value, kMostValueBytes)}, differs ? "marked" : ""};
    if (run.parsed) row.cells.push_back(differs ? usual->second : "");
    table.rows.push_back(row);
  }
  std::string html =
      against.empty() ? "" : html_note("Marked: what differs from " + against + ", whose value stands behind.");
  return html + html_table(table);
}

std::string environment_html(const Json& ledger, const std::string& written) {
  HtmlTable table;
  table.numbers_from = 2;
  const Json* environment = ledger.is_object() ? ledger.find("environment") : nullptr;
  if (environment && environment->is_object())
    for (const auto& [key, value] : config_rows(*environment)) table.rows.push_back({{key, value}});
  table.rows.push_back({{"report written", written}});
  return html_table(table);
}

}  // namespace

std::string run_report_html(const RunRecord& run, const std::string& written) {
  std::string html = html_section("summary", "Summary", summary_html(run));
  html += html_section("curves", "Curves", curves_html(run));
  const auto of_ledger = [&](const char* id, const char* title, auto section) {
    std::string body;
    try {
      body = run.ledger.is_object() ? section(run.ledger) : html_note("There is no ledger.json yet.");
    } catch (const Error& e) {
      body = html_note(std::string("ledger.json does not have it: ") + e.what());
    }
    html += html_section(id, title, body);
  };
  of_ledger("memory", "Memory", memory_html);
  of_ledger("plan", "Plan and measured", plan_html);
  of_ledger("scopes", "Work by scope", scopes_html);
  of_ledger("roofline", "Roofline", [&](const Json& ledger) { return roofline_html(ledger, run.profile); });
  html += html_section("samples", "Samples", samples_html(run));
  html += html_section("config", "Configuration", config_html(run));
  html += html_section("environment", "Environment", environment_html(run.ledger, written));
  return html_page("Run " + run.name, "Tally's report of a training run, from the files of its folder.", html);
}

}  // namespace tally
