// launch(): the only caller of kernels. It spends the cost in the current ledger, returns at once on meta, finds the
// device's table and calls the kernel.
#pragma once

#include "tally/core/ledger.h"
#include "tally/core/replay.h"
#include "tally/ops/kernels.h"

namespace tally {

// The table of a device. The CPU's is chosen at start-up from what the processor has (TALLY_ISA=base|v3|v4 forces one).
const Kernels& kernels_of(Device device);
std::string cpu_isa();  // "v4"
// One line per op: its name and, for every table, whether it has the kernel.
struct KernelRow {
  const char* name;
  std::vector<bool> has;
};
std::vector<const char*> backend_names();
std::vector<KernelRow> kernel_matrix();

// Looks at every launch of the program before and after the kernel ran: tests check it against a reference loop and
// count FLOPs, the profiler (train/profile.h) takes its time.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual void before(const char* name, const void* args) = 0;
  virtual void after(const char* name, const void* args, const Cost& cost) = 0;
};
LaunchObserver* set_launch_observer(LaunchObserver* observer);  // returns the previous one

namespace detail {
extern LaunchObserver* launch_observer;
[[noreturn]] void no_kernel(const char* name, Device device);
}  // namespace detail

inline bool launches_observed() { return detail::launch_observer != nullptr; }

template <KernelArgs A>
void launch(Kernel<A> Kernels::*slot, const A& args) {
  const Cost cost = args.cost();
  Ledger::current().spend(A::name, cost);
  if (detail::launch_observer) [[unlikely]]
    detail::launch_observer->before(A::name, &args);
  if (args.device().kind != DeviceKind::kMeta && !detail::replaying) {
    const Kernel<A> kernel = kernels_of(args.device()).*slot;
    if (kernel == nullptr) detail::no_kernel(A::name, args.device());
    kernel(args);
  }
  if (detail::launch_observer) [[unlikely]]
    detail::launch_observer->after(A::name, &args, cost);
}

}  // namespace tally
