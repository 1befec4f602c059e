#include "tally/train/profile.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "tally/base/error.h"
#include "tally/train/plan.h"
#include "tally/train/report.h"

namespace tally {

namespace {

Cost divided(const Cost& c, int64_t n) {
  return {c.matmul_flops / n, c.other_flops / n, c.bytes_read / n, c.bytes_written / n, c.wire_bytes / n};
}

Json entry_json(const ProfileEntry& e) {
  return Json::object()
      .set("op", e.op)
      .set("phase", e.phase)
      .set("seconds", e.seconds)
      .set("launches", e.launches)
      .set("matmul_flops", e.cost.matmul_flops)
      .set("other_flops", e.cost.other_flops)
      .set("bytes_read", e.cost.bytes_read)
      .set("bytes_written", e.cost.bytes_written)
      .set("roof_seconds", e.roof_seconds)
      .set("predicted_seconds", e.predicted_seconds);
}

Json trace_event(const std::string& name, const std::string& category, double start, double seconds, Json args) {
  return Json::object()
      .set("name", name)
      .set("cat", category)
      .set("ph", "X")
      .set("ts", start * 1e6)
      .set("dur", seconds * 1e6)
      .set("pid", 1)
      .set("tid", 1)
      .set("args", std::move(args));
}

}  // namespace

double Profile::kernel_seconds() const {
  double sum = 0;
  for (const ProfileEntry& e : entries) sum += e.seconds;
  return sum;
}

double Profile::kernel_seconds(const std::string& phase) const {
  double sum = 0;
  for (const ProfileEntry& e : entries)
    if (e.phase == phase) sum += e.seconds;
  return sum;
}

double Profile::predicted_seconds() const {
  double sum = 0;
  for (const ProfileEntry& e : entries) sum += e.predicted_seconds;
  return sum;
}

double total_flops(const Cost& cost) { return static_cast<double>(cost.matmul_flops + cost.other_flops); }
double total_bytes(const Cost& cost) { return static_cast<double>(cost.bytes_read + cost.bytes_written); }

double roof_seconds(const Hardware& hardware, const Cost& cost) {
  const double bytes = total_bytes(cost), compute = total_flops(cost) / hardware.fma_flops;
  return bytes > 0 ? std::max(compute, bytes / hardware.bytes.at(bytes)) : compute;
}

Profiler::Profiler(Device device) : device_(device), origin_(device) {}

Profiler::~Profiler() { turn_off(); }

void Profiler::turn_off() {
  if (on_) set_launch_observer(previous_);
  on_ = false;
  close_ranges(0);
}

void Profiler::open_range(const std::string& name) {
  if (device_.kind != DeviceKind::kCuda) return;
  push_range(name.c_str());
  ++ranges_;
}

void Profiler::close_ranges(int depth) {
  for (; ranges_ > depth; --ranges_) pop_range();
}

void Profiler::name_phases() {
  Ledger& ledger = Ledger::current();
  phases_[0] = "";
  for (const char* name : {kStepPhases[0], kStepPhases[1], kStepPhases[2], "evaluate"})
    phases_[ledger.phase_id(name)] = name;
}

void Profiler::begin_step(int64_t step) {
  TALLY_ASSERT(!on_);
  events_.reserve(events_.size() + 4096);
  previous_ = set_launch_observer(this);
  on_ = true;
  steps_.push_back({step, 0, 0, events_.size()});
  name_phases();
  open_range(fmt::format("step {}", step));
  range_phase_ = -1;
  launch_start_.clear(), spans_.clear();
  launch_start_.emplace_back(device_);  // the first is the step's own
}

void Profiler::end_step() {
  const Moment end(device_);
  turn_off();
  synchronize(device_);
  Step& step = steps_.back();
  step.start = launch_start_.front().seconds_since(origin_);
  step.seconds = end.seconds_since(launch_start_.front());
  for (size_t i = 0; i < spans_.size(); ++i) {
    Event& e = events_[step.events + i];
    e.start = spans_[i].begin.seconds_since(origin_);
    e.seconds = spans_[i].end.seconds_since(spans_[i].begin);
  }
  spans_.clear();
  const Ledger& ledger = Ledger::current();
  for (const Event& e : events_)
    if (!scopes_.contains(e.scope)) scopes_[e.scope] = ledger.scope_path(e.scope);
}

void Profiler::before(const char* name, const void*) {
  const int phase = Ledger::current().phase();
  if (phase != range_phase_) {
    close_ranges(1);
    const auto found = phases_.find(phase);
    open_range(found == phases_.end() ? "" : found->second);
    range_phase_ = phase;
  }
  open_range(name);
  launch_start_.emplace_back(device_);
}

void Profiler::after(const char* name, const void*, const Cost& cost) {
  Moment end(device_);
  close_ranges(2);
  const Ledger& ledger = Ledger::current();
  events_.push_back({name, ledger.phase(), ledger.scope(), 0, 0, cost});
  spans_.push_back({std::move(launch_start_.back()), std::move(end)});
  launch_start_.pop_back();
}

Profile Profiler::profile(const Hardware& hardware, Average average) const {
  Profile p;
  p.steps = steps();
  if (p.steps == 0) return p;
  const bool predicts = hardware.other_flops > 0;
  std::vector<std::vector<double>> seconds;  // of each entry, by step
  std::vector<double> whole, idle;           // of each step
  for (size_t s = 0; s < steps_.size(); ++s) {
    const size_t end = s + 1 < steps_.size() ? steps_[s + 1].events : events_.size();
    whole.push_back(steps_[s].seconds);
    idle.push_back(0);
    for (size_t i = steps_[s].events + 1; i < end; ++i)
      idle[s] += std::max(0.0, events_[i].start - (events_[i - 1].start + events_[i - 1].seconds));
    for (size_t i = steps_[s].events; i < end; ++i) {
      const Event& e = events_[i];
      const std::string& phase = phases_.at(e.phase);
      const auto same = [&](const ProfileEntry& x) { return x.op == e.op && x.phase == phase; };
      const auto found = std::find_if(p.entries.begin(), p.entries.end(), same);
      const auto at = static_cast<size_t>(found - p.entries.begin());
      if (found == p.entries.end()) {
        p.entries.push_back({e.op, phase, 0, 0, {}, 0, 0});
        seconds.emplace_back(steps_.size(), 0.0);
      }
      ProfileEntry& entry = p.entries[at];
      seconds[at][s] += e.seconds;
      ++entry.launches;
      entry.cost += e.cost;
      entry.roof_seconds += roof_seconds(hardware, e.cost);
      if (predicts) entry.predicted_seconds += hardware.predict(e.cost);
    }
  }
  const auto mean = [&](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(p.steps);
  };
  const auto averaged = [&](const std::vector<double>& v) {
    return average == Average::kMean ? mean(v) : median_of(v);
  };
  p.step_seconds = averaged(whole), p.idle_seconds = averaged(idle);
  for (size_t i = 0; i < p.entries.size(); ++i) {
    ProfileEntry& e = p.entries[i];
    e.seconds = averaged(seconds[i]);
    e.roof_seconds /= static_cast<double>(p.steps), e.predicted_seconds /= static_cast<double>(p.steps);
    e.launches /= p.steps;
    e.cost = divided(e.cost, p.steps);
  }
  std::stable_sort(p.entries.begin(), p.entries.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return p;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Json profile_json(const Profile& p, const Hardware& hardware) {
  Json entries = Json::array();
  for (const ProfileEntry& e : p.entries) entries.push_back(entry_json(e));
  return Json::object()
      .set("steps", p.steps)
      .set("step_seconds", p.step_seconds)
      .set("kernel_seconds", p.kernel_seconds())
      .set("idle_seconds", p.idle_seconds)
      .set("predicted_seconds", p.predicted_seconds())
      .set("hardware", hardware.to_json())
      .set("entries", entries);
}

Json Profiler::trace() const {
  Json all = Json::array();
  for (const Step& s : steps_)
    all.push_back(trace_event(fmt::format("step {}", s.number), "step", s.start, s.seconds, Json::object()));
  for (const Event& e : events_)
    all.push_back(trace_event(e.op, phases_.at(e.phase), e.start, e.seconds,
                              Json::object()
                                  .set("scope", scopes_.at(e.scope))
                                  .set("matmul_flops", e.cost.matmul_flops)
                                  .set("other_flops", e.cost.other_flops)
                                  .set("bytes_read", e.cost.bytes_read)
                                  .set("bytes_written", e.cost.bytes_written)));
  return Json::object().set("traceEvents", all).set("displayTimeUnit", "ms");
}

std::string profile_text(const Profile& p) {
  if (p.steps == 0) return "profile: the run had no step after its first\n";
  const double step = p.step_seconds, inside = p.kernel_seconds();
  const auto share = [&](double seconds) { return fmt::format("{:.1f} %", step > 0 ? 100 * seconds / step : 0.0); };
  std::string text =
      fmt::format("profile of {} step{}, {} each\n", p.steps, p.steps == 1 ? "" : "s", seconds_text(step));
  const auto row = [&](const auto& op, const auto& phase, const auto& time, const auto& predicted, const auto& part,
                       const auto& launches, const auto& flops, const auto& bytes, const auto& roof) {
    text += fmt::format("  {:<24}{:<11}{:>10}{:>11}{:>9}{:>10}{:>10}{:>9}{:>9}\n", op, phase, time, predicted, part,
                        launches, flops, bytes, roof);
  };
  const auto guess = [](double seconds) { return seconds > 0 ? seconds_text(seconds) : "-"; };
  row("op", "phase", "time", "predicted", "share", "launches", "GFLOP/s", "GB/s", "of roof");
  for (const ProfileEntry& e : p.entries) {
    const double seconds = std::max(e.seconds, 1e-12);
    row(e.op, e.phase, seconds_text(e.seconds), guess(e.predicted_seconds), share(e.seconds), with_commas(e.launches),
        fmt::format("{:.1f}", total_flops(e.cost) / seconds / 1e9),
        fmt::format("{:.1f}", total_bytes(e.cost) / seconds / 1e9),
        fmt::format("{:.0f} %", 100 * e.roof_seconds / seconds));
  }
  row("in kernels", "", seconds_text(inside), guess(p.predicted_seconds()), share(inside), "", "", "", "");
  row("outside kernels", "", seconds_text(std::max(0.0, step - inside)), "", share(step - inside), "", "", "", "");
  row("  between two launches", "", seconds_text(p.idle_seconds), "", share(p.idle_seconds), "", "", "", "");
  return text;
}

int64_t parse_profile_steps(const std::string& text) {
  const std::string number = text.starts_with("steps=") ? text.substr(6) : text;
  int64_t steps = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), steps);
  if (error != std::errc() || end != number.data() + number.size() || steps < 1 || steps > 1000000)
    fail("--profile is '{}'; write --profile steps=N with N from 1 to 1000000", text);
  return steps;
}

}  // namespace tally
