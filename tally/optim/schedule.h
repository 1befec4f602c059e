// The learning rate by step.
#pragma once

#include <string>

#include "tally/base/fields.h"

namespace tally {

struct ScheduleConfig {
  std::string kind = "cosine";  // cosine, wsd, constant
  int64_t warmup = 0;           // steps of linear rise from 0
  double min_ratio = 0.1;       // lowest rate / peak rate
  double decay_fraction = 0.1;  // wsd: share of the steps in the final fall

  void fields(Fields& f);
};

// The factor on the peak rate at step (0-based) of `steps`:
//   cosine: linear warm-up (step / warmup), then min + (1 - min)(1 + cos(pi (step - warmup) / (steps - warmup))) / 2,
//           min from `steps` on (Loshchilov and Hutter 2016; CS336 assignment 1 checks these values);
//   wsd:    warm-up, 1, then a linear fall to min over the last decay_fraction of the steps (Hu et al. 2024);
//   constant: warm-up, then 1.
double schedule_factor(const ScheduleConfig& config, int64_t step, int64_t steps);

}  // namespace tally
