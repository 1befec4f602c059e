#include "tally/base/generator.h"

#include "tally/base/rng.h"

namespace tally {

Generator& Generator::manual_seed(uint64_t seed) {
  seed_ = seed, draws_ = 0;
  return *this;
}

uint64_t Generator::next_stream() { return static_cast<uint64_t>(RandomStream::kDraws) + draws_++; }

Generator& default_generator() {
  static Generator generator;
  return generator;
}

Generator& manual_seed(uint64_t seed) { return default_generator().manual_seed(seed); }

}  // namespace tally
