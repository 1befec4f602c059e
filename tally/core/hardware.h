// What the machine can do, as measured once and cached: the yardstick of "% of peak" and of predicted step times.
// The measuring itself runs our own kernels and so lives above, in ops/measure_peaks.h.
#pragma once

#include <optional>
#include <string>

#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/core/cost.h"

namespace tally {

struct Hardware {
  std::string name;               // CPU model, instruction set and threads: the cache key
  double fma_flops = 0;           // FLOP/s of fused multiply-adds in registers, all threads: the peak of "% of peak"
  double matmul_flops = 0;        // FLOP/s our own GEMM reaches on a large product
  double other_flops = 0;         // FLOP/s of element-wise work in cache
  double bytes_per_second = 0;    // read + write, arrays beyond the last private cache
  double cached_bytes_per_second = 0;  // read + write within it
  int64_t cached_bytes = 0;       // a launch that moves fewer bytes is taken to run from cache
  double launch_seconds = 0;      // cost of an empty launch

  // Seconds one launch takes: its overhead + matmul time + the larger of other FLOPs and bytes (a roofline).
  double predict(const Cost& cost) const;
  Json to_json() const;
  static Hardware from_json(const Json& json);
};

// $XDG_CACHE_HOME/tally/hardware.json (else ~/.cache/tally/hardware.json); entries by name. A file that cannot be read
// counts as absent, one that cannot be written is left alone: it is a cache.
fs::path hardware_cache_path();
std::optional<Hardware> cached_hardware(const std::string& name);
void cache_hardware(const Hardware& hardware);

std::string cpu_model_name();  // "AMD EPYC 7B13", from /proc/cpuinfo; "cpu" when unknown

}  // namespace tally
