// What a run is told that does not fit the memory of its device, before it begins or when it ran out: the plan's peak
// by category, and changes with which it would fit, each planned on meta as the run is.
#pragma once

#include <string>
#include <vector>

#include "tally/train/plan.h"

namespace tally {

// Bytes that tensors may take: the machine's memory, or what is free on a card but for cuBLASLt's workspace. 0:
// unknown.
int64_t memory_for_tensors(Device device);

struct Change {
  std::string flags;  // "--train.batch 4 --train.accumulate 3"
  RunConfig config;   // the run with them
  int64_t bytes = 0;  // its planned peak
};

// Up to three changes of `config` whose planned peak is at most `available` bytes, all with the tokens a step that it
// has: a smaller batch; bf16; a shorter context; smaller presets. eval_rows as for plan_run().
std::vector<Change> changes_that_fit(const RunConfig& config, int64_t available, int64_t eval_rows = 0);

// The peak by category and the changes, a line each: what an error has as its details.
std::string fit_text(const RunConfig& config, const Plan& plan, int64_t available, int64_t eval_rows = 0);

// Throws Error, with fit_text() as details, where the plan's peak is beyond `available` bytes (0: not known). The
// changes leave a sixteenth of them for the program itself, other programs, gaps between a card's blocks.
void require_fit(const RunConfig& config, const Plan& plan, int64_t available, int64_t eval_rows = 0);

// Gives an error in the run fit_text() as details; the changes are held to what was in live blocks, as that much there
// is.
void explain(OutOfMemory& error, const RunConfig& config, const Plan& plan, int64_t eval_rows);

// f(), a part of the run, whose lack of memory is explained.
template <class F>
auto explain_memory(const RunConfig& config, const Plan& plan, int64_t eval_rows, const F& f) -> decltype(f()) {
  try {
    return f();
  } catch (OutOfMemory& e) {
    explain(e, config, plan, eval_rows);
    throw;
  }
}

}  // namespace tally
