// What few nodes have: hooks and kept gradients. Inside core only.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tally/core/hooks.h"

namespace tally {

struct Hooks {
  struct OnGradient {
    int id, output;
    std::function<Tensor(const Tensor&)> call;
  };
  struct AfterAccumulate {
    int id;
    Tensor leaf;  // without its node, which owns this
    std::function<void(Tensor&)> call;
  };
  struct Kept {
    int output;
    Tensor gradient;
  };
  std::vector<OnGradient> on_gradient;
  std::vector<AfterAccumulate> after;
  std::vector<Kept> kept;  // of outputs that retain their gradient
  int next_id = 1;
};

}  // namespace tally
