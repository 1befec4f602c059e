// The loop of a training run.
#include "tally/train/trainer.h"

namespace tally {

void Trainer::loop() {
  while (state_.step < config_.train.steps && !StopSignals::asked() && time_for_a_step()) {
    step();
    const bool best = due(config_.train.eval_every) && evaluate_and_log();
    if (sample_due(state_.step)) sample();
    if (best || due(config_.train.checkpoint_every) || saver_.due()) {
      save();
      refresh_report();
    }
  }
}

}  // namespace tally
