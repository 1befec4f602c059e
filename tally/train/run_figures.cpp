// The figures of a run that the report and the comparison share (run_report.h).
#include <algorithm>
#include <cmath>

#include "tally/base/error.h"
#include "tally/core/hardware.h"
#include "tally/train/report.h"
#include "tally/train/run_report.h"

namespace tally {

namespace {

std::string last_value(const Series& s) {
  for (size_t i = s.y.size(); i-- > 0;)
    if (std::isfinite(s.y[i])) return fmt::format("{:.4f}", s.y[i]);
  return "-";
}

void add_lowest(const Series& s, RunFigures& f) {
  const auto best = std::min_element(
      s.y.begin(), s.y.end(), [](double a, double b) { return std::isfinite(a) && (!std::isfinite(b) || a < b); });
  if (best == s.y.end() || !std::isfinite(*best)) return;
  f.best_val_loss = fmt::format("{:.4f}", *best);
  f.best_step = with_commas(static_cast<int64_t>(s.x[static_cast<size_t>(best - s.y.begin())]));
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void add_ledger_figures(const Json& ledger, double step_seconds, RunFigures& f) {
  const Json &plan = ledger.at("plan"), &measured = ledger.at("measured");
  f.parameters = with_commas(plan.at("parameters").as_int());
  f.peak_memory = bytes_text(measured.at("peak_bytes").at("total").as_double());
  if (const double seconds = measured.at("step_seconds").as_double(); seconds > 0) step_seconds = seconds;
  if (!(step_seconds > 0)) return;
  f.step_time = seconds_text(step_seconds);
  if (const Json* hardware = plan.find("hardware")) {
    const double flops = plan.at("step").at("matmul FLOPs").as_double() / step_seconds;
    f.peak_share = fmt::format("{:.1f} %", 100 * flops / Hardware::from_json(*hardware).fma_flops);
  }
}

void add_rows(const Json& json, const std::string& prefix, std::vector<std::pair<std::string, std::string>>& rows) {
  for (const auto& [key, value] : json.as_object()) {
    if (value.is_object())
      add_rows(value, prefix + key + ".", rows);
    else
      rows.emplace_back(prefix + key, value.is_string() ? value.as_string() : value.dump());
  }
}

}  // namespace

RunFigures figures_of(const RunRecord& run) {
  RunFigures f;
  for (std::string* s : {&f.steps, &f.tokens, &f.parameters, &f.loss, &f.val_loss, &f.best_val_loss, &f.best_step,
                         &f.bits_per_byte, &f.tokens_per_second, &f.step_time, &f.peak_memory, &f.peak_share})
    *s = "-";
  const double per_step = static_cast<double>(run.tokens_per_step()), step = static_cast<double>(run.last_step());
  const double speed = median(run.tokens_per_second.means.y);
  f.steps = with_commas(run.last_step()) + (run.parsed ? " of " + with_commas(run.parsed->train.steps) : "");
  if (per_step > 0) f.tokens = value_text(per_step * step, PlotUnit::kNumber);
  f.loss = last_value(run.loss.points), f.val_loss = last_value(run.val_loss.points);
  add_lowest(run.val_loss.points, f);
  f.bits_per_byte = last_value(run.bits_per_byte.points);
  if (speed > 0) f.tokens_per_second = value_text(speed, PlotUnit::kNumber);
  const double seconds = speed > 0 && per_step > 0 ? per_step / speed : 0;
  if (seconds > 0) f.step_time = seconds_text(seconds);
  try {
    if (run.ledger.is_object()) add_ledger_figures(run.ledger, seconds, f);
  } catch (const Error&) {  // a ledger of another version: its section says so
  }
  return f;
}

std::vector<std::pair<std::string, std::string>> config_rows(const Json& config) {
  std::vector<std::pair<std::string, std::string>> rows;
  add_rows(config, "", rows);
  return rows;
}

Series smoothed(const Series& s, size_t window) {
  Series out{s.name, s.x, s.y};
  double sum = 0;
  size_t count = 0;
  const auto add = [&](size_t i, int sign) {
    if (!std::isfinite(s.y[i])) return;
    sum += sign * s.y[i];
    count += static_cast<size_t>(sign);
  };
  for (size_t i = 0; i < s.y.size(); ++i) {
    add(i, 1);
    if (i >= window) add(i - window, -1);
    out.y[i] = count > 0 ? sum / static_cast<double>(count) : s.y[i];
  }
  return out;
}

}  // namespace tally
