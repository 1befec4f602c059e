// The folder of a run:
//   config.json  tokenizer/  metrics.jsonl  tensorboard/  ledger.json  report.html  checkpoints/step_00000200/...
//   latest  best  profile.json  trace.json (the last two of a run with --profile)
// `latest` and `best` are text files with the name of a checkpoint, replaced by rename; `best` has the lowest
// validation loss. config.json is written last when a run begins: a folder without it holds no run.
#pragma once

#include "tally/train/checkpoint.h"

namespace tally {

class RunFolder {
 public:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  const fs::path& path() const { return path_; }
  fs::path checkpoints() const { return path_ / "checkpoints"; }
  fs::path metrics() const { return path_ / "metrics.jsonl"; }
  fs::path tensorboard() const { return path_ / "tensorboard"; }
  fs::path ledger() const { return path_ / "ledger.json"; }
  fs::path report() const { return path_ / "report.html"; }
  bool holds_run() const;

  // For a new run. Throws Error when the folder holds a run already or files that no run writes.
  void begin(const RunConfig& config, const Tokenizer& tokenizer);
  // For a run that is there: locks it and removes what a killed process left half written.
  void reopen();
  void write_config(const RunConfig& config) const;

  // save_checkpoint(), then `latest` and, when state.best is this step, `best`; then all but the last `keep`, the best
  // and those after this step (of a run that was resumed from an earlier one) are removed.
  void save(const CheckpointState& state, const std::vector<Param>& params, Optimizer& optimizer, int64_t keep) const;
  // After a resume: `latest` and `best` name what the run now goes on from.
  void point_at(const CheckpointState& state) const;
  // The checkpoint that `latest` names; empty when there is none yet.
  fs::path latest() const;
  std::string newest_name() const;  // the path of latest() for a message, or "none"

 private:
  void lock();
  fs::path path_;
  int lock_ = -1;
};

// config.json of a run folder. Throws Error naming the file.
RunConfig read_run_config(const fs::path& run);

// A trained model with all that is needed to use it.
struct LoadedModel {
  RunConfig config;
  Tokenizer tokenizer;
  std::unique_ptr<Model> model;
  fs::path checkpoint;
  int64_t step = 0;
};
struct FoundModel {
  RunConfig config;
  fs::path run, checkpoint;
};

// folder: a run folder (its latest checkpoint) or one of its checkpoints. Throws Error naming what is missing or torn.
FoundModel find_run_model(const fs::path& folder);
// Ready to generate, its weights packed; `dtype` (f32, bf16) other than the run's converts them, "" keeps it.
LoadedModel load_run_model(const fs::path& folder, const std::string& dtype = "", Device device = kCpu);

}  // namespace tally
