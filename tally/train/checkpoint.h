// One checkpoint: a folder checkpoints/step_00000200 with model.safetensors, optimizer.safetensors and state.json. It
// is written under a hidden name, flushed and renamed, so a folder with a checkpoint's name is complete unless a file
// of it was damaged afterwards; that is found by sizes before anything is used.
#pragma once

#include <memory>
#include <optional>

#include "tally/base/file.h"
#include "tally/text/tokenizer.h"
#include "tally/train/step.h"

namespace tally {

struct BestEval {
  int64_t step = -1;  // -1: none yet
  double loss = 0;
};

// state.json. The file is padded with spaces to kStateBytes, so that a cut is seen and measured.
constexpr size_t kStateBytes = 8192;
struct CheckpointState {
  int64_t step = 0;
  int64_t optimizer_steps = 0;
  int64_t data_position = 0;  // next micro-batch of the run
  int64_t seed = 0;
  int64_t train_tokens = 0;  // of the data the run draws from
  std::string tokenizer_hash;
  BestEval best;
  Json identity;                         // identity_of(config)
  std::string model_sum, optimizer_sum;  // hash_of_file() of the two tensor files

  Json to_json(int64_t model_bytes, int64_t optimizer_bytes) const;
};

std::string checkpoint_name(int64_t step);  // "step_00000200"

// What a checkpoint takes on the disk, with a twentieth and 256 KiB to spare for headers, blocks and the lines of logs.
int64_t checkpoint_bytes(const std::vector<Param>& params, Optimizer& optimizer);

// Writes the folder `checkpoints`/checkpoint_name(state.step) and returns it. One of that name that is there already is
// replaced. Throws RunError on a full disk; the temporary is then removed and what was there is as before.
fs::path save_checkpoint(const fs::path& checkpoints, const CheckpointState& state, const std::vector<Param>& params,
                         Optimizer& optimizer);

// Reads state.json and checks that every file is there in full. Throws Error naming the file and the missing bytes and
// the newest complete checkpoint beside it.
CheckpointState read_checkpoint(const fs::path& folder);

// Fills the state from the folder. Throws Error naming the first key or tensor that differs from this run's, or the
// tokenizer; the parameters may have been read by then, so the state is not to be used after an error.
CheckpointState load_checkpoint(const fs::path& folder, const RunConfig& config, const std::string& tokenizer_hash,
                                int64_t train_tokens, TrainState& state);

// 16 hexadecimal digits: XXH3-64 of the file's bytes.
std::string hash_of_file(const fs::path& file);
// Reads the model's parameters from a checkpoint whose state was read. Throws Error when its bytes are not those that
// were written.
void load_model(const fs::path& folder, const CheckpointState& state, const std::vector<Param>& params);

// A kill in between leaves no half checkpoint under its name.
void remove_checkpoint(const fs::path& folder);

// Steps of the folders with a checkpoint's name, ascending.
std::vector<int64_t> checkpoint_steps(const fs::path& checkpoints);
// The newest complete checkpoint of at most `step`.
std::optional<fs::path> newest_complete(const fs::path& checkpoints, int64_t step);

}  // namespace tally
