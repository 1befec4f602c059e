// Kernels that do one thing only, as yardsticks: multiply and add in registers (the processor's peak, against which "%
// of peak" is stated) and read memory (the bandwidth that decoding, which reads every weight once a token, is held to).
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

// Sums x (n) f32 in pieces of kPiece elements; out (ceil(n / kPiece)) f32 keeps the results alive.
struct ReadProbeArgs {
  static constexpr const char* name = "read_probe";
  static constexpr int64_t kPiece = int64_t{1} << 16;
  View x, out;
  Device device() const { return out.device; }
  Cost cost() const { return {0, x.numel(), x.bytes(), out.bytes(), 0}; }
};

#ifdef TALLY_ISA
namespace TALLY_ISA {
void fma_probe(const ProbeArgs&);
void read_probe(const ReadProbeArgs&);
}  // namespace TALLY_ISA
#endif

}  // namespace tally
