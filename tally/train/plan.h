// What a run will take, found by running its own code on meta: peak memory by category with its moment, FLOPs and bytes
// of a step by phase, and, with a hardware model, the time of a step.
#pragma once

#include "tally/core/hardware.h"
#include "tally/core/ledger.h"
#include "tally/core/memory.h"
#include "tally/train/config.h"

namespace tally {

struct Peak {
  CategoryBytes by{};
  std::string moment;  // "backward blocks.1/mlp"; only the ledger knows it
  int64_t bytes() const { return total(by); }
};

// The phases of a training step.
constexpr const char* kStepPhases[] = {"forward", "backward", "optimizer"};

struct StepCost {
  Cost forward, backward, optimizer;
  Cost sum() const;
  static StepCost of(const Ledger& ledger);  // what the three phases have cost so far
};

struct Plan {
  int64_t parameters = 0;
  Peak step;  // of a training step
  Peak eval;  // of a validation batch
  StepCost cost;
  Cost eval_cost;           // of a full validation batch
  double step_seconds = 0;  // predicted; 0 without hardware
  double phase_seconds[3] = {};
  Ref<Ledger> ledger;  // of one step: entries by scope, peak
  Json timeline;       // of one step: live bytes by category, launch by launch (core/timeline.h)
  const Hardware* hardware = nullptr;
};

// hardware may be null and must outlive the plan. eval_rows: sequences of the largest validation batch (a small set has
// fewer than train.batch); 0 is train.batch. Throws Error as RunConfig::check() and make_model() do.
Plan plan_run(const RunConfig& config, const Hardware* hardware, int64_t eval_rows = 0);

// A line a category that has bytes, and the total.
std::string peak_text(const Peak& peak);

// The plan as `--dry-run` prints it.
std::string plan_text(const RunConfig& config, const Plan& plan);

}  // namespace tally
