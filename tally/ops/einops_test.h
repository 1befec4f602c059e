// What the property tests of einops and einsum share.
#pragma once

#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tally/base/rng.h"
#include "tally/core/tensor.h"
#include "tally/ops/gather.h"

namespace tally::test {

// Numbers from 0 to n - 1, one after the other, of a case's own stream.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  int64_t operator()(int64_t n) {
    return static_cast<int64_t>(random_below(seed_, stream_, at_++, static_cast<uint64_t>(n)));
  }
  bool chance(int64_t one_in) { return (*this)(one_in) == 0; }
  template <class T>
  void shuffle(std::vector<T>& v) {
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[static_cast<size_t>((*this)(static_cast<int64_t>(i)))]);
  }

 private:
  uint64_t seed_, stream_, at_ = 0;
};

// Random cases of a property: 1,000, or TALLY_PROPERTY_CASES (tools/long.sh einops: 100,000).
inline uint64_t property_cases() {
  const char* cases = std::getenv("TALLY_PROPERTY_CASES");
  return cases != nullptr ? std::strtoull(cases, nullptr, 10) : 1000;
}

// Small integers in `size`, in memory in a random order of the axes, some with a gap behind each row.
inline Tensor random_layout(const Dims& size, Dice& dice) {
  std::vector<int> order(static_cast<size_t>(size.rank));
  std::iota(order.begin(), order.end(), 0);
  if (dice.chance(2)) dice.shuffle(order);
  Dims stride;
  stride.rank = size.rank;
  int64_t step = dice.chance(4) ? 2 : 1;
  for (size_t i = order.size(); i > 0; --i) {
    stride[order[i - 1]] = step;
    step *= size[order[i - 1]];
  }
  std::vector<float> values(static_cast<size_t>(step));
  for (float& v : values) v = static_cast<float>(dice(5) - 2);
  return Tensor::from(values, Dims(step)).alias(size, stride, 0);
}

// f(index) for every index of `size`, the last axis fastest.
inline void for_all(const std::vector<int64_t>& size, const std::function<void(const std::vector<int64_t>&)>& f) {
  int64_t n = 1;
  for (const int64_t s : size) n *= s;
  std::vector<int64_t> index(size.size(), 0);
  for (; n > 0; --n) {
    f(index);
    for (size_t i = size.size(); i > 0 && ++index[i - 1] == size[i - 1]; --i) index[i - 1] = 0;
  }
}

}  // namespace tally::test
