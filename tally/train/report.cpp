#include "tally/train/report.h"

#include <algorithm>
#include <cmath>

#include "tally/base/error.h"

namespace tally {

namespace {

struct Row {
  std::string name;
  int64_t plan, measured;
};

Cost divided(const Cost& c, int64_t n) {
  return {c.matmul_flops / n, c.other_flops / n, c.bytes_read / n, c.bytes_written / n, c.wire_bytes / n};
}

std::vector<Row> memory_rows(const CategoryBytes& plan, const CategoryBytes& measured) {
  std::vector<Row> rows;
  for (size_t c = 0; c < kCategories; ++c)
    if (plan[c] != 0 || measured[c] != 0) rows.push_back({name_of(static_cast<Category>(c)), plan[c], measured[c]});
  rows.push_back({"total", total(plan), total(measured)});
  return rows;
}

std::vector<Row> work_rows(const StepCost& plan, const StepCost& measured) {
  const Cost p = plan.sum(), m = measured.sum();
  return {{"matmul FLOPs", p.matmul_flops, m.matmul_flops},
          {"other FLOPs", p.other_flops, m.other_flops},
          {"bytes read", p.bytes_read, m.bytes_read},
          {"bytes written", p.bytes_written, m.bytes_written}};
}

Json rows_json(const std::vector<Row>& rows, int64_t Row::*column) {
  Json json = Json::object();
  for (const Row& r : rows) json.set(r.name, r.*column);
  return json;
}

Json side_json(const StepCost& cost, const CategoryBytes& step, const CategoryBytes& eval, double seconds) {
  Json json = Json::object();
  json.set("peak_bytes", rows_json(memory_rows(step, step), &Row::plan));
  json.set("eval_peak_bytes", rows_json(memory_rows(eval, eval), &Row::plan));
  json.set("step", rows_json(work_rows(cost, cost), &Row::plan));
  return json.set("step_seconds", seconds);
}

std::string table_row(const std::string& name, const std::string& a, const std::string& b, const std::string& c) {
  return fmt::format("  {:<26}{:>20}{:>20}{:>14}\n", name, a, b, c);
}

}  // namespace

StepCost Measured::per_step() const {
  const int64_t n = std::max<int64_t>(1, steps);
  return {divided(cost.forward, n), divided(cost.backward, n), divided(cost.optimizer, n)};
}

Json ledger_json(const Plan& plan, const Measured& measured, const Json& environment) {
  const StepCost done = measured.per_step();
  const bool evaluated = measured.evaluations > 0;
  Json difference = Json::object();
  CategoryBytes step{}, eval{};
  for (size_t c = 0; c < kCategories; ++c) {
    step[c] = measured.step[c] - plan.step.by[c];
    eval[c] = evaluated ? measured.eval[c] - plan.eval.by[c] : 0;
  }
  Json work = Json::object();
  for (const Row& r : work_rows(plan.cost, done)) work.set(r.name, r.measured - r.plan);
  difference.set("peak_bytes", rows_json(memory_rows(step, step), &Row::plan));
  difference.set("eval_peak_bytes", rows_json(memory_rows(eval, eval), &Row::plan));
  difference.set("step", work);
  if (plan.step_seconds > 0)
    difference.set("step_seconds_percent", 100 * (measured.step_seconds.median() / plan.step_seconds - 1));
  Json planned = side_json(plan.cost, plan.step.by, plan.eval.by, plan.step_seconds);
  planned.set("peak_moment", plan.step.moment).set("parameters", plan.parameters);
  if (plan.hardware) planned.set("hardware", plan.hardware->to_json());
  planned.set("scopes", plan.ledger->to_json().at("entries")).set("timeline", plan.timeline);
  Json seen = side_json(done, measured.step, measured.eval, measured.step_seconds.median());
  seen.set("steps", measured.steps).set("evaluations", measured.evaluations);
  return Json::object()
      .set("plan", planned)
      .set("measured", seen)
      .set("difference", difference)
      .set("environment", environment);
}

std::string ledger_table(const Plan& plan, const Measured& measured) {
  std::string text = table_row("ledger", "plan", "measured", "difference");
  const auto add = [&](const std::vector<Row>& rows) {
    for (const Row& r : rows)
      text += table_row("  " + r.name, with_commas(r.plan), with_commas(r.measured), with_commas(r.measured - r.plan));
  };
  text += "  bytes at the peak of a step (" + plan.step.moment + ")\n";
  add(memory_rows(plan.step.by, measured.step));
  if (measured.evaluations > 0) {
    text += "  bytes at the peak of a validation batch (" + plan.eval.moment + ")\n";
    add({memory_rows(plan.eval.by, measured.eval).back()});
  }
  text += "  work of a step (measured: of the launches made)\n";
  add(work_rows(plan.cost, measured.per_step()));
  const double seconds = measured.step_seconds.median();
  if (plan.step_seconds > 0 && seconds > 0)
    text += table_row("  time (predicted, median)", seconds_text(plan.step_seconds), seconds_text(seconds),
                      fmt::format("{:+.0f} %", 100 * (seconds / plan.step_seconds - 1)));
  return text;
}

std::string with_commas(int64_t n) {
  const std::string digits = std::to_string(n);
  const size_t sign = n < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, kUnits[unit]);
}

std::string seconds_text(double s) {
  if (s < 1e-6) return fmt::format("{:.0f} ns", s * 1e9);
  if (s < 0.9995e-3) return fmt::format("{:.0f} us", s * 1e6);
  if (s < 0.9995) return fmt::format("{:.3g} ms", s * 1e3);
  if (s < 100) return fmt::format("{:.3g} s", s);
  const auto whole = static_cast<int64_t>(std::min(s, 1e15));
  if (s < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (s < 86400.0 * 4) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} days", whole / 86400);
}

std::string count_text(double n) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  int unit = 0;
  for (; n >= 1000 && unit < 4; ++unit) n /= 1000;
  return fmt::format("{:.3g}{}", n, kUnits[unit]);
}

}  // namespace tally
