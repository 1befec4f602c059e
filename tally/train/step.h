// The one training step: plan, dry-run and run all call train_step(), on meta or on the CPU, so that what is planned is
// what is done.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "tally/core/device.h"
#include "tally/core/replay.h"
#include "tally/models/model.h"
#include "tally/train/config.h"

namespace tally {

// Writes batch `index` of the run (micro-batch index % accumulate of step index / accumulate). Not called on meta.
using FillBatch = std::function<void(int64_t index, int32_t* ids, int32_t* targets)>;

struct StepResult {
  double loss = 0;       // mean over the step's tokens, nats
  double grad_norm = 0;  // before clipping
  double rate = 0;       // learning rate used
};

// Bytes of the blocks of ids, targets, losses and numbers, which are there for all micro-batches of a step.
int64_t batch_bytes(const RunConfig& config);

// What a step works on, built in one way for every use.
struct TrainState {
  TrainState(const RunConfig& config, Device device);

  std::unique_ptr<Model> model;
  std::vector<Param> params;
  std::unique_ptr<Optimizer> optimizer;
  Tensor ids, targets;  // (accumulate, batch, context) i32, Category::kData; every batch is written here
  // Micro-batch i of them, (batch, context).
  Tensor batch_of(const Tensor& all, int64_t i) const;
  // Calls write(ids, targets) on host memory for one micro-batch, the first, and brings it to the device.
  void load(const std::function<void(int32_t* ids, int32_t* targets)>& write);
  int64_t step = 0;                                     // steps done
  bool repeated() const { return replay_.captured(); }  // the card repeats steps by itself

 private:
  friend StepResult train_step(const RunConfig& config, TrainState& state, const FillBatch& fill);
  // All micro-batches of the next step: on the CPU written in place; for a card in page-locked memory and copied
  // without waiting. prepare() writes those of step `of` while the card works; what goes wrong is load_step's to throw.
  void load_step(const FillBatch& fill);
  void number_step();
  void prepare(int64_t of, const FillBatch& fill);
  void write_step(int64_t of, const FillBatch& fill, int32_t* to_ids, int32_t* to_targets) const;
  int32_t* host(int64_t of) const { return static_cast<int32_t*>(host_[of % 2].data()); }

  int64_t parts_;
  Tensor losses_;   // (accumulate) of the step
  Tensor numbers_;  // (accumulate) i64: those of the run's micro-batches
  Tensor totals_;   // (3) f64: as StepTotalsArgs::totals
  Replay replay_;
  PinnedBytes host_[2];    // ids, then targets, of all micro-batches of an even and an odd step; for a card
  PinnedBytes report_;     // totals_, read at the end of a step; then numbers_, written at its beginning
  int64_t prepared_ = -1;  // the step whose batches are in host_ already
  std::exception_ptr unprepared_;
};

// Step state.step: for each micro-batch forward and backward (the loss scaled by 1 / accumulate), then global norm,
// clipping, optimizer, and the gradients are given back. Phases of the ledger: forward, backward, optimizer. The host
// waits once, at the end, for loss and norm; a card repeats the launches by itself from the third step on (core/
// replay.h).
// Throws RunError "step 812: the loss is not finite; first bad tensor: blocks.3.attn.q.weight" (steps count from 1);
// parameters and moments are then as before the step.
StepResult train_step(const RunConfig& config, TrainState& state, const FillBatch& fill);

// Mean loss of the first `rows` sequences of state.ids, without gradients, phase "evaluate".
double evaluate_batch(TrainState& state, int64_t rows);

// The first parameter, else gradient, with a value that is not finite, in visit order: "norm.weight" or "the gradient
// of norm.weight"; "" when all are finite.
std::string first_bad_tensor(const std::vector<Param>& params);

}  // namespace tally
