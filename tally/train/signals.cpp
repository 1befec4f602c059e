#include "tally/train/signals.h"

#include <csignal>

namespace tally {

namespace {

volatile std::sig_atomic_t stop_asked = 0;
struct sigaction earlier_int, earlier_term, earlier_hup;

}  // namespace

StopSignals::StopSignals() {
  stop_asked = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { stop_asked = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);  // the second signal takes its default: it kills
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &earlier_int);
  sigaction(SIGTERM, &action, &earlier_term);
  // A closed terminal saves too; under nohup the signal stays ignored.
  sigaction(SIGHUP, nullptr, &earlier_hup);
  if (earlier_hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &earlier_int, nullptr);
  sigaction(SIGTERM, &earlier_term, nullptr);
  sigaction(SIGHUP, &earlier_hup, nullptr);
}

bool StopSignals::asked() { return stop_asked != 0; }

}  // namespace tally
