// Random numbers by counter: (seed, stream, position) -> value, the same on every device and thread count.
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// Every function here is inlined by force: kernel files are compiled for several instruction sets and must not
// share out-of-line copies.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TALLY_INLINE __host__ __device__ __forceinline__
#else
#define TALLY_INLINE inline __attribute__((always_inline))
#endif

namespace tally {

struct Random4 {
  uint32_t v[4];
};

// Four 32-bit words at `position` of the stream. The key is the seed, the counter (position, stream).
TALLY_INLINE Random4 philox(uint64_t seed, uint64_t stream, uint64_t position) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(position >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n1 = static_cast<uint32_t>(p1);
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1, n3 = static_cast<uint32_t>(p0);
    c0 = n0, c1 = n1, c2 = n2, c3 = n3;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// One 32-bit word for element `index` (four elements share a Philox call).
TALLY_INLINE uint32_t random_u32(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox(seed, stream, index / 4).v[index % 4];
}

TALLY_INLINE uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t index) {
  const Random4 r = philox(seed, stream, index);
  return (uint64_t{r.v[0]} << 32) | r.v[1];
}

// Uniform in [0, 1) with 24 bits: exact in f32.
TALLY_INLINE float uniform_from_u32(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Uniform integer in [0, n), n > 0; the bias is below n / 2^64.
TALLY_INLINE uint64_t random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random_u64(seed, stream, index)) * n) >> 64);
}

// Streams: a purpose each, so that no two parts of a run share numbers.
enum class RandomStream : uint64_t { kInit = 1, kData = 2, kSample = 3, kDropout = 1ull << 32, kDraws = 1ull << 63 };

}  // namespace tally
