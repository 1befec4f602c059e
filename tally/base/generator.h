// A source of random draws with a state of two numbers: draw number n of a generator is the stream kDraws + n of its
// seed (rng.h), whatever device, dtype or thread count it fills. So manual_seed(s) and the same calls in the same order
// give the same values everywhere.
#pragma once

#include <atomic>
#include <cstdint>

namespace tally {

class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(seed) {}
  // Starts again at draw 0 of `seed`.
  Generator& manual_seed(uint64_t seed);
  uint64_t initial_seed() const { return seed_; }
  // Draws so far. What a checkpoint keeps beside the seed.
  uint64_t draws() const { return draws_; }
  void set_draws(uint64_t draws) { draws_ = draws; }
  // The next draw's stream of the seed; no two calls get the same.
  uint64_t next_stream();

 private:
  std::atomic<uint64_t> seed_;
  std::atomic<uint64_t> draws_{0};
};

// The process's own: what functions draw from that are given no other. Its seed is 0 until manual_seed().
Generator& default_generator();
Generator& manual_seed(uint64_t seed);

}  // namespace tally
