// Everything that decides a training run, as data: the groups model, data, optim, schedule and train. config.json in a
// run directory is this struct and tally_version.
#pragma once

#include "tally/base/json.h"
#include "tally/models/config.h"
#include "tally/optim/optimizer.h"
#include "tally/optim/schedule.h"

namespace tally {

constexpr const char* kTallyVersion = "0.1.0";

struct DataConfig {
  std::string dir;               // as `tally data build` makes it
  std::string order = "random";  // of the training windows: "random", "shuffle" or "sequential"
  void fields(Fields& f);
};

constexpr int64_t kMostAccumulate = 1 << 20;

struct TrainConfig {
  int64_t steps = 1000;
  int64_t batch = 12;          // sequences of a micro-batch
  int64_t context = 0;         // tokens of a sequence; 0: the model's context
  int64_t accumulate = 1;      // micro-batches of a step
  std::string device = "cpu";  // or "cuda", "cuda:N"
  std::string matmul = "f32";  // what CUDA's products of f32 are computed in: "f32" or "tf32" (ops/matmul.h)
  int64_t seed = 1;            // of the initial values, the batches and the dropout
  int64_t log_every = 10;
  int64_t eval_every = 200;        // 0: never
  int64_t eval_batches = 0;        // 0: the whole validation set
  int64_t checkpoint_every = 200;  // 0: only at the end and for a new best validation loss
  double checkpoint_minutes = 0;   // of the steady clock, beside checkpoint_every; 0: never
  int64_t keep_last = 2;
  double save_wait = 60;   // seconds in which a last save that fails is tried again
  std::string time_limit;  // "2h30m"; "" is none
  bool tensorboard = false;
  int64_t sample_every = 0;  // 0: only at the end
  int64_t sample_tokens = 200;
  std::string sample_prompt;
  double sample_temperature = 0.8;
  void fields(Fields& f);
};

// "90s", "5m", "2h30m", "1d12h" in seconds. Throws Error saying how it is written.
double duration_seconds(const std::string& text);

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  OptimConfig optim;
  ScheduleConfig schedule;
  TrainConfig train;

  void fields(Fields& f);
  // What spans several keys; throws Error naming them.
  void check() const;
  int64_t context() const { return train.context > 0 ? train.context : model.context; }
  int64_t tokens_per_step() const { return train.batch * train.accumulate * context(); }
  double time_limit_seconds() const { return train.time_limit.empty() ? 0 : duration_seconds(train.time_limit); }
  Device device() const;       // that the run computes on
  Device meta_device() const;  // that its plan is made on
  double learning_rate(int64_t step) const { return optim.lr * schedule_factor(schedule, step, train.steps); }

  Json to_json() const;
  // Unknown keys, wrong kinds and out-of-range values are Errors that name `where`.
  static RunConfig from_json(const Json& json, const std::string& where);
};

// The keys on which every bit of the parameters depends, flat ("model.d_model": 64). Paths, the number of steps and
// what only watches the run are left out.
Json identity_of(const RunConfig& config);
// "model.d_model is 64 in the checkpoint and 128 here" for the first key that differs, or "".
std::string first_difference(const Json& stored, const Json& here);
std::string hash_of(const Json& json);  // 16 hexadecimal digits: XXH3-64 of the canonical text

}  // namespace tally
