// A training run: data, state, run folder, metrics. The loop itself is loop.cpp; trainer_save.cpp is what a run leaves
// on the disk, trainer_log.cpp what it logs and says.
#pragma once

#include <optional>
#include <variant>

#include "tally/data/build.h"
#include "tally/data/loader.h"
#include "tally/train/log.h"
#include "tally/train/profile.h"
#include "tally/train/report.h"
#include "tally/train/saver.h"
#include "tally/train/signals.h"
#include "tally/train/tensorboard.h"

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
  SteadyTime start = steady_now();     // of the process: what train.time_limit counts from
};

// The windows of the training set as data.order says.
using TrainWindows = std::variant<RandomWindows, EpochWindows>;

struct EvalResult {
  double loss = 0;           // nats a token, mean over the windows
  double bits_per_byte = 0;  // of the validation text
};

class Trainer {
 public:
  // Opens everything and checks it; a new run folder is made, a resumed one loaded. Throws Error before anything is
  // changed where the data, the folder or the checkpoint do not fit.
  Trainer(const RunConfig& config, const TrainerOptions& options);

  // Up to train.steps, or to Ctrl-C, SIGTERM or train.time_limit; the last state is saved in each case. True when the
  // run is complete. A checkpoint that cannot be written does not end the run (saver.h) unless it is the last one;
  // data that cannot be read any more does, with the last good step saved. Both are then a RunError.
  bool run();

  const Plan& plan() const { return plan_; }
  const Measured& measured() const { return measured_; }
  const TrainState& state() const { return state_; }
  const RunFolder& folder() const { return folder_; }
  const Profiler* profiler() const { return profiler_.get(); }  // null unless asked for
  const BestEval& best() const { return best_; }                // of those that are saved
  bool out_of_time() const { return out_of_time_; }
  // The whole validation set in windows that do not overlap, or eval_batches of it spread evenly.
  EvalResult evaluate();

 private:
  // Tokens are read inside a step or an evaluation; what goes wrong there has changed neither parameters nor moments.
  class DataError : public RunError {
   public:
    using RunError::RunError;
  };
  template <class F>
  static void read_data(const F& read) {
    try {
      read();
    } catch (const Error& e) {
      throw DataError(e.what());
    }
  }

  void loop();
  void step();
  bool evaluate_and_log();  // true: the best so far
  void sample();
  bool time_for_a_step();
  bool due(int64_t every, int64_t step) const;  // at this step or at the end
  bool due(int64_t every) const { return due(every, state_.step); }
  bool sample_due(int64_t step) const;
  void open_folder();
  // Ends a stretch of measured memory: its peak counts for `highest`.
  void close_stretch(CategoryBytes* highest);
  int64_t eval_batches() const;
  int64_t eval_rows() const { return val_windows_ ? val_windows_->rows(0) : 0; }  // of the largest batch

  // trainer_save.cpp. What cannot be written is said in a line of progress and does not end the run, but for the last
  // checkpoint.
  void save();
  void save_last();  // waits for room as long as train.save_wait says; throws RunError when it stays in vain
  [[noreturn]] void end_by(const DataError& error);
  void finish();
  template <class F>
  bool written(const char* what, const F& write);
  void write_profile();
  bool write_ledger();
  bool write_report();
  void refresh_report();  // ledger.json and report.html as the run stands, in no more than 2 % of its time

  // trainer_log.cpp
  using Numbers = std::vector<std::pair<std::string, double>>;
  void log(const StepResult& result, double seconds);
  // A line of metrics.jsonl, and the numbers for TensorBoard as "train/loss".
  void record(const std::string& group, const Numbers& numbers);
  void say(const std::string& line) { progress_.message(line); }
  void say_news();                    // of the log files
  void flush_logs();                  // to the disk, before a checkpoint that counts on their lines
  double epochs(int64_t step) const;  // of the training set that `step` steps have read
  void say_epoch();

  RunConfig config_;
  TrainerOptions options_;
  RunData data_;
  LedgerGuard ledger_;
  Device device_;
  CategoryBytes baseline_;  // blocks of others
  TrainWindows windows_;
  std::optional<ValidationWindows> val_windows_;
  Plan plan_;
  RunFolder folder_;
  TrainState state_;
  Saver saver_;
  Pace pace_;
  BestEval best_, candidate_;  // the best that is saved, and one that is to be
  Measured measured_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Profiler> profiler_;
  std::unique_ptr<TensorBoardFile> tensorboard_;  // null without train.tensorboard
  Progress progress_;
  int64_t saved_step_ = -1;
  bool out_of_time_ = false;
  double smooth_seconds_ = 0;
  double seconds_since_log_ = 0;
  int64_t steps_since_log_ = 0;
  Json environment_;
  SteadyTime next_report_{};  // from which on refresh_report() writes
};

}  // namespace tally
