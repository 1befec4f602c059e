// Twelve independent chains of fused multiply-adds, and eight of additions, hide the latency of every current
// processor.
#include "tally/ops/probe_kernels.h"

#include "tally/base/parallel.h"
#include "tally/ops/simd.h"

namespace tally::TALLY_ISA {

void fma_probe(const ProbeArgs& a) {
  constexpr int kChains = 12, kParts = 16 / kLanes;  // of 16 lanes each, as in ProbeArgs
  parallel_for(a.out.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      float sum = 0;
      for (int part = 0; part < kParts; ++part) {
        Vec x[kChains];
        for (int i = 0; i < kChains; ++i) x[i] = broadcast(static_cast<float>(i + chunk));
        const Vec scale = broadcast(0.999f), shift = broadcast(0.001f);
        for (int64_t r = 0; r < a.rounds; ++r)
#pragma GCC unroll 12
          for (int i = 0; i < kChains; ++i) x[i] = fmadd(x[i], scale, shift);
        for (int i = 0; i < kChains; ++i) sum += x[i][0];
      }
      a.out.ptr<float>()[chunk] = sum;
    }
  });
}

void read_probe(const ReadProbeArgs& a) {
  constexpr int kChains = 8;
  const int64_t n = a.x.numel();
  const float* const x = a.x.ptr<float>();
  parallel_for(n, ReadProbeArgs::kPiece, [&](int64_t begin, int64_t end) {
    Vec sums[kChains] = {};
    int64_t i = begin;
    for (; i + kChains * kLanes <= end; i += kChains * kLanes) {
      // A page ahead, where the processor's own prefetching stops.
      for (int c = 0; c < kChains * kLanes; c += 16) __builtin_prefetch(x + i + 1024 + c);
#pragma GCC unroll 8
      for (int c = 0; c < kChains; ++c) sums[c] += load(x + i + c * kLanes);
    }
    float sum = 0;
    for (; i < end; ++i) sum += x[i];
    for (int c = 0; c < kChains; ++c)
      for (int lane = 0; lane < kLanes; ++lane) sum += sums[c][lane];
    a.out.ptr<float>()[begin / ReadProbeArgs::kPiece] = sum;
  });
}

}  // namespace tally::TALLY_ISA
