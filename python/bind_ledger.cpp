// The accounts in Python: `with tally.Ledger() as ledger:` counts the FLOPs, the bytes and the memory of what runs in
// it, on meta as on a device.
#include <thread>

#include "python/bind.h"
#include "tally/core/ledger.h"

namespace tally::py {
namespace {

class BoundLedger {
 public:
  BoundLedger() : ledger_(new Ledger) {}
  BoundLedger(const BoundLedger&) = delete;
  BoundLedger& operator=(const BoundLedger&) = delete;
  void enter() {
    if (!guards_.empty() && thread_ != std::this_thread::get_id())
      fail("Ledger: another thread counts with it; a thread needs one of its own");
    thread_ = std::this_thread::get_id();
    guards_.push_back(std::make_unique<LedgerGuard>(ledger_));
  }
  void leave() {
    if (guards_.empty() || thread_ != std::this_thread::get_id()) fail("Ledger: left without having been entered");
    guards_.pop_back();
  }
  const Ledger& get() const { return *ledger_; }
  Ledger& get() { return *ledger_; }

 private:
  Ref<Ledger> ledger_;
  std::vector<std::unique_ptr<LedgerGuard>> guards_;
  std::thread::id thread_;
};

nb::dict categories(const CategoryBytes& bytes) {
  nb::dict all;
  for (int i = 0; i < kCategories; ++i) all[name_of(static_cast<Category>(i))] = bytes[static_cast<size_t>(i)];
  return all;
}

nb::dict python_of(const Ledger::Entry& e) {
  nb::dict d;
  d["op"] = e.op, d["phase"] = e.phase, d["scope"] = e.scope, d["launches"] = e.launches;
  d["matmul_flops"] = e.cost.matmul_flops, d["other_flops"] = e.cost.other_flops;
  d["bytes_read"] = e.cost.bytes_read, d["bytes_written"] = e.cost.bytes_written;
  return d;
}

}  // namespace

void bind_ledger(nb::module_& m) {
  nb::class_<BoundLedger>(
      m, "Ledger",
      "What the ops of a block cost, on this thread: with Ledger() as ledger: ...; ledger.flops. On "
      "the device meta nothing is computed and the counts are the same.")
      .def(nb::init<>())
      .def("__enter__",
           [](nb::handle self) {
             nb::cast<BoundLedger&>(self).enter();
             return nb::borrow(self);
           })
      .def("__exit__", [](BoundLedger& l, const nb::args&) { l.leave(); })
      .def_prop_ro(
          "flops", [](const BoundLedger& l) { return l.get().cost().matmul_flops + l.get().cost().other_flops; },
          "All floating-point operations so far.")
      .def_prop_ro(
          "matmul_flops", [](const BoundLedger& l) { return l.get().cost().matmul_flops; },
          "Those of matrix products: 2 a multiply and add.")
      .def_prop_ro(
          "other_flops", [](const BoundLedger& l) { return l.get().cost().other_flops; }, "All others.")
      .def_prop_ro(
          "bytes_read", [](const BoundLedger& l) { return l.get().cost().bytes_read; }, "Each input of an op once.")
      .def_prop_ro(
          "bytes_written", [](const BoundLedger& l) { return l.get().cost().bytes_written; },
          "Each output of an op once.")
      .def_prop_ro(
          "launches", [](const BoundLedger& l) { return l.get().launches(); }, "How many kernels were started.")
      .def_prop_ro(
          "live_bytes", [](const BoundLedger& l) { return l.get().live_bytes(); },
          "Of tensors made in the block that are still there.")
      .def_prop_ro(
          "peak_bytes", [](const BoundLedger& l) { return l.get().peak_bytes(); }, "The most that they were.")
      .def_prop_ro(
          "live", [](const BoundLedger& l) { return categories(l.get().live()); }, "live_bytes by category.")
      .def_prop_ro(
          "saved", [](const BoundLedger& l) { return categories(l.get().saved()); },
          "Bytes kept for backwards now, by category.")
      .def(
          "entries",
          [](const BoundLedger& l) {
            nb::list all;
            for (const Ledger::Entry& e : l.get().entries()) all.append(python_of(e));
            return all;
          },
          "Costs by op, phase and scope, in order of first use: a list of dicts.")
      .def(
          "clear_costs", [](BoundLedger& l) { l.get().clear_costs(); }, "Sets the costs, not the memory, back to 0.")
      .def("__repr__", [](const BoundLedger& l) {
        return fmt::format("Ledger(matmul_flops={}, other_flops={}, live_bytes={}, peak_bytes={})",
                           l.get().cost().matmul_flops, l.get().cost().other_flops, l.get().live_bytes(),
                           l.get().peak_bytes());
      });
}

}  // namespace tally::py
