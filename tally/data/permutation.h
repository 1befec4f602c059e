// A pseudo-random permutation of [0, n) as a formula: no table, any element on its own, the same for the same key.
// A generalised Feistel network over Z_a x Z_b, a = ceil(sqrt(n)), b = ceil(n / a), walked on along its cycle while the
// result is not below n (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002); since a * b - n < a
// that is seldom. Round functions are Philox words.
#pragma once

#include <cstdint>

namespace tally {

class Permutation {
 public:
  Permutation(uint64_t key, uint64_t n);  // n from 1 to 2^62
  uint64_t operator()(uint64_t i) const;  // i < n

 private:
  uint64_t once(uint64_t i) const;
  uint64_t key_, n_, a_, b_;
};

}  // namespace tally
