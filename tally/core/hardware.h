// What the machine can do, as measured once and cached: the yardstick of "% of peak" and of predicted step times.
// The measuring itself runs our own kernels and so lives above, in ops/measure_peaks.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tally/base/file.h"
#include "tally/base/json.h"
#include "tally/core/cost.h"

namespace tally {

// Rates measured at rising amounts of work; between two points the rate is interpolated over the logarithm.
struct RateCurve {
  struct Point {
    double work = 0;  // FLOPs or bytes of one launch
    double rate = 0;  // a second
  };
  std::vector<Point> points;
  double at(double work) const;
};

struct Hardware {
  std::string name;           // CPU model, instruction set and threads: the cache key
  double fma_flops = 0;       // FLOP/s of fused multiply-adds in registers, all threads: the peak of "% of peak"
  RateCurve matmul;           // FLOP/s of our own GEMM on square products
  RateCurve bytes;            // read + write of a copy, from cached to memory-bound sizes
  RateCurve step_matmul;      // both as a training step has them: with operands that are no longer in the first caches;
  RateCurve step_bytes;       // what predict() uses, where they are there
  double other_flops = 0;     // FLOP/s of element-wise work in cache
  double launch_seconds = 0;  // of a launch inside a training step: beyond its work, or with overlaps at least
  bool overlaps = false;      // moves bytes beside computing, and begins a launch while another runs: a card

  // Seconds one launch takes: its overhead, its matmul work, and the larger of other FLOPs and bytes. Summed, not the
  // largest of all: a processor core packs, multiplies and takes exponentials one after the other. With `overlaps` it
  // is the longest of: an empty launch, its bytes, its FLOPs of both kinds.
  double predict(const Cost& cost) const;
  Json to_json() const;
  static Hardware from_json(const Json& json);
};

// Where measurements of this machine are kept: $TALLY_CACHE, else $XDG_CACHE_HOME/tally, else ~/.cache/tally.
fs::path cache_folder();

// hardware.json in it; entries by name. A file that cannot be read
// counts as absent, one that cannot be written is left alone: it is a cache.
fs::path hardware_cache_path();
std::optional<Hardware> cached_hardware(const std::string& name);
void cache_hardware(const Hardware& hardware);

std::string cpu_model_name();  // "AMD EPYC 7B13", from /proc/cpuinfo; "cpu" when unknown

}  // namespace tally
