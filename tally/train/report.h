// The ledger of a run: what was planned, what was measured, and the difference, as a table and as ledger.json.
#pragma once

#include "tally/train/pace.h"
#include "tally/train/plan.h"

namespace tally {

// What the run saw. Memory is counted where blocks are taken and given back (core/memory.h), not by the ledger; costs
// are those of the launches that were made, times are of the clock.
struct Measured {
  int64_t steps = 0;     // steps done by this process
  CategoryBytes step{};  // at the highest peak of a training step
  CategoryBytes eval{};  // at the highest peak of a validation batch; zero without one
  int64_t evaluations = 0;
  StepCost cost;  // of all steps
  StepTimes step_seconds;
  // Cost of one step: the same in every step, so that the division leaves no rest.
  StepCost per_step() const;
};

// environment: environment_json() at the start of the run.
Json ledger_json(const Plan& plan, const Measured& measured, const Json& environment);
std::string ledger_table(const Plan& plan, const Measured& measured);

std::string with_commas(int64_t n);        // "1,234,567"
std::string bytes_text(double bytes);      // "12.3 MiB"
std::string seconds_text(double seconds);  // "340 us", "12.3 ms", "4.56 s", "3 min 20 s", "2 h 5 min"
std::string count_text(double n);          // "12.3 k", "4.56 M"

}  // namespace tally
