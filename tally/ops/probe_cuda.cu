// Yardsticks on CUDA. fma_probe: a chunk is sixteen threads of twelve chains each, so that kFlopsPerRound holds; about
// 132 * 128 chunks fill an H200. read_probe: a block a piece, eight 16-byte loads of every thread in flight.
#include "tally/ops/probe_kernels.h"

#include "tally/ops/device.cuh"

namespace tally::cuda {

namespace {

constexpr int kChains = 12, kLanes = 16, kProbeThreads = 256;
static_assert(2 * kChains * kLanes == ProbeArgs::kFlopsPerRound);

__global__ void __launch_bounds__(kProbeThreads) fma_kernel(float* out, int64_t chunks, int64_t rounds) {
  const int64_t step = int64_t{gridDim.x} * (kProbeThreads / kLanes);
  const int64_t first = int64_t{blockIdx.x} * (kProbeThreads / kLanes);
  for (int64_t begin = first; begin < chunks; begin += step) {  // the same count in every thread of a block
    const int64_t chunk = begin + threadIdx.x / kLanes;
    const float start = static_cast<float>(chunk);
    float x[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = start + static_cast<float>(i);
#pragma unroll 8
    for (int64_t r = 0; r < rounds; ++r)
#pragma unroll
      for (int i = 0; i < kChains; ++i) x[i] = __fmaf_rn(x[i], 0.999f, 0.001f);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kChains; ++i) sum += x[i];
      // Every thread's result reaches the output, so none is optimised away.
#pragma unroll
    for (int w = kLanes / 2; w > 0; w /= 2) sum += __shfl_xor_sync(kAll, sum, w);
    if (threadIdx.x % kLanes == 0 && chunk < chunks) out[chunk] = sum;
  }
}

constexpr int kReadThreads = 512, kAhead = 8;

__global__ void __launch_bounds__(kReadThreads) read_kernel(const float* x, float* out, int64_t n, bool vectors) {
  __shared__ float shared[kReadThreads / kWarp];
  constexpr int64_t kPiece = ReadProbeArgs::kPiece;
  const float* const p = x + blockIdx.x * kPiece;
  const int64_t left = n - blockIdx.x * kPiece;
  const int count = static_cast<int>(left < kPiece ? left : kPiece);
  constexpr int kStep = 4 * kReadThreads;
  float sums[kAhead] = {};
  int at = 4 * static_cast<int>(threadIdx.x);
  if (vectors) {
    for (; at + (kAhead - 1) * kStep + 4 <= count; at += kAhead * kStep) {
      float v[kAhead][4];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) load_vector(p + at + u * kStep, v[u]);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) sums[u] += (v[u][0] + v[u][1]) + (v[u][2] + v[u][3]);
    }
  }
  for (; at < count; at += kStep)
    for (int j = 0; j < 4; ++j)
      if (at + j < count) sums[0] += p[at + j];
  float sum = 0;
#pragma unroll
  for (int u = 0; u < kAhead; ++u) sum += sums[u];
  sum = block_sum<kReadThreads>(sum, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

void fma_probe(const ProbeArgs& a) {
  const int64_t chunks = a.out.numel();
  if (chunks == 0) return;
  const unsigned blocks = blocks_for(chunks, kProbeThreads / kLanes, int64_t{1} << 30);
  fma_kernel<<<blocks, kProbeThreads, 0, stream_of(a.device())>>>(a.out.ptr<float>(), chunks, a.rounds);
  check_launch("fma_probe");
}

void read_probe(const ReadProbeArgs& a) {
  const int64_t n = a.x.numel();
  if (n == 0) return;
  const auto pieces = static_cast<unsigned>(parts(n, ReadProbeArgs::kPiece));  // below 2^31 for any memory there is
  read_kernel<<<pieces, kReadThreads, 0, stream_of(a.device())>>>(a.x.ptr<float>(), a.out.ptr<float>(), n,
                                                                  aligned<float>(a.x.data, 0));
  check_launch("read_probe");
}

}  // namespace tally::cuda
