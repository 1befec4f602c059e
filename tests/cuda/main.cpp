// tally_cuda_tests: the op suite of tally/ops on a card, and what is the card's own (cuda_test.cpp). Needs no more than
// the driver and libcublasLt; where there is no card it says so and exits with 77, which ctest counts as skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/ops/op_test.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("TALLY_CACHE", (std::filesystem::temp_directory_path() / "tally-cuda-tests").c_str(), 0);
  try {
    tally::require_device(tally::cuda_device());
  } catch (const tally::Error& e) {
    std::printf("not run: %s\n", e.what());
    return 77;
  }
  tally::test::set_test_device(tally::cuda_device());
  const int rc = RUN_ALL_TESTS();
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::printf("%d passed, %d failed\n", all.successful_test_count(), all.failed_test_count());
  return rc;
}
