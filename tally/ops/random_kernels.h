// One kernel for all draws: element i of the logical order is a function of (seed, stream, i), whatever layout, device
// and thread count (random_math.h). Uniform numbers of up to 24 bits and truth values take word i % 4 of Philox's call
// i / 4, all others call i.
#pragma once

#include "tally/core/cost.h"
#include "tally/core/number.h"
#include "tally/ops/random_math.h"

namespace tally {

enum class RandomKind : int32_t { kUniform, kNormal, kTruncated, kInteger, kBernoulli };

// kUniform: a + b u, u in [0, 1) with as many bits as the dtype has digits; never `high` or above.
// kNormal: a + b x, x of N(0, 1).
// kTruncated: a + b x, x the quantile of low_mass + mass u, moved into [low, high], which the dtype has.
// kInteger: first + an integer of [0, range).
// kBernoulli: 1 with probability a, or that of `p` (a view of out's shape; a rank of -1 stands for none).
// Counted: a + b u is two; a normal number is log, root, cosine and two products, a quantile one with its argument's
// product and sum, a truth value a comparison.
struct RandomArgs {
  static constexpr const char* name = "random";
  View out, p;
  RandomKind kind;
  double a, b, low, high, low_mass, mass;
  int64_t first;
  uint64_t range;
  uint64_t seed, stream;

  TALLY_INLINE bool has_p() const { return p.size.rank >= 0; }
  // Whether four elements share a call.
  TALLY_INLINE bool words() const {
    return kind == RandomKind::kBernoulli || (kind == RandomKind::kUniform && out.dtype != DType::kF64);
  }
  Device device() const { return out.device; }
  Cost cost() const {
    constexpr int64_t kFlops[] = {2, 7, 5, 0, 1};
    return {0, out.numel() * kFlops[static_cast<int>(kind)], has_p() ? p.bytes() : 0, out.bytes(), 0};
  }
};

// Bits of the significand: what a uniform number of [0, 1) has, so that it is exact and never 1.
TALLY_INLINE int significant_bits(DType t) {
  switch (t) {
    case DType::kF64:
      return 53;
    case DType::kF32:
      return 24;
    case DType::kF16:
      return 11;
    case DType::kBF16:
      return 8;
    case DType::kF8E4M3:
      return 4;
    default:
      return 3;
  }
}

// The bits, in out's dtype, of the element whose call gave `r`; `word` is the element's own where four share a call.
TALLY_INLINE uint64_t random_bits(const RandomArgs& a, const Random4& r, uint32_t word, double p) {
  const DType t = a.out.dtype;
  switch (a.kind) {
    case RandomKind::kUniform: {
      const double u = t == DType::kF64 ? static_cast<double>((uint64_t{r.v[0]} << 32 | r.v[1]) >> 11) * 0x1p-53
                                        : static_cast<double>(word >> (32 - significant_bits(t))) *
                                              (1.0 / static_cast<double>(1 << significant_bits(t)));
      const uint64_t bits = number_bits(t, draws::add(draws::mul(a.b, u), a.a));
      return read_number(&bits, t, 0) < a.high ? bits : number_bits(t, a.a);
    }
    case RandomKind::kNormal:
      return number_bits(t, draws::add(draws::mul(a.b, draws::normal(r)), a.a));
    case RandomKind::kTruncated: {
      const double u = draws::add(draws::mul(a.mass, draws::open_uniform(r)), a.low_mass);
      const double x = draws::add(draws::mul(a.b, draws::normal_quantile(u)), a.a);
      return number_bits(t, x < a.low ? a.low : x > a.high ? a.high : x);
    }
    case RandomKind::kInteger: {
      const uint64_t n = static_cast<uint64_t>(a.first) + draws::below(r, a.range);
      return is_integer(t) ? n : number_bits(t, static_cast<double>(static_cast<int64_t>(n)));
    }
    case RandomKind::kBernoulli: {
      const bool hit = static_cast<double>(word) * 0x1p-32 < p;
      return number_bits(t, hit ? 1.0 : 0.0);
    }
  }
  return 0;
}

#ifdef TALLY_ISA
namespace TALLY_ISA {
void random(const RandomArgs&);
}
#endif

}  // namespace tally
