// A permutation for every size, and one that looks random: positions, neighbours, all orders of a small set.
#include "tally/data/permutation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "tests/support/support.h"

namespace tally {
namespace {

std::vector<uint64_t> all(uint64_t key, uint64_t n) {
  std::vector<uint64_t> values(n);
  const Permutation p(key, n);
  for (uint64_t i = 0; i < n; ++i) values[i] = p(i);
  return values;
}

void expect_permutation(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  for (uint64_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i) << "of " << values.size();
}

TEST(Permutation, EverySizeIsCoveredOnce) {
  for (uint64_t n = 1; n <= 200; ++n)
    for (uint64_t key = 0; key < 2; ++key) expect_permutation(all(key, n));
  for (const uint64_t n : {65535u, 65536u, 65537u, 300007u}) expect_permutation(all(n, n));
}

TEST(Permutation, KeysGiveOtherOrders) {
  EXPECT_EQ(all(5, 1000), all(5, 1000));
  EXPECT_NE(all(5, 1000), all(6, 1000));
}

// Chi-square over (element, place) for several sizes: the statistic has mean (n - 1)^2 and variance about twice that.
TEST(Permutation, EveryElementIsEverywhereEquallyOften) {
  for (const uint64_t n : {2u, 3u, 5u, 7u, 12u, 16u, 31u}) {
    const int keys = 4000;
    std::vector<int> count(n * n);
    for (int key = 0; key < keys; ++key) {
      const Permutation p(static_cast<uint64_t>(key), n);
      for (uint64_t i = 0; i < n; ++i) ++count[i * n + p(i)];
    }
    const double expected = keys / static_cast<double>(n), freedom = static_cast<double>((n - 1) * (n - 1));
    double chi = 0;
    for (const int c : count) chi += (c - expected) * (c - expected) / expected;
    EXPECT_LT(chi, freedom + 6 * std::sqrt(2 * freedom)) << n;
  }
}

TEST(Permutation, AllOrdersOfFiveOccurEquallyOften) {
  std::map<std::vector<uint64_t>, int> count;
  const int keys = 24000;
  for (int key = 0; key < keys; ++key) ++count[all(static_cast<uint64_t>(key), 5)];
  EXPECT_EQ(count.size(), 120u);
  double chi = 0;
  for (const auto& [order, c] : count) chi += (c - keys / 120.0) * (c - keys / 120.0) / (keys / 120.0);
  EXPECT_LT(chi, 119 + 6 * std::sqrt(2 * 119.0));
}

TEST(Permutation, NeighboursDoNotStayTogether) {
  const std::vector<uint64_t> p = all(3, 100000);
  int together = 0, fixed = 0;
  for (size_t i = 1; i < p.size(); ++i) {
    together += p[i] == p[i - 1] + 1 || p[i] + 1 == p[i - 1] ? 1 : 0;
    fixed += p[i] == i ? 1 : 0;
  }
  EXPECT_LT(together, 12);  // 2 expected
  EXPECT_LT(fixed, 9);      // 1 expected
}

// Sizes whose tables would fill a disk: 300,000 values in a row are different, in range and evenly spread.
TEST(Permutation, HugeSizes) {
  for (const uint64_t n : {(uint64_t{1} << 33) + 7, (uint64_t{1} << 50) - 1, uint64_t{1} << 62}) {
    const Permutation p(11, n);
    std::vector<uint64_t> seen;
    std::vector<int> bucket(100);
    for (uint64_t i = n - 300'000; i < n; ++i) {
      seen.push_back(p(i));
      ASSERT_LT(seen.back(), n);
      ++bucket[static_cast<size_t>(static_cast<long double>(seen.back()) / static_cast<long double>(n) * 100)];
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
    double chi = 0;
    for (const int c : bucket) chi += (c - 3e3) * (c - 3e3) / 3e3;
    EXPECT_LT(chi, 99 + 6 * std::sqrt(2 * 99.0));
  }
}

}  // namespace
}  // namespace tally
