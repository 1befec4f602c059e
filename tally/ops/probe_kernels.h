// A kernel that only multiplies and adds in registers: the processor's peak, against which "% of peak" is stated.
#pragma once

#include "tally/core/cost.h"

namespace tally {

// `chunks` independent pieces of work, each rounds * kProbeFlops FLOPs; out (chunks) f32 keeps the results alive.
struct ProbeArgs {
  static constexpr const char* name = "fma_probe";
  static constexpr int64_t kFlopsPerRound = 2 * 12 * 16;  // twelve chains of sixteen lanes
  View out;
  int64_t rounds;
  Device device() const { return out.device; }
  Cost cost() const { return {out.numel() * rounds * kFlopsPerRound, 0, 0, out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void fma_probe(const ProbeArgs&);
}
#endif

}  // namespace tally
