// Work that a card repeats by itself: a stretch of launches is captured once as a CUDA graph and then given to the card
// as a whole, so that it does not wait for the host between kernels. The host runs the same code each time, while the
// card works, with kernels and copies left out: costs, blocks and the ledger are those of any other run, and the plan
// stays the run.
#pragma once

#include <functional>

#include "tally/core/view.h"

namespace tally {

class Replay {
 public:
  explicit Replay(Device device) : device_(device) {}
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() { drop(); }

  // Does `work`. On a card the first call runs it as it is, the next captures it, later ones repeat it; elsewhere, and
  // while `by_hand`, it just runs. work() must give the card the same launches each time, but for what they read on the
  // card; must not wait for the card or copy from or to the host; and must take memory in the same order from the same
  // state (another state of the device's blocks leads to a new capture).
  void run(const std::function<void()>& work, bool by_hand = false);
  bool captured() const { return graph_ != nullptr; }

 private:
  void capture(const std::function<void()>& work);
  void drop();

  Device device_;
  void* graph_ = nullptr;            // a cudaGraphExec_t
  uint64_t before_ = 0, after_ = 0;  // fingerprints of the device's blocks around work as it ran last, and as captured
};

namespace detail {
// True while a Replay runs work whose launches the card has already: launch(), copies and fills do nothing.
extern bool replaying;
// The CUDA side: replay_cuda.cpp, or replay_none.cpp in a build without.
void graph_begin(int device);
void* graph_end(int device, bool keep);  // null when not kept
void graph_launch(int device, void* graph);
void graph_drop(void* graph);
}  // namespace detail

}  // namespace tally
