// tally inspect kernels | device: which ops have which kernels, and what this machine can do.
#include <fmt/core.h>

#include "cli/inspect.h"
#include "tally/ops/launch.h"
#include "tally/ops/measure_peaks.h"
#include "tally/train/report.h"

namespace tally::cli {
namespace {

struct InspectKernels {
  bool json = false;

  static constexpr const char* kDetails = "Each op and the backends that have its kernel.";

  void fields(Fields& f) { f("json", json, "print JSON"); }

  int run() {
    const std::vector<const char*> backends = backend_names();
    std::vector<std::vector<std::string>> table = {{"op"}};
    Json all = Json::object();
    for (const char* backend : backends) table[0].emplace_back(backend);
    for (const KernelRow& row : kernel_matrix()) {
      table.push_back({row.name});
      Json has = Json::object();
      for (size_t i = 0; i < backends.size(); ++i) {
        table.back().emplace_back(row.has[i] ? "yes" : "-");
        has.set(backends[i], static_cast<bool>(row.has[i]));
      }
      all.set(row.name, has);
    }
    if (json)
      fmt::print("{}\n", Json::object().set("cpu_isa", cpu_isa()).set("kernels", all).dump(2));
    else
      fmt::print("{}this machine runs cpu kernels of instruction set {}\n", columns_text(table, 99), cpu_isa());
    return 0;
  }
};

struct InspectDevice {
  bool json = false;

  static constexpr const char* kDetails =
      "Peaks of this machine as measured with Tally's own kernels, once, and cached. TALLY_MEASURE=1 measures again.";

  void fields(Fields& f) { f("json", json, "print JSON"); }

  int run() {
    const Hardware& h = measured_hardware();
    if (json) {
      fmt::print("{}\n", h.to_json().dump(2));
      return 0;
    }
    std::vector<std::vector<std::string>> table = {{"processor", h.name},
                                                   {"multiply-adds in registers", count_text(h.fma_flops) + "FLOP/s"}};
    for (const RateCurve::Point& p : h.matmul.points)
      table.push_back({"matrix product of " + count_text(p.work) + "FLOP", count_text(p.rate) + "FLOP/s"});
    table.push_back({"element-wise work", count_text(h.other_flops) + "FLOP/s"});
    for (const RateCurve::Point& p : h.bytes.points)
      table.push_back({"copy of " + bytes_text(p.work) + " read and written", bytes_text(p.rate) + "/s"});
    table.push_back({"a launch beyond its work", seconds_text(h.launch_seconds)});
    table.push_back({"measured", hardware_cache_path().string()});
    fmt::print("{}", columns_text(table, 99));
    return 0;
  }
};

}  // namespace

std::vector<Verb> inspect_machine_verbs() {
  return {make_verb<InspectKernels>("inspect kernels", "which ops have which kernels"),
          make_verb<InspectDevice>("inspect device", "the measured peaks of this machine")};
}

}  // namespace tally::cli
