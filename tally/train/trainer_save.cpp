// What a run leaves on the disk: checkpoints, ledger.json, report.html, profile.json and trace.json.
#include <malloc.h>

#include <algorithm>
#include <thread>

#include "tally/base/error.h"
#include "tally/train/environment.h"
#include "tally/train/fit.h"
#include "tally/train/run_report.h"
#include "tally/train/trainer.h"

namespace tally {

void Trainer::save() {
  const SteadyTime start = steady_now();
  CheckpointState s;
  s.step = state_.step;
  s.optimizer_steps = state_.optimizer->steps();
  s.data_position = state_.step * config_.train.accumulate;
  s.seed = config_.train.seed;
  s.train_tokens = data_.train.size();
  s.tokenizer_hash = data_.tokenizer.hash();
  s.best = candidate_.step == state_.step ? candidate_ : best_;
  s.identity = identity_of(config_);
  flush_logs();
  const int64_t failed = saver_.failures();
  if (saver_.save(s, state_.params, *state_.optimizer)) {
    saved_step_ = state_.step, best_ = s.best;
    pace_.took(Part::kSave, seconds_since(start));
    if (failed > 0) say(fmt::format("step {}: saved; {} attempts before had failed", state_.step, failed));
  } else if (failed == 0 || due(config_.train.checkpoint_every)) {
    say(fmt::format("step {}: not saved ({}); training goes on and tries again, the newest checkpoint is {}",
                    state_.step, saver_.problem(), folder_.newest_name()));
  }
}

void Trainer::save_last() {
  const SteadyTime start = steady_now();
  const bool asked = StopSignals::asked();
  for (save(); saved_step_ != state_.step;) {
    const double left = config_.train.save_wait - seconds_since(start);
    if (left <= 0 || (!asked && StopSignals::asked()))
      fail_run(
          "step {} could not be saved within {}: {}; the newest checkpoint is {}: make room and go on from it by "
          "--resume",
          state_.step, seconds_text(seconds_since(start)), saver_.problem(), folder_.newest_name());
    if (saver_.due())
      save();
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.1, left)));
  }
}

void Trainer::end_by(const DataError& error) {
  clear_grads(state_.params);
  std::string saved = fmt::format("step {} is saved", state_.step);
  try {
    if (saved_step_ != state_.step) save_last();
  } catch (const RunError& e) {
    saved = e.what();
  }
  fail_run("{}; {}: put the data back as it was and go on by --resume", error.what(), saved);
}

template <class F>
bool Trainer::written(const char* what, const F& write) {
  try {
    write();
    return true;
  } catch (const std::exception& e) {
    say(fmt::format("{} was not written: {}", what, e.what()));
    return false;
  }
}

void Trainer::write_profile() {
  written("the profile", [&] {
    const Profile profile = profiler_->profile(*options_.hardware);
    write_file_atomic(folder_.path() / "profile.json", profile_json(profile, *options_.hardware).dump(2) + "\n");
    write_file_atomic(folder_.path() / "trace.json", profiler_->trace().dump() + "\n");
  });
}

bool Trainer::write_ledger() {
  if (measured_.steps == 0) return true;
  close_stretch(&measured_.step);
  measured_.cost = StepCost::of(ledger_.ledger());
  return written("the ledger", [&] {
    write_file_atomic(folder_.ledger(), ledger_json(plan_, measured_, environment_).dump(2) + "\n");
  });
}

bool Trainer::write_report() {
  return written("the run report", [&] {
    write_file_atomic(folder_.report(), run_report_html(read_run_record(folder_.path()), utc_now()));
  });
}

void Trainer::refresh_report() {
  const SteadyTime begin = steady_now();
  if (begin < next_report_) return;
  const bool both = write_ledger() && write_report();
  ::malloc_trim(0);  // the report reads all of the run's lines; what that took goes back, or a long run would grow
  const SteadyTime end = steady_now();
  next_report_ = both ? end + 49 * (end - begin) : SteadyTime::max();
}

void Trainer::finish() {
  flush_logs();
  const bool cut = profiler_ && profiler_->steps() > 0 && profiler_->steps() < options_.profile_steps;
  if (cut) write_profile();
  write_ledger();
  write_report();
}

bool Trainer::run() {
  const StopSignals signals;
  try {
    try {
      explain_memory(config_, plan_, eval_rows(), [&] { loop(); });
    } catch (const DataError& e) {
      end_by(e);
    }
    if (saved_step_ != state_.step) save_last();
  } catch (const RunError&) {  // a loss that is not finite, say: the report shows how it came about
    if (state_.step > 0) write_report();
    throw;
  }
  finish();
  return state_.step >= config_.train.steps;
}

}  // namespace tally
