// What tally.cuda shows: which cards there are, their memory, waiting and timing; and the host's threads and memory.
#include <memory>

#include "python/bind.h"
#include "tally/base/parallel.h"
#include "tally/core/device.h"
#include "tally/core/memory.h"

namespace tally::py {
namespace {

Device card(DeviceArg device, std::optional<int> index) {
  const Device d = index ? card_of(*index) : device.get(cuda_device());
  if (d.kind != DeviceKind::kCuda) fail_value("cuda: {} is no card", name_of(d));
  require_device(d);
  return d;
}

// A moment in the order of a card's work, as torch.cuda.Event.
class Event {
 public:
  void record(DeviceArg device) {
    const Device d = device.get(cuda_device_count() > 0 ? cuda_device() : kCpu);
    moment_ = std::make_unique<Moment>(d);
  }
  double elapsed_time(const Event& end) const {  // milliseconds
    if (!moment_ || !end.moment_) fail("Event: elapsed_time() before both were recorded");
    end.moment_->wait();
    return 1e3 * end.moment_->seconds_since(*moment_);
  }
  void synchronize() const {
    if (moment_) moment_->wait();
  }

 private:
  std::unique_ptr<Moment> moment_;
};

}  // namespace

void bind_device(nb::module_& m) {
  nb::class_<DeviceInfo>(m, "DeviceProperties", "A card: its name and sizes.")
      .def_ro("name", &DeviceInfo::name)
      .def_ro("major", &DeviceInfo::major)
      .def_ro("minor", &DeviceInfo::minor)
      .def_ro("multi_processor_count", &DeviceInfo::multiprocessors)
      .def_ro("total_memory", &DeviceInfo::memory_bytes)
      .def_ro("free_memory", &DeviceInfo::free_bytes)
      .def_ro("L2_cache_size", &DeviceInfo::l2_bytes)
      .def("__repr__", [](const DeviceInfo& i) {
        return fmt::format("DeviceProperties(name='{}', major={}, minor={}, total_memory={})", i.name, i.major, i.minor,
                           i.memory_bytes);
      });
  nb::class_<Event>(m, "Event", "A moment in a device's order of work: record(), then start.elapsed_time(end) in ms.")
      .def(
          "__init__", [](Event* self, bool) { new (self) Event(); }, "enable_timing"_a = true)
      .def("record", &Event::record, "device"_a = nb::none(), "The moment is when what was started so far is done.")
      .def("synchronize", &Event::synchronize, Release(), "Waits until the moment has come.")
      .def("elapsed_time", &Event::elapsed_time, "end_event"_a, Release(), "Milliseconds from this moment to another.");
  m.def("cuda_device_count", cuda_device_count, "The number of cards that can be used.");
  m.def("built_with_cuda", built_with_cuda, "Whether this build has kernels for cards.");
  m.def(
      "get_device_properties", [](DeviceArg d, std::optional<int> index) { return device_info(card(d, index)); },
      "device"_a = nb::none(), nb::kw_only(), "index"_a = nb::none(),
      "What a card is: .name, .total_memory ... RuntimeError where there is none.");
  m.def(
      "memory_allocated", [](DeviceArg d) { return memory_allocated(d.get()); }, "device"_a = nb::none(),
      "Bytes of the device's live blocks, each rounded up to 256.");
  m.def(
      "max_memory_allocated", [](DeviceArg d) { return blocks_of(d.get()).peak; }, "device"_a = nb::none(),
      "Their peak since reset_peak_memory_stats().");
  m.def(
      "reset_peak_memory_stats", [](DeviceArg d) { reset_block_peak(d.get()); }, "device"_a = nb::none(),
      "Starts a new peak at what is allocated now.");
  m.def(
      "empty_cache", [](DeviceArg d) { release_cached_blocks(d.get()); }, "device"_a = nb::none(),
      "Gives free blocks back.");
  m.def(
      "synchronize",
      [](DeviceArg device) {
        const Device d = device.get();
        const Unlocked free;
        synchronize(d);
      },
      "device"_a = nb::none(), "Waits until the device has done all it was given.");
  m.def("get_num_threads", num_threads, "Threads that kernels of the CPU use.");
  m.def(
      "set_num_threads",
      [](int n) {
        if (n < 1 || n > 4096) fail_value("set_num_threads: {}; from 1 to 4096", n);
        set_num_threads(n);
      },
      "n"_a, "Sets how many threads kernels of the CPU use; results do not depend on it.");
}

}  // namespace tally::py
