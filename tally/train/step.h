// The one training step: plan, dry-run and run all call train_step(), on meta or on the CPU, so that what is planned is
// what is done.
#pragma once

#include <functional>
#include <memory>

#include "tally/models/model.h"
#include "tally/train/config.h"

namespace tally {

// What a step works on, built in one way for every use.
struct TrainState {
  TrainState(const RunConfig& config, Device device);

  std::unique_ptr<Model> model;
  std::vector<Param> params;
  std::unique_ptr<Optimizer> optimizer;
  Tensor ids, targets;  // (batch, context) i32, Category::kData; every batch is written here
  // Calls write(ids, targets) on host memory of their shape and brings it to the device.
  void load(const std::function<void(int32_t* ids, int32_t* targets)>& write);
  int64_t step = 0;  // steps done

 private:
  std::vector<int32_t> host_;  // of a device other than the CPU: ids, then targets
};

// Writes batch `index` of the run (micro-batch index % accumulate of step index / accumulate). Not called on meta.
using FillBatch = std::function<void(int64_t index, int32_t* ids, int32_t* targets)>;

struct StepResult {
  double loss = 0;       // mean over the step's tokens, nats
  double grad_norm = 0;  // before clipping
  double rate = 0;       // learning rate used
};

// Step state.step: for each micro-batch forward and backward (the loss scaled by 1 / accumulate), then global norm,
// clipping, optimizer, and the gradients are given back. Phases of the ledger: forward, backward, optimizer.
// Throws RunError "step 812: the loss is not finite; first bad tensor: blocks.3.attn.q.weight" (steps count from 1);
// parameters and moments are then as before the step.
StepResult train_step(const RunConfig& config, TrainState& state, const FillBatch& fill);

// Mean loss of the first `rows` sequences of state.ids, without gradients, phase "evaluate".
double evaluate_batch(TrainState& state, int64_t rows);

// The first parameter, else gradient, with a value that is not finite, in visit order: "norm.weight" or "the gradient
// of norm.weight"; "" when all are finite.
std::string first_bad_tensor(const std::vector<Param>& params);

}  // namespace tally
