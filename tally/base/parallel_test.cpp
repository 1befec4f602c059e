// The pool: every index once, chunk borders fixed by grain, exceptions, nesting, many callers at once.
#include "tally/base/parallel.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/support.h"

namespace tally {
namespace {

// The number of threads for one scope.
struct Threads {
  int before = num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

TEST(Parallel, CoversEveryIndexOnceWithFixedChunks) {
  for (const int threads : {1, 2, 3, 8}) {
    const Threads scope(threads);
    for (const int64_t n : {0, 1, 2, 7, 64, 65, 1000, 4097}) {
      for (const int64_t grain : {1, 2, 64, 5000}) {
        std::vector<int> hits(static_cast<size_t>(n), 0);
        std::mutex mutex;
        std::set<std::pair<int64_t, int64_t>> ranges;
        parallel_for(n, grain, [&](int64_t b, int64_t e) {
          for (int64_t i = b; i < e; ++i) ++hits[static_cast<size_t>(i)];
          const std::lock_guard lock(mutex);
          ranges.emplace(b, e);
        });
        EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), int64_t{0}), n);
        for (const int h : hits) EXPECT_EQ(h, 1);
        std::set<std::pair<int64_t, int64_t>> expected;
        for (int64_t b = 0; b < n; b += grain) expected.emplace(b, std::min(b + grain, n));
        EXPECT_EQ(ranges, expected) << threads << " threads, n " << n << ", grain " << grain;
      }
    }
  }
}

TEST(Parallel, SeveralThreadsTakePart) {
  const Threads scope(2);
  // Each of the two chunks waits for the other, so one thread alone could not finish.
  std::atomic<int> arrived{0};
  parallel_for(2, 1, [&](int64_t, int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

TEST(Parallel, NestedRunsInlineOnTheSameThread) {
  const Threads scope(4);
  std::atomic<int64_t> total{0};
  parallel_for(16, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(100, 7, [&](int64_t b, int64_t e) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      total += e - b;
    });
  });
  EXPECT_EQ(total.load(), 1600);
}

TEST(Parallel, TheLowestThrowingChunkIsRethrownAndThePoolGoesOn) {
  for (const int threads : {1, 2, 8}) {
    const Threads scope(threads);
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::string message;
      try {
        parallel_for(1000, 3, [&](int64_t b, int64_t) {
          if (b >= 300) throw std::runtime_error("chunk " + std::to_string(b));
        });
      } catch (const std::runtime_error& e) {
        message = e.what();
      }
      EXPECT_EQ(message, "chunk 300");
    }
    std::atomic<int64_t> sum{0};
    parallel_for(1000, 3, [&](int64_t b, int64_t e) { sum += e - b; });
    EXPECT_EQ(sum.load(), 1000);
  }
}

TEST(Parallel, ManyCallersAtOnce) {
  const Threads scope(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 300; ++i) parallel_for(50, 1, [&](int64_t b, int64_t e) { sum += e - b; });
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum.load(), 4 * 300 * 50);
}

TEST(Parallel, ManySmallJobsAndSleeps) {
  const Threads scope(4);
  int64_t sum = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<int64_t> parts(9, 0);
    parallel_for(9, 1, [&](int64_t b, int64_t) { parts[static_cast<size_t>(b)] = b; });
    sum += std::accumulate(parts.begin(), parts.end(), int64_t{0});
    if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the workers fall asleep
  }
  EXPECT_EQ(sum, 2000 * 36);
}

TEST(Parallel, MoreThreadsThanCpusStillEnds) {
  const Threads scope(32);
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 200; ++i) parallel_for(1000, 1, [&](int64_t b, int64_t e) { sum += e - b; });
  EXPECT_EQ(sum.load(), 200'000);
}

TEST(Parallel, EdgesOfTheRange) {
  const Threads scope(2);
  const int64_t huge = INT64_MAX;
  std::atomic<int64_t> covered{0};
  parallel_for(huge, int64_t{1} << 61, [&](int64_t b, int64_t e) { covered += e - b; });
  EXPECT_EQ(covered.load(), huge);
  parallel_for(-5, 1, [&](int64_t, int64_t) { FAIL() << "called for a negative range"; });
}

TEST(Parallel, BadThreadCounts) {
  test::expect_error([] { set_num_threads(0); }, "the number of threads is 0");
  test::expect_error([] { set_num_threads(100'000); }, "from 1 to");
}

// In a child process, since the variable is read once.
TEST(ParallelDeathTest, TheVariableIsCheckedByName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_threads = [](const char* text) {
    ::setenv("TALLY_THREADS", text, 1);
    try {
      std::exit(num_threads() == 3 ? 0 : 1);
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      std::exit(2);
    }
  };
  EXPECT_EXIT(read_threads("3"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(read_threads("many"), testing::ExitedWithCode(2), "TALLY_THREADS is \"many\"");
  EXPECT_EXIT(read_threads("0"), testing::ExitedWithCode(2), "TALLY_THREADS is \"0\"");
  EXPECT_EXIT(read_threads("2x"), testing::ExitedWithCode(2), "TALLY_THREADS is \"2x\"");
}

}  // namespace
}  // namespace tally
