#include "tally/train/plan.h"

#include "tally/base/error.h"
#include "tally/core/timeline.h"
#include "tally/train/report.h"
#include "tally/train/step.h"

namespace tally {

Cost StepCost::sum() const {
  Cost all = forward;
  all += backward;
  all += optimizer;
  return all;
}

StepCost StepCost::of(const Ledger& ledger) {
  return {ledger.cost(kStepPhases[0]), ledger.cost(kStepPhases[1]), ledger.cost(kStepPhases[2])};
}

Plan plan_run(const RunConfig& config, const Hardware* hardware, int64_t eval_rows) {
  Plan plan;
  plan.hardware = hardware;
  const LedgerGuard guard;
  Ledger& ledger = guard.ledger();
  ledger.set_hardware(hardware);
  TrainState state(config, config.meta_device());
  plan.parameters = parameter_count(state.params);
  ledger.clear_costs();
  ledger.reset_peak();
  evaluate_batch(state, eval_rows > 0 ? eval_rows : config.train.batch);
  plan.eval = {ledger.at_peak(), ledger.peak_moment()};
  plan.eval_cost = ledger.cost("evaluate");
  ledger.clear_costs();
  ledger.reset_peak();
  Timeline timeline(ledger.live());
  ledger.set_timeline(&timeline);
  train_step(config, state, {});
  ledger.set_timeline(nullptr);
  timeline.finish();
  plan.timeline = timeline.to_json();
  plan.step = {ledger.at_peak(), ledger.peak_moment()};
  plan.cost = StepCost::of(ledger);
  plan.step_seconds = ledger.predicted_seconds();
  for (const Ledger::Entry& e : ledger.entries())
    for (int i = 0; i < 3; ++i)
      if (e.phase == kStepPhases[i]) plan.phase_seconds[i] += e.predicted_seconds;
  plan.ledger = Ref<Ledger>(&ledger);
  return plan;
}

std::string peak_text(const Peak& peak) {
  std::string text;
  const auto line = [&](const char* name, int64_t bytes) {
    text += fmt::format("  {:<22}{:>16}  {:>12}\n", name, with_commas(bytes), bytes_text(static_cast<double>(bytes)));
  };
  for (int c = 0; c < kCategories; ++c)
    if (peak.by[c] != 0) line(name_of(static_cast<Category>(c)), peak.by[c]);
  line("total", peak.bytes());
  return text;
}

std::string plan_text(const RunConfig& config, const Plan& plan) {
  const auto line = [](const std::string& name, const std::string& value) {
    return fmt::format("  {:<22}{}\n", name, value);
  };
  const Cost step = plan.cost.sum();
  std::string text = "plan\n";
  text += line("parameters", with_commas(plan.parameters));
  text += line("tokens a step", fmt::format("{} ({} x {} x {})", with_commas(config.tokens_per_step()),
                                            config.train.accumulate, config.train.batch, config.context()));
  text += line("steps", with_commas(config.train.steps));
  text += "memory at the peak of a step (" + plan.step.moment + ")\n" + peak_text(plan.step);
  text += line("of a validation batch", fmt::format("{:>16}  {:>12}", with_commas(plan.eval.bytes()),
                                                    bytes_text(static_cast<double>(plan.eval.bytes()))));
  text += fmt::format("work of a step\n  {:<22}{:>22} {:>19} {:>19}{:>12}\n", "", "matmul FLOPs", "other FLOPs",
                      "bytes", "time");
  const Cost phases[] = {plan.cost.forward, plan.cost.backward, plan.cost.optimizer};
  const auto row = [&](const char* name, const Cost& c, double seconds) {
    return fmt::format("  {:<22}{:>22} {:>19} {:>19}{:>12}\n", name, with_commas(c.matmul_flops),
                       with_commas(c.other_flops), with_commas(c.bytes_read + c.bytes_written),
                       plan.hardware ? seconds_text(seconds) : "-");
  };
  for (int i = 0; i < 3; ++i) text += row(kStepPhases[i], phases[i], plan.phase_seconds[i]);
  text += row("step", step, plan.step_seconds);
  if (plan.hardware)
    text += fmt::format("predicted: {} a step, {} in all, on {}\n", seconds_text(plan.step_seconds),
                        seconds_text(plan.step_seconds * static_cast<double>(config.train.steps)), plan.hardware->name);
  return text;
}

}  // namespace tally
