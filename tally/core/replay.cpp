#include "tally/core/replay.h"

#include <cstdlib>
#include <utility>

#include "tally/base/error.h"
#include "tally/core/memory.h"

namespace tally {

namespace detail {
bool replaying = false;
}

namespace {

// TALLY_CUDA_GRAPHS=0 turns capturing off: to look for a fault, or for a profiler that wants single launches.
bool wanted() {
  static const bool on = [] {
    const char* const value = std::getenv("TALLY_CUDA_GRAPHS");
    return value == nullptr || *value != '0';
  }();
  return on;
}

class Dry {
 public:
  Dry() { detail::replaying = true; }
  Dry(const Dry&) = delete;
  Dry& operator=(const Dry&) = delete;
  ~Dry() { detail::replaying = false; }
};

}  // namespace

void Replay::drop() {
  if (graph_ != nullptr) detail::graph_drop(std::exchange(graph_, nullptr));
}

void Replay::run(const std::function<void()>& work, bool by_hand) {
  if (device_.kind != DeviceKind::kCuda || by_hand || !wanted() || detail::replaying) return work();
  const uint64_t state = block_fingerprint(device_);
  if (state != before_) {  // the first time, and again when the device had to take more memory for it
    drop();
    before_ = state;
    return work();
  }
  if (graph_ == nullptr) return capture(work);
  detail::graph_launch(device_.index, graph_);
  {
    const Dry dry;
    work();
  }
  TALLY_ASSERT(block_fingerprint(device_) == after_);
}

void Replay::capture(const std::function<void()>& work) {
  detail::graph_begin(device_.index);
  try {
    work();
  } catch (...) {
    detail::graph_end(device_.index, false);
    before_ = 0;
    throw;
  }
  graph_ = detail::graph_end(device_.index, true);
  after_ = block_fingerprint(device_);
  detail::graph_launch(device_.index, graph_);
}

}  // namespace tally
