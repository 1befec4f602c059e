// Ctrl-C, SIGTERM and a closed terminal (SIGHUP) ask a run to stop after its current step; a second one kills it at
// once.
#pragma once

namespace tally {

// Installs the handlers for the lifetime of the object and puts the earlier ones back.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
  static bool asked();
};

}  // namespace tally
