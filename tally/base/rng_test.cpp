// Philox against the known answers of the Random123 library (kat_vectors), and the maps to floats and ranges.
#include "tally/base/rng.h"

#include <array>
#include <set>

#include "tests/support/support.h"

namespace tally {
namespace {

TEST(Rng, KnownAnswers) {
  // counter words (position low, high, stream low, high), key words (seed low, high) -> output
  const auto words = [](const Random4& r) { return std::array<uint32_t, 4>{r.v[0], r.v[1], r.v[2], r.v[3]}; };
  EXPECT_EQ(words(philox(0, 0, 0)), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint64_t ones = ~0ull;
  EXPECT_EQ(words(philox(ones, ones, ones)), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // key a4093822 299f31d0, counter 243f6a88 85a308d3 13198a2e 03707344 (digits of pi)
  EXPECT_EQ(words(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull)),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, WordsOfAStreamAreThePhiloxWords) {
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(random_u32(7, 2, i), philox(7, 2, i / 4).v[i % 4]);
}

TEST(Rng, SeedsAndStreamsDiffer) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (uint64_t stream = 0; stream < 10; ++stream)
      for (uint64_t i = 0; i < 10; ++i) seen.insert(random_u64(seed, stream, i));
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Rng, UniformIsInRangeAndExact) {
  EXPECT_EQ(uniform_from_u32(0), 0.0f);
  EXPECT_EQ(uniform_from_u32(0xFFFFFFFFu), 1.0f - 0x1p-24f);
  EXPECT_EQ(uniform_from_u32(0x80000000u), 0.5f);
  double sum = 0;
  const int n = 100'000;
  for (int i = 0; i < n; ++i) sum += uniform_from_u32(random_u32(3, 1, static_cast<uint64_t>(i)));
  // The mean of n uniforms has standard deviation 1/sqrt(12 n) = 0.00091; five of them.
  EXPECT_NEAR(sum / n, 0.5, 5 * 0.00092);
}

TEST(Rng, BelowStaysBelowAndReachesAll) {
  std::array<int, 7> counts{};
  for (uint64_t i = 0; i < 7000; ++i) {
    const uint64_t v = random_below(11, 2, i, 7);
    ASSERT_LT(v, 7u);
    ++counts[v];
  }
  // Binomial(7000, 1/7): deviation 29; five of them.
  for (const int c : counts) EXPECT_NEAR(c, 1000, 147);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(random_below(11, 2, i, 1), 0u);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_LT(random_below(11, 2, i, ~0ull), ~0ull);
}

}  // namespace
}  // namespace tally
