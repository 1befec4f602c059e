#include "tally/train/report_ledger.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tally/base/error.h"
#include "tally/base/plot.h"
#include "tally/core/hardware.h"
#include "tally/train/report.h"
#include "tally/train/report_html.h"

namespace tally {

namespace {

double number_or_0(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value && value->is_number() ? value->as_double() : 0;
}

std::vector<double> numbers(const Json& array) {
  std::vector<double> all;
  for (const Json& v : array.as_array()) all.push_back(v.as_double());
  return all;
}

// "blocks.3/attn" of "blocks.3/attn/q"; what runs outside of all scopes is "(step)".
std::string upper_scope(const std::string& scope) {
  const size_t first = scope.find('/');
  const size_t second = first == std::string::npos ? first : scope.find('/', first + 1);
  return scope.empty() ? "(step)" : scope.substr(0, second);
}

// "blocks.*/attn" of "blocks.3/attn": the blocks are alike.
std::string folded_scope(const std::string& scope) {
  const size_t dot = scope.find('.'), slash = std::min(scope.find('/'), scope.size());
  const bool counted =
      dot != std::string::npos && dot + 1 < slash && scope.find_first_not_of("0123456789", dot + 1) >= slash;
  return counted ? scope.substr(0, dot + 1) + "*" + scope.substr(slash) : scope;
}

struct Work {
  double matmul = 0, other = 0, bytes = 0, seconds = 0, launches = 0;
  double flops() const { return matmul + other; }
  void add(const Json& e, const char* seconds_key) {
    matmul += e.at("matmul_flops").as_double(), other += e.at("other_flops").as_double();
    bytes += e.at("bytes_read").as_double() + e.at("bytes_written").as_double();
    launches += number_or_0(e, "launches"), seconds += number_or_0(e, seconds_key);
  }
};

// Sums with their names in the order of first use.
struct WorkTable {
  std::vector<std::string> names;
  std::map<std::string, Work> of;
  Work all;
  void add(const std::string& name, const Json& entry, const char* seconds_key) {
    if (of.try_emplace(name).second) names.push_back(name);
    of[name].add(entry, seconds_key), all.add(entry, seconds_key);
  }
};

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

std::vector<std::string> work_cells(const std::string& name, const Work& w, const Work& all) {
  const bool timed = all.seconds > 0;
  return {name,
          value_text(w.launches, PlotUnit::kNumber),
          value_text(w.matmul, PlotUnit::kNumber),
          value_text(w.other, PlotUnit::kNumber),
          bytes_text(w.bytes),
          timed ? seconds_text(w.seconds) : "-",
          timed ? share_text(w.seconds, all.seconds) : share_text(w.flops(), all.flops())};
}

HtmlTable work_table(const WorkTable& table, const char* what) {
  HtmlTable html;
  html.head = {what, "launches", "matmul FLOPs", "other FLOPs", "bytes", "predicted time", "share"};
  for (const std::string& name : table.names) html.rows.push_back({work_cells(name, table.of.at(name), table.all)});
  html.rows.push_back({work_cells("step", table.all, table.all), "sum"});
  return html;
}

}  // namespace

std::string memory_html(const Json& ledger) {
  const Json& plan = ledger.at("plan");
  const Json& timeline = plan.at("timeline");
  const bool timed = timeline.at("unit").as_string() == "seconds";
  StackedSteps plot;
  plot.title = "Bytes live over one step, as planned";
  plot.x_label = timed ? "predicted time" : "launches";
  if (timed) plot.x_unit = PlotUnit::kSeconds;
  plot.edges = numbers(timeline.at("edges"));
  for (const auto& [name, values] : timeline.at("bytes").as_object()) plot.layers.push_back({name, numbers(values)});
  for (const Json& p : timeline.at("phases").as_array())
    plot.spans.push_back({p.at("phase").as_string(), p.at("from").as_double(), p.at("to").as_double()});
  BarChart peaks;
  peaks.title = "At the peak, planned";
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, bytes] : plan.at("peak_bytes").as_object())
    if (name != "total") sorted.emplace_back(bytes.as_double(), name);
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto& [bytes, name] : sorted) peaks.bars.push_back({name, {bytes}, bytes_text(bytes)});
  return html_grid({stacked_steps_svg(plot), bars_svg(peaks)}) +
         html_note(fmt::format("The peak is {} in {}.", bytes_text(plan.at("peak_bytes").at("total").as_double()),
                               plan.at("peak_moment").as_string()));
}

namespace {

void add_plan_rows(HtmlTable& table, const Json& plan, const Json& measured, bool total_only) {
  for (const auto& [name, value] : plan.as_object()) {
    if (total_only && name != "total") continue;
    const Json* seen = measured.find(name);
    const int64_t a = value.as_int(), b = seen ? seen->as_int() : 0;
    table.rows.push_back({{name, with_commas(a), with_commas(b), with_commas(b - a)}, name == "total" ? "sum" : ""});
  }
}

}  // namespace

std::string plan_html(const Json& ledger) {
  const Json &plan = ledger.at("plan"), &measured = ledger.at("measured");
  HtmlTable table;
  table.head = {"", "plan", "measured", "difference"};
  table.rows.push_back({{"bytes at the peak of a step", "", "", ""}, "part"});
  add_plan_rows(table, plan.at("peak_bytes"), measured.at("peak_bytes"), false);
  if (measured.at("evaluations").as_int() > 0) {
    table.rows.push_back({{"bytes at the peak of a validation batch", "", "", ""}, "part"});
    add_plan_rows(table, plan.at("eval_peak_bytes"), measured.at("eval_peak_bytes"), true);
  }
  table.rows.push_back({{"work of a step", "", "", ""}, "part"});
  add_plan_rows(table, plan.at("step"), measured.at("step"), false);
  const double a = plan.at("step_seconds").as_double(), b = measured.at("step_seconds").as_double();
  if (a > 0 && b > 0)
    table.rows.push_back(
        {{"time (predicted, median)", seconds_text(a), seconds_text(b), fmt::format("{:+.0f} %", 100 * (b / a - 1))}});
  return html_table(table) +
         html_note(
             fmt::format("Measured over {} steps: bytes where blocks of memory are taken and given back, work of the "
                         "launches that were made, time by the clock.",
                         with_commas(measured.at("steps").as_int())));
}

std::string scopes_html(const Json& ledger) {
  WorkTable phases, scopes;
  std::map<std::string, std::map<std::string, Work>> folded;  // scope, phase
  std::vector<std::string> names;
  for (const Json& e : ledger.at("plan").at("scopes").as_array()) {
    const std::string phase = e.at("phase").as_string(), scope = upper_scope(e.at("scope").as_string());
    phases.add(phase, e, "predicted_seconds");
    scopes.add(scope, e, "predicted_seconds");
    const std::string kind = folded_scope(scope);
    if (!folded.contains(kind)) names.push_back(kind);
    folded[kind][phase].add(e, "predicted_seconds");
  }
  const auto bars = [&](const char* title, auto value, auto text) {
    BarChart chart;
    chart.title = title, chart.parts = phases.names;
    for (const std::string& name : names) {
      BarChart::Bar bar{name, {}, ""};
      double sum = 0;
      for (const std::string& phase : phases.names)
        bar.parts.push_back(value(folded[name][phase])), sum += bar.parts.back();
      bar.text = text(sum);
      chart.bars.push_back(bar);
    }
    std::stable_sort(chart.bars.begin(), chart.bars.end(), [](const auto& a, const auto& b) {
      const auto sum = [](const auto& bar) { return std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0); };
      return sum(a) > sum(b);
    });
    if (chart.bars.size() > 14) chart.bars.resize(14);
    return bars_svg(chart);
  };
  const auto flops = bars(
      "FLOPs by scope", [](const Work& w) { return w.flops(); },
      [](double v) { return value_text(v, PlotUnit::kNumber); });
  const auto bytes = bars(
      "Bytes read and written by scope", [](const Work& w) { return w.bytes; },
      [](double v) { return value_text(v, PlotUnit::kBytes); });
  std::vector<std::string> plots = {flops, bytes};
  if (phases.all.seconds > 0)
    plots.push_back(bars(
        "Predicted time by scope", [](const Work& w) { return w.seconds; },
        [](double v) { return value_text(v, PlotUnit::kSeconds); }));
  HtmlTable by_scope = work_table(scopes, "scope");
  by_scope.tall = true;
  return html_grid(plots) + html_table(work_table(phases, "phase")) + "<p></p>" + html_table(by_scope);
}

namespace {

WorkTable work_by_op(const Json& entries, const char* seconds_key) {
  WorkTable ops;
  for (const Json& e : entries.as_array()) ops.add(e.at("op").as_string(), e, seconds_key);
  std::stable_sort(ops.names.begin(), ops.names.end(),
                   [&](const auto& a, const auto& b) { return ops.of[a].seconds > ops.of[b].seconds; });
  return ops;
}

double rate(double work, double seconds) { return seconds > 0 ? work / seconds : 0; }
double intensity(const Work& w) { return w.bytes > 0 ? w.flops() / w.bytes : 0; }

// planned: null where the times of `ops` are the predicted ones.
HtmlTable op_table(const WorkTable& ops, const WorkTable* planned) {
  HtmlTable table;
  table.head = {"op",       planned ? "measured time" : "predicted time",
                "share",    "FLOP/s",
                "bytes/s",  "FLOPs a byte",
                "launches", "FLOPs",
                "bytes"};
  if (planned) table.head.insert(table.head.begin() + 2, "predicted");
  for (const std::string& name : ops.names) {
    const Work& w = ops.of.at(name);
    std::vector<std::string> cells = {name,
                                      seconds_text(w.seconds),
                                      share_text(w.seconds, ops.all.seconds),
                                      value_text(rate(w.flops(), w.seconds), PlotUnit::kNumber),
                                      value_text(rate(w.bytes, w.seconds), PlotUnit::kBytes),
                                      value_text(intensity(w), PlotUnit::kNumber),
                                      value_text(w.launches, PlotUnit::kNumber),
                                      value_text(w.flops(), PlotUnit::kNumber),
                                      bytes_text(w.bytes)};
    if (planned) {
      const auto found = planned->of.find(name);
      cells.insert(cells.begin() + 2, found == planned->of.end() ? "-" : seconds_text(found->second.seconds));
    }
    table.rows.push_back({cells});
  }
  return table;
}

}  // namespace

std::string roofline_html(const Json& ledger, const Json& profile) {
  const Json* found = ledger.at("plan").find("hardware");
  if (found == nullptr) return html_note("The run was planned without a hardware model.");
  const Hardware hardware = Hardware::from_json(*found);
  const bool measured = profile.is_object();
  const WorkTable planned = work_by_op(ledger.at("plan").at("scopes"), "predicted_seconds");
  const WorkTable ops = measured ? work_by_op(profile.at("entries"), "seconds") : planned;
  Roofline roof;
  roof.title = measured ? "Ops of a step, measured" : "Ops of a step, predicted";
  roof.peak_flops = hardware.fma_flops, roof.peak_bytes = hardware.bytes.points.back().rate;
  for (const std::string& name : ops.names) {
    const Work& w = ops.of.at(name);
    roof.points.push_back({name, intensity(w), rate(w.flops(), w.seconds), rate(w.seconds, ops.all.seconds)});
  }
  std::string times = "Times are predicted from the costs of the launches.";
  if (measured)
    times = fmt::format("Times are measured (profile.json): {} of a step in {} kernels.", seconds_text(ops.all.seconds),
                        ops.names.size());
  return "<div class=\"grid\">" + roofline_svg(roof) + "<div>" +
         html_table(op_table(ops, measured ? &planned : nullptr)) + "</div></div>" +
         html_note(times + " The roof is the machine's, measured with Tally's own kernels (" + hardware.name +
                   "): multiply-adds in registers, and a copy too large for the caches; what stays in a cache can lie "
                   "above the slope.");
}

}  // namespace tally
