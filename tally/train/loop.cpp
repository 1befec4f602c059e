// The loop of a training run.
#include "tally/train/trainer.h"

namespace tally {

bool Trainer::loop() {
  const StopSignals signals;
  while (state_.step < config_.train.steps && !StopSignals::asked()) {
    log(step());
    const bool best = due(config_.train.eval_every) && evaluate_and_log();
    if (sample_due()) sample();
    if (best || due(config_.train.checkpoint_every)) {
      save();
      refresh_report();
    }
  }
  if (saved_step_ != state_.step) save();
  return state_.step >= config_.train.steps;
}

}  // namespace tally
