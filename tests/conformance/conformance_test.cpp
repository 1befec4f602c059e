// One test per case of the course; at the end how many passed and what those that do not run yet wait for.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tally/base/file.h"
#include "tests/conformance/cases.h"
#include "tests/support/support.h"

namespace tally::conformance {

// A parameter's name where tests are listed.
void PrintTo(const Case& c, std::ostream* out) { *out << c.id; }

std::vector<double> numbers(const Json& array) {
  std::vector<double> out;
  for (const Json& x : array.as_array()) out.push_back(x.as_double());
  return out;
}

void expect_numbers(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "number " << i;
}

namespace {

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto& part : {op_cases(), model_cases(), text_cases(), dtype_cases(), missing_cases()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::map<std::string, Json> entries(const std::filesystem::path& file) {
  std::map<std::string, Json> all;
  const Json list = Json::parse(read_file(file), file.string());
  for (const Json& entry : list.as_array()) all.emplace(entry.at("id").as_string(), entry);
  return all;
}

class Conformance : public testing::TestWithParam<Case> {
 public:
  static inline int passed = 0, failed = 0, missing = 0;
  static void TearDownTestSuite() {
    std::printf("conformance: %d passed, %d failed, %d not yet\n", passed, failed, missing);
  }
};

TEST_P(Conformance, Case) {
  TALLY_SHARED_FILE(file, "cs336/conformance_cases.json");
  const std::map<std::string, Json> all = entries(file);
  const Case& c = GetParam();
  ASSERT_TRUE(all.contains(c.id)) << c.id << " is not in " << file;
  const Json& entry = all.at(c.id);
  if (c.run == nullptr) {
    ++missing;
    GTEST_SKIP() << c.id << " not yet: " << c.missing;
  }
  c.run(entry.at("expect"));
  ++(HasFailure() ? failed : passed);
}

INSTANTIATE_TEST_SUITE_P(Cs336, Conformance, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return std::string(info.param.id); });

// No case of the file is forgotten, none stands twice.
TEST(ConformanceFile, EveryCaseHasATest) {
  TALLY_SHARED_FILE(file, "cs336/conformance_cases.json");
  std::map<std::string, int> seen;
  for (const Case& c : all_cases()) ++seen[c.id];
  for (const auto& [id, entry] : entries(file)) EXPECT_EQ(seen[id], 1) << id;
  EXPECT_EQ(seen.size(), entries(file).size());
}

}  // namespace
}  // namespace tally::conformance
