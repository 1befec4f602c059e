// The window formulas, trap O17, and batches against a loop over the tokens.
#include "tally/data/loader.h"

#include <algorithm>
#include <set>

#include "tests/support/support.h"

namespace tally {
namespace {

using test::expect_error;

// A headerless file that holds 0, 1, 2, ... n - 1.
TokenSource counting(const test::TempFolder& folder, int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  write_raw_ids(folder / "count.u16", ids, IdType::kU16);
  return TokenSource::open((folder / "count.u16").string(), 65536);
}

TEST(Loader, RandomWindowsStayInsideAndReachBothEnds) {
  for (const auto& [n, context] : {std::pair<int64_t, int64_t>{9, 8}, {10, 8}, {40, 8}}) {
    const RandomWindows windows(7, n, 4, context);
    std::set<int64_t> starts;
    for (int64_t step = 0; step < 200; ++step)
      for (int64_t row = 0; row < 4; ++row) starts.insert(windows.start(step, row));
    EXPECT_EQ(*starts.begin(), 0);
    EXPECT_EQ(*starts.rbegin(), n - context - 1);  // its last target is the last token
    EXPECT_EQ(static_cast<int64_t>(starts.size()), n - context);
  }
}

TEST(Loader, RandomWindowsAreAFormulaOfTheStep) {
  const test::TempFolder folder;
  const TokenSource source = counting(folder, 1000);
  const RandomWindows a(7, 1000, 3, 5), b(7, 1000, 3, 5), other(8, 1000, 3, 5);
  std::vector<int32_t> in(15), out(15), again(15), unused(15);
  int differs = 0;
  for (int64_t step : {0, 1, 99, 1'000'000}) {
    a.fill(source, step, in.data(), out.data());
    b.fill(source, step, again.data(), unused.data());
    EXPECT_EQ(in, again);
    for (size_t i = 0; i < 15; ++i) {
      EXPECT_EQ(in[i], a.start(step, static_cast<int64_t>(i / 5)) + static_cast<int64_t>(i % 5));
      EXPECT_EQ(out[i], in[i] + 1);
    }
    differs += other.start(step, 0) != a.start(step, 0) ? 1 : 0;
  }
  EXPECT_GT(differs, 0);
  EXPECT_EQ(a.start(5, 2), RandomWindows(7, 1000, 1, 5).start(17, 0));  // 5 * 3 + 2: the batch size does not matter
}

// Shards of odd sizes, among them empty ones and ones shorter than a window, that hold 0, 1, 2, ... one after another.
TokenSource odd_shards(const test::TempFolder& folder, int64_t* tokens) {
  int32_t next = 0;
  int file = 0;
  for (const int size : {37, 0, 1, 5, 128, 64, 3, 211, 0, 7}) {
    std::vector<int32_t> ids(static_cast<size_t>(size));
    for (int32_t& id : ids) id = next++;
    ShardWriter writer(folder / fmt::format("train_{:05d}.tok", file++), 65536, {});
    writer.add(ids);
    writer.commit();
  }
  *tokens = next;
  return TokenSource::open(folder.path().string(), 65536);
}

// Rows of 3 and epochs of W windows that 3 does not divide: epochs end inside batches.
TEST(Loader, EpochWindowsReadEveryTokenOnceAnEpoch) {
  const test::TempFolder folder;
  int64_t n = 0;
  const TokenSource source = odd_shards(folder, &n);
  constexpr int64_t kBatch = 3, kContext = 8, kEpochs = 4;
  for (const bool shuffle : {false, true}) {
    const EpochWindows windows(7, n, kBatch, kContext, shuffle);
    ASSERT_EQ(windows.windows(), shuffle ? n / 8 - 1 : (n - 1) / 8);
    ASSERT_NE(windows.windows() % kBatch, 0);
    std::vector<std::vector<int32_t>> seen(kEpochs);  // inputs in the order in which they come, by epoch
    std::vector<int32_t> in(kBatch * kContext), out(kBatch * kContext);
    for (int64_t step = 0; windows.epoch(step, 0) < kEpochs; ++step) {
      EpochWindows(7, n, kBatch, kContext, shuffle).fill(source, step, in.data(), out.data());  // as after a resume
      for (int64_t row = 0; row < kBatch; ++row) {
        const int64_t epoch = windows.epoch(step, row), start = windows.start(step, row);
        for (int64_t i = 0; i < kContext; ++i) {
          EXPECT_EQ(in[static_cast<size_t>(row * kContext + i)], start + i);
          EXPECT_EQ(out[static_cast<size_t>(row * kContext + i)], start + i + 1);
          if (epoch < kEpochs) seen[static_cast<size_t>(epoch)].push_back(in[static_cast<size_t>(row * kContext + i)]);
        }
      }
    }
    for (const auto& epoch : seen) {
      std::vector<int32_t> sorted = epoch;
      std::sort(sorted.begin(), sorted.end());
      ASSERT_EQ(static_cast<int64_t>(sorted.size()), windows.windows() * kContext);
      for (size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], sorted[0] + static_cast<int32_t>(i));
      EXPECT_EQ(epoch == sorted, !shuffle);
    }
    EXPECT_EQ(seen[0] == seen[1], !shuffle);
  }
}

TEST(Loader, ShuffledEpochsCutTheTextAtOtherPlaces) {
  const EpochWindows windows(1, 1000, 1, 8, true);
  std::set<int64_t> cuts;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    int64_t least = 1000, most = 0;
    for (int64_t i = 0; i < windows.windows(); ++i) {
      const int64_t start = windows.start(epoch * windows.windows() + i, 0);
      least = std::min(least, start), most = std::max(most, start);
    }
    EXPECT_EQ(most, least + (windows.windows() - 1) * 8);
    EXPECT_LT(most + 8, 1000);
    cuts.insert(least);
  }
  EXPECT_EQ(cuts, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Loader, EpochWindowsOfTheSmallestData) {
  for (int64_t n = 9; n < 40; ++n)
    for (const bool shuffle : {false, true}) {
      const EpochWindows windows(3, n, 2, 8, shuffle);
      ASSERT_GE(windows.windows(), 1);
      for (int64_t step = 0; step < 100; ++step)
        for (int64_t row = 0; row < 2; ++row) {
          ASSERT_GE(windows.start(step, row), 0);
          ASSERT_LE(windows.start(step, row) + 8, n - 1);
        }
    }
  expect_error([] { EpochWindows(1, 8, 1, 8, true); }, "the data holds 8 tokens; a window of context 8 needs 9");
}

// 3 * 2^40 tokens: positions are exact beyond 32 bits, and the batch size only groups them.
TEST(Loader, EpochWindowsOfTrillionsOfTokens) {
  const int64_t n = (int64_t{3} << 40) + 5, context = 1024;
  const EpochWindows windows(9, n, 1, context, true), batches(9, n, 16, context, true), order(9, n, 16, context, false);
  std::set<int64_t> starts;
  const int64_t first = windows.windows() - 50'000;  // over the end of an epoch
  int64_t beyond = 0;
  for (int64_t i = first; i < first + 50'000; ++i) {
    const int64_t start = windows.start(i, 0);
    ASSERT_TRUE(start >= 0 && start + context < n);
    EXPECT_EQ(batches.start(i / 16, i % 16), start);
    EXPECT_TRUE(starts.insert(start).second);
    beyond += start > (int64_t{1} << 32) ? 1 : 0;
  }
  EXPECT_GT(beyond, 49'000);
  EXPECT_EQ(windows.epoch(windows.windows() - 1, 0), 0);
  EXPECT_EQ(windows.epoch(windows.windows(), 0), 1);
  EXPECT_EQ(order.start((int64_t{1} << 31) / 16, 3), (int64_t{1} << 41) + 3 * context);
}

// Shards of these sizes, batch 2, context 8: ranks * batch * context + 1 tokens must fit.
TEST(Loader, O17FullStepsOfAShard) {
  const std::vector<int64_t> tokens = {100, 97, 96, 17, 16};
  const std::vector<std::pair<int64_t, std::vector<int64_t>>> expected = {
      {1, {6, 6, 5, 1, 0}}, {2, {3, 3, 2, 0, 0}}, {4, {1, 1, 1, 0, 0}}};
  for (const auto& [ranks, steps] : expected) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::set<int64_t> covered;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const SequentialWindows windows(tokens[i], 2, 8, ranks, rank);
        EXPECT_EQ(windows.full_steps(), steps[i]) << ranks << " ranks, " << tokens[i] << " tokens";
        for (int64_t step = 0; step < windows.full_steps(); ++step)
          for (int64_t row = 0; row < 2; ++row) {
            const int64_t start = windows.start(step, row);
            EXPECT_LT(start + 8, tokens[i]) << "the last input's target is inside the shard";
            EXPECT_TRUE(covered.insert(start).second) << "two rows read the same window";
          }
      }
      // Without gaps: the windows are 0, 8, 16, ...
      EXPECT_EQ(static_cast<int64_t>(covered.size()), steps[i] * ranks * 2);
      if (!covered.empty()) {
        EXPECT_EQ(*covered.rbegin(), (steps[i] * ranks * 2 - 1) * 8);
      }
    }
  }
}

TEST(Loader, SequentialWindowsFill) {
  const test::TempFolder folder;
  const TokenSource source = counting(folder, 50);
  const SequentialWindows windows(50, 2, 4, 3, 1);
  ASSERT_EQ(windows.full_steps(), 2);
  std::vector<int32_t> in(8), out(8);
  windows.fill(source, 1, in.data(), out.data());
  EXPECT_EQ(in, (std::vector<int32_t>{32, 33, 34, 35, 36, 37, 38, 39}));
  EXPECT_EQ(out, (std::vector<int32_t>{33, 34, 35, 36, 37, 38, 39, 40}));
  EXPECT_THROW(windows.start(2, 0), std::logic_error);
}

TEST(Loader, ValidationWindowsCoverAllOnce) {
  const test::TempFolder folder;
  for (const int64_t n : {9, 16, 17, 40, 41, 100}) {
    const TokenSource source = counting(folder, n);
    const ValidationWindows windows(n, 3, 8);
    EXPECT_EQ(windows.windows(), (n - 1) / 8);
    std::vector<int32_t> seen;
    for (int64_t index = 0; index < windows.batches(); ++index) {
      const size_t size = static_cast<size_t>(windows.rows(index) * 8);
      std::vector<int32_t> in(size), out(size);
      windows.fill(source, index, in.data(), out.data());
      for (size_t i = 0; i < size; ++i) EXPECT_EQ(out[i], in[i] + 1);
      seen.insert(seen.end(), in.begin(), in.end());
    }
    std::vector<int32_t> expected(static_cast<size_t>((n - 1) / 8 * 8));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<int32_t>(i);
    EXPECT_EQ(seen, expected);
  }
  EXPECT_EQ(ValidationWindows(41, 3, 8).rows(1), 2);  // the last batch is smaller
}

TEST(Loader, BadSizesAreNamed) {
  expect_error([] { RandomWindows(1, 8, 1, 8); }, "the data holds 8 tokens; a window of context 8 needs 9");
  expect_error([] { ValidationWindows(0, 1, 8); }, "the data holds 0 tokens");
  expect_error([] { RandomWindows(1, 100, 0, 8); }, "batch is 0");
  expect_error([] { RandomWindows(1, 100, 1, 0); }, "context is 0");
  expect_error([] { SequentialWindows(100, 1, 8, 2, 2); }, "rank 2 of 2 ranks");
  EXPECT_EQ(SequentialWindows(0, 1, 8).full_steps(), 0);
  EXPECT_EQ(SequentialWindows(INT64_MAX, int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 40).full_steps(), 0);
}

}  // namespace
}  // namespace tally
