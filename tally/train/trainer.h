// A training run: data, state, run folder, metrics. The loop itself is loop.cpp.
#pragma once

#include "tally/data/build.h"
#include "tally/data/loader.h"
#include "tally/train/log.h"
#include "tally/train/profile.h"
#include "tally/train/report.h"
#include "tally/train/run_folder.h"
#include "tally/train/signals.h"

namespace tally {

// A data folder, opened and checked against its tokenizer.
struct RunData {
  RunData(const std::string& folder, int64_t vocab_size);
  DataInfo info;
  Tokenizer tokenizer;
  TokenSource train, val;  // val is empty when the folder has none
};

struct TrainerOptions {
  fs::path out;
  bool resume = false;
  fs::path resume_from;                // a checkpoint; empty: the latest
  bool quiet = false;                  // no progress and no samples on the screen
  const Hardware* hardware = nullptr;  // for predicted times and % of peak; must outlive the trainer
  int64_t profile_steps = 0;           // steps after the first whose launches are timed; needs hardware
};

struct EvalResult {
  double loss = 0;           // nats a token, mean over the windows
  double bits_per_byte = 0;  // of the validation text
};

class Trainer {
 public:
  // Opens everything and checks it; a new run folder is made, a resumed one loaded. Throws Error before anything is
  // changed where the data, the folder or the checkpoint do not fit.
  Trainer(const RunConfig& config, const TrainerOptions& options);

  // Up to train.steps, or to Ctrl-C or SIGTERM; the last state is saved either way. True when the run is complete.
  bool run();

  const Plan& plan() const { return plan_; }
  const Measured& measured() const { return measured_; }
  const TrainState& state() const { return state_; }
  const RunFolder& folder() const { return folder_; }
  const BestEval& best() const { return best_; }
  const Profiler* profiler() const { return profiler_.get(); }  // null unless asked for
  // The whole validation set in windows that do not overlap, or eval_batches of it spread evenly.
  EvalResult evaluate();

 private:
  StepResult step();
  bool evaluate_and_log();  // true: the best so far
  void sample();
  void save();
  void log(const StepResult& result);
  bool loop();  // as run(), without what is written at the end
  void finish();
  void write_ledger();
  bool write_report();            // false, and one line of progress, when it fails: that is not the end of the run
  void refresh_report();          // ledger.json and report.html as the run stands, in no more than 2 % of its time
  bool due(int64_t every) const;  // at this step or at the end
  bool sample_due() const;
  void open_folder();
  void write_profile() const;
  // Ends a stretch of measured memory: its peak counts for `highest`.
  void close_stretch(CategoryBytes* highest);

  RunConfig config_;
  TrainerOptions options_;
  RunData data_;
  LedgerGuard ledger_;
  CategoryBytes baseline_;  // blocks of others
  RandomWindows windows_;
  std::optional<ValidationWindows> val_windows_;
  Plan plan_;
  RunFolder folder_;
  TrainState state_;
  BestEval best_;
  Measured measured_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Profiler> profiler_;
  Progress progress_;
  int64_t saved_step_ = -1;
  double smooth_seconds_ = 0;
  double seconds_since_log_ = 0;
  int64_t steps_since_log_ = 0;
  Json environment_;
  double next_report_ = 0;  // seconds_now() from which on refresh_report() writes
};

}  // namespace tally
