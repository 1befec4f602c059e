// tally inspect kernels | device: which ops have which kernels, and what this machine can do.
#include <fmt/core.h>

#include "cli/inspect.h"
#include "tally/base/error.h"
#include "tally/core/device.h"
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
  std::string device = "cpu";

  static constexpr const char* kDetails =
      "tally inspect device --device cuda\n"
      "What the processor or a card is, and its peaks as measured with Tally's own kernels, once, and cached.\n"
      "TALLY_MEASURE=1 measures again.";

  void fields(Fields& f) {
    f("json", json, "print JSON");
    f("device", device, "cpu, cuda or cuda:N");
  }

  int run() {
    const Device d = device_from_name(device);
    if (d.kind == DeviceKind::kMeta) fail("--device {}: use cpu, cuda or cuda:N", device);
    require_device(d);
    std::vector<std::vector<std::string>> table;
    Json card = Json::object();
    if (d.kind == DeviceKind::kCuda) describe(device_info(d), table, card);
    const Hardware& h = measured_hardware(d);
    if (json) {
      Json all = h.to_json();
      if (d.kind == DeviceKind::kCuda) all.set("card", card);
      fmt::print("{}\n", all.dump(2));
      return 0;
    }
    if (d.kind == DeviceKind::kCpu) {
      table.push_back({"processor", h.name});
      table.push_back({"multiply-adds in registers", count_text(h.fma_flops) + "FLOP/s"});
    }
    const std::string product = d.kind == DeviceKind::kCpu ? "matrix product of " : "bf16 matrix product of ";
    for (const RateCurve::Point& p : h.matmul.points)
      table.push_back({product + count_text(p.work) + "FLOP", count_text(p.rate) + "FLOP/s"});
    table.push_back({"element-wise work", count_text(h.other_flops) + "FLOP/s"});
    for (const RateCurve::Point& p : h.bytes.points)
      table.push_back({"copy of " + bytes_text(p.work) + " read and written", bytes_text(p.rate) + "/s"});
    table.push_back({"a launch beyond its work", seconds_text(h.launch_seconds)});
    table.push_back({"measured", hardware_cache_path().string()});
    fmt::print("{}", columns_text(table, 99));
    return 0;
  }

 private:
  static void describe(const DeviceInfo& i, std::vector<std::vector<std::string>>& table, Json& card) {
    const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
    const auto row = [&](const char* name, const char* key, const std::string& text, double value) {
      table.push_back({name, text});
      card.set(key, value);
    };
    table.push_back({"card", i.name});
    card.set("name", i.name);
    table.push_back({"compute capability", fmt::format("{}.{}", i.major, i.minor)});
    card.set("compute_capability", fmt::format("{}.{}", i.major, i.minor));
    const auto bytes = [&](const char* name, const char* key, int64_t n) {
      row(name, key, bytes_text(static_cast<double>(n)), static_cast<double>(n));
    };
    row("multiprocessors", "multiprocessors", std::to_string(i.multiprocessors), i.multiprocessors);
    row("registers each", "registers", std::to_string(i.registers), i.registers);
    row("threads each", "threads", std::to_string(i.threads), i.threads);
    bytes("shared memory each", "shared_bytes", i.shared_bytes);
    bytes("shared memory of a block", "block_shared_bytes", i.block_shared_bytes);
    bytes("second cache", "l2_bytes", i.l2_bytes);
    bytes("memory", "memory_bytes", i.memory_bytes);
    bytes("memory that is free", "free_bytes", i.free_bytes);
    row("clock", "clock_khz", fmt::format("{} MHz", i.clock_khz / 1000), i.clock_khz);
    row("memory clock", "memory_clock_khz",
        fmt::format("{} MHz, {} bits", i.memory_clock_khz / 1000, i.memory_bus_bits), i.memory_clock_khz);
    row("driver for CUDA", "driver", version(i.driver), i.driver);
    row("built with CUDA", "runtime", version(i.runtime), i.runtime);
  }
};

}  // namespace

std::vector<Verb> inspect_machine_verbs() {
  return {make_verb<InspectKernels>("inspect kernels", "which ops have which kernels"),
          make_verb<InspectDevice>("inspect device", "the processor or a card, and its measured peaks")};
}

}  // namespace tally::cli
