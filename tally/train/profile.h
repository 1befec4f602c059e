// Where the time of a step goes: every launch on the clock, summed by op and phase, against the roof of this machine.
// The roof of a launch is the time its FLOPs take at the peak of multiply-adds or its bytes at the bandwidth of a copy
// of that size, whichever is longer (Williams, Waterman and Patterson, "Roofline", CACM 2009).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tally/base/json.h"
#include "tally/core/device.h"
#include "tally/core/hardware.h"
#include "tally/ops/launch.h"

namespace tally {

// One op in one phase; all numbers are of one step.
struct ProfileEntry {
  std::string op, phase;
  double seconds = 0;
  int64_t launches = 0;
  Cost cost;
  double roof_seconds = 0;       // what the launches would take at the roof
  double predicted_seconds = 0;  // by Hardware::predict; 0 where the hardware has no rates for it
};

struct Profile {
  int64_t steps = 0;
  double step_seconds = 0;
  // From the end of a launch to the beginning of the next, summed: what the device waits for the host, and what lies
  // between the clock's two reads. The rest outside kernels is before the first launch and after the last.
  double idle_seconds = 0;
  std::vector<ProfileEntry> entries;  // the longest first
  double kernel_seconds() const;      // in launches; the rest of step_seconds is outside kernels
  double kernel_seconds(const std::string& phase) const;
  double predicted_seconds() const;
};

double total_flops(const Cost& cost);
double total_bytes(const Cost& cost);
double roof_seconds(const Hardware& hardware, const Cost& cost);

// Times the launches between begin_step() and end_step(), two reads of the clock each (on a card two events in its
// stream, which end_step() waits for); off otherwise. All steps of one profiler run under the same ledger. On a card
// steps, phases and ops are NVTX ranges as well, for NVIDIA's own profilers.
class Profiler : public LaunchObserver {
 public:
  explicit Profiler(Device device = kCpu);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler() override;

  void begin_step(int64_t step);
  void end_step();
  int64_t steps() const { return static_cast<int64_t>(steps_.size()); }

  enum class Average { kMean, kMedian };  // means add up to the step, medians withstand other programs
  Profile profile(const Hardware& hardware, Average average = Average::kMean) const;
  // Chrome's trace event format (chrome://tracing, ui.perfetto.dev): complete events of steps and launches, times in
  // microseconds, the phase as category, scope and work as arguments.
  Json trace() const;

  void before(const char* name, const void* args) override;
  void after(const char* name, const void* args, const Cost& cost) override;

 private:
  struct Event {
    const char* op;
    int phase, scope;       // as the ledger numbers them
    double start, seconds;  // since the profiler was made
    Cost cost;
  };
  struct Span {
    Moment begin, end;
  };
  struct Step {
    int64_t number;
    double start, seconds;
    size_t events;  // index of its first event
  };
  void turn_off();
  void name_phases();
  // NVTX, on a card only: one range deeper, and back until `depth` ranges are open.
  void open_range(const std::string& name);
  void close_ranges(int depth);

  Device device_;
  Moment origin_;
  std::vector<Moment> launch_start_;  // of the launch under way
  std::vector<Span> spans_;           // of the step's launches
  bool on_ = false;
  int ranges_ = 0, range_phase_ = 0;  // open ranges: the step's, its phase's, the launch's; and which phase
  LaunchObserver* previous_ = nullptr;
  std::vector<Event> events_;
  std::vector<Step> steps_;
  std::map<int, std::string> phases_, scopes_;  // names, looked up when a step has ended
};

double median_of(std::vector<double> values);  // 0 of none

// profile.json: steps, step_seconds, kernel_seconds, the hardware and the entries, as in Profile.
Json profile_json(const Profile& profile, const Hardware& hardware);
// The table of a profile.
std::string profile_text(const Profile& profile);

// N from "N" or "steps=N"; throws Error for anything else and for 0.
int64_t parse_profile_steps(const std::string& text);

}  // namespace tally
